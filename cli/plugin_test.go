package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// helpOf runs the program under a name, and returns its output.
func helpOf(t *testing.T, program string, arguments ...string) string {
	t.Helper()
	root := newRoot()
	spokenAs(root, typedAs(program))
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetArgs(arguments)
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestPluginName(t *testing.T) {
	for program, want := range map[string]string{
		"/usr/local/bin/kubectl-rehome": "kubectl rehome", "kubectl-rehome.exe": "kubectl rehome", "bin/rehome": "rehome",
		"rehome.exe": "rehome", "": "rehome", "/kubectl-rehome/rehome": "rehome",
	} {
		if got := typedAs(program); got != want {
			t.Errorf("%q: typed as %q, want %q", program, got, want)
		}
	}
}

// mentions counts the places in all help texts that contain the typed name of the program, without the namespace rehome.
func mentions(t *testing.T, program, typed string) (n int) {
	t.Helper()
	root := newRoot()
	spokenAs(root, typedAs(program))
	each(root, func(c *cobra.Command) {
		if c.Name() == "completion" || c.HasParent() && c.Parent().Name() == "completion" {
			return
		}
		help := strings.ReplaceAll(c.Long+c.Example+c.UseLine(), "-n rehome ", "")
		n += strings.Count(help, typed)
		if strings.Contains(c.Example, "kubectl kubectl") {
			t.Errorf("%s: %s", c.CommandPath(), c.Example)
		}
	})
	return n
}

func TestPluginHelpUsesPluginName(t *testing.T) {
	own, plugin := mentions(t, "rehome", "rehome "), mentions(t, pluginName, "kubectl rehome ")
	if other := mentions(t, pluginName, "rehome ") - plugin; own == 0 || other > 0 || plugin != own {
		t.Errorf("%d places name the program; of the plugin %d say kubectl rehome and %d do not", own, plugin, other)
	}
}

func TestPluginCompletionHelp(t *testing.T) {
	if got := helpOf(t, "kubectl-rehome", "completion", "--help"); !strings.HasPrefix(got, pluginCompletion+"\n\nUsage:\n  kubectl rehome completion [command]\n") {
		t.Errorf("got\n%s", got)
	}
}

func TestShellCompletions(t *testing.T) {
	for shell, want := range map[string]string{
		"bash": "__start_rehome", "zsh": "#compdef rehome", "fish": "complete -c rehome", "powershell": "Register-ArgumentCompleter",
	} {
		if got := helpOf(t, "rehome", "completion", shell); !strings.Contains(got, want) {
			t.Errorf("%s: want %q in\n%s", shell, want, got)
		}
		if help := helpOf(t, "rehome", "completion", shell, "--help"); !strings.Contains(help, "rehome completion "+shell) {
			t.Errorf("%s: no example in\n%s", shell, help)
		}
	}
}
