package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/test/cluster/binaries"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/program"
)

// kubectlShell has kubectl and the plugin, as an archive of a release contains it.
type kubectlShell struct {
	t       *testing.T
	kubectl string
	path    string // PATH
}

func newKubectlShell(t *testing.T) kubectlShell {
	t.Helper()
	binary := expect.Value(t, program.Build)
	root, err := binaries.Root()
	expect.Must(t, err)
	bin, kubectl := t.TempDir(), filepath.Join(root, ".build/controlplane/kubectl")
	for name, target := range map[string]string{
		"kubectl": kubectl, "kubectl-rehome": binary, "kubectl_complete-rehome": filepath.Join(root, "deploy/krew/kubectl_complete-rehome"),
	} {
		if err := os.Symlink(target, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	return kubectlShell{t, kubectl, bin + string(filepath.ListSeparator) + os.Getenv("PATH")}
}

// types runs kubectl, and returns its exit code and output.
func (s kubectlShell) types(words ...string) (code int, out string) {
	s.t.Helper()
	c := exec.CommandContext(s.t.Context(), s.kubectl, words...)
	c.Env = append(os.Environ(), "PATH="+s.path, "KUBECONFIG="+os.DevNull, "HOME="+s.t.TempDir())
	text, err := c.CombinedOutput()
	if c.ProcessState == nil {
		s.t.Fatalf("kubectl, which make controlplane builds: %v", err)
	}
	return c.ProcessState.ExitCode(), string(text)
}

func TestKubectlPlugin(t *testing.T) {
	s := newKubectlShell(t)
	for _, c := range []struct {
		name  string
		words []string
		code  int
		want  string // the complete output, or a part of it after ~
	}{
		{"its version", []string{"rehome", "version"}, 0, "~rehome "},
		{"help names the plugin command", []string{"rehome", "status", "--help"}, 0, "~Usage:\n  kubectl rehome status [flags]\n\nExamples:\n  kubectl rehome status\n"},
		{"usage error", []string{"rehome", "version", "x"}, 1, "unknown command \"x\" for \"kubectl rehome version\"\n"},
		{"kubectl flags", []string{"rehome", "once", "--help"}, 0, "~      --kubeconfig string "},
		{"context flag", []string{"rehome", "once", "--help"}, 0, "~      --context string "},
		{"plugin list", []string{"plugin", "list"}, 0, "~/kubectl-rehome\n"},
		{"completion", []string{"__complete", "rehome", "stat"}, 0, "~status\t"},
		{"and flags", []string{"__complete", "rehome", "status", "--kube"}, 0, "~--kubeconfig\t"},
		{"completion without a match", []string{"__complete", "rehome", "nothinglikeit"}, 0, "~:4\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, out := s.types(c.words...)
			part, isPart := strings.CutPrefix(c.want, "~")
			if code != c.code || isPart && !strings.Contains(out, part) || !isPart && out != c.want {
				t.Errorf("got  %d %q\nwant %d %q", code, out, c.code, c.want)
			}
		})
	}
}
