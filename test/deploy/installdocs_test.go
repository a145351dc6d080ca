package deploy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/pages"
	"github.com/rehome-dev/rehome/test/kit/program"
)

// elsewhere are sections of the page that need what is not here, and the test that types their commands.
var elsewhere = map[string]string{
	"A NATS cluster":     "test/deploy/nats.TestInstallPageNATSAndKEDACommands",
	"KEDA":               "test/deploy/nats.TestInstallPageNATSAndKEDACommands",
	"Helm":               "test/chart.TestInstallPageHelmCommands",
	"Docker Compose":     "test/images.TestComposePageMatchesFile",
	"The kubectl plugin": "test/images.TestInstallPagePluginAndImageCommands",
	"Images":             "test/images.TestInstallPagePluginAndImageCommands",
}

// TestInstallPageCommands runs each section of docs/install.md on a cluster without Rehome, in a copy of a checkout, and compares
// the output with the page. It removes what a section installs, and checks that nothing is left.
//
// Commands are in console blocks, indented blocks, and sh blocks. New sections are tested without a change here, except for
// commands that other tests run. kubectl, rehome, the tools in .build/tools, and variables exported earlier in the section are
// available.
func TestInstallPageCommands(t *testing.T) {
	text := filetest.Read(t, root, "docs/install.md")
	page := newPage(t)
	there := map[string]bool{}
	for _, section := range pages.Sections(text) {
		there[section.Title] = true
		commands := pages.Commands(section.Text)
		if len(commands) > 0 && elsewhere[section.Title] == "" {
			t.Run(section.Title, func(t *testing.T) { page.section(t, commands) })
		}
	}
	for section := range elsewhere {
		if !there[section] {
			t.Errorf("the page has no section %q", section)
		}
	}
}

// page is where the commands of a page are typed.
type page struct {
	checkout    string // the copy
	environment []string
}

// newPage copies the files of a user who has cloned the repository and run make build.
func newPage(t *testing.T) *page {
	t.Helper()
	p := &page{checkout: t.TempDir()}
	for _, folder := range []string{"deploy", "docs"} {
		if err := os.CopyFS(filepath.Join(p.checkout, folder), os.DirFS(filepath.Join(root, folder))); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(p.checkout, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(expect.Value(t, program.Build), filepath.Join(p.checkout, "bin/rehome")); err != nil {
		t.Fatal(err)
	}
	tools, err := filepath.Abs(filepath.Join(root, ".build/tools"))
	expect.Must(t, err)
	c := shared.Cluster(t)
	path := []string{filepath.Dir(c.Kubectl()), filepath.Join(p.checkout, "bin"), tools, os.Getenv("PATH")}
	p.environment = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(), "KUBECACHEDIR="+filepath.Join(dir, "cache"),
		"HOME="+p.checkout, "PATH="+strings.Join(path, string(filepath.ListSeparator)))
	return p
}

// section types the commands of a section, and sees that nothing is left.
func (p *page) section(t *testing.T, commands []pages.Typed) {
	before := everything(t)
	exported := filepath.Join(t.TempDir(), "exported")
	pods := &pods{of: map[string]*podProcess{}}
	var applied []string // by -k, and not deleted
	for i, c := range commands {
		if strings.HasPrefix(c.Command, "kubectl delete") {
			served(t)
		}
		said, err := p.types(t, pods, c.Command, exported)
		if err != nil || !(pages.Masks{}).Alike(c.Prints, said) {
			t.Fatalf("%d. %s: %v\n%s\nwant\n%s", i+1, c.Command, err, said, strings.Join(c.Prints, "\n"))
		}
		if strings.Contains(said, "Warning:") {
			t.Errorf("%d. %s: the API server warns:\n%s", i+1, c.Command, said)
		}
		applied = standing(applied, c.Command)
	}
	pods.stop()
	served(t)
	for _, folder := range applied {
		if said, err := p.types(t, pods, "kubectl delete --ignore-not-found -k "+folder, exported); err != nil {
			t.Errorf("removing %s: %v\n%s", folder, err, said)
		}
	}
	expect.EventuallyWithState(t, "nothing is left", func() (bool, string) {
		more, less := difference(before, everything(t))
		return len(more)+len(less) == 0, fmt.Sprintf("left: %q\ngone: %q", more, less)
	})
}

// folderOfCommand finds what kubectl apply and delete get with -k.
var folderOfCommand = regexp.MustCompile(`^kubectl (apply|delete) .*-k (\S+)`)

// standing returns what is installed after a command. Deleting anything deletes everything, because there is one namespace.
func standing(applied []string, command string) []string {
	m := folderOfCommand.FindStringSubmatch(command)
	switch {
	case m == nil:
		return applied
	case m[1] == "delete":
		return nil
	case slices.Contains(applied, m[2]):
		return applied
	}
	return append(applied, m[2])
}

// types runs a command in the checkout and returns its output. The next command gets its exported variables.
func (p *page) types(t *testing.T, running *pods, command, exported string) (string, error) {
	t.Helper()
	if deployment, arguments, is := execInto(command); is {
		return running.exec(t, deployment, arguments)
	}
	script := fmt.Sprintf("[ ! -f %[1]s ] || . %[1]s\n%[2]s\ncode=$?\nexport -p > %[1]s\nexit $code\n", exported, command)
	c := exec.CommandContext(t.Context(), "sh", "-c", script)
	c.Dir, c.Env = p.checkout, p.environment
	said, err := c.CombinedOutput()
	return withoutLog(string(said)), err
}

// execPattern is a command of rehome in a pod of a Deployment.
var execPattern = regexp.MustCompile(`^kubectl (?:-n|--namespace) rehome exec (?:deploy|deployment)/(\S+) -- /rehome (.*)$`)

func execInto(command string) (deployment string, arguments []string, is bool) {
	m := execPattern.FindStringSubmatch(command)
	if m == nil {
		return "", nil, false
	}
	return m[1], strings.Fields(m[2]), true
}

func TestAppliedOverlays(t *testing.T) {
	var applied []string
	for _, c := range []string{
		"kubectl apply --server-side -k a", "kubectl get pods", "kubectl apply --server-side -k a", "kubectl apply -k b",
	} {
		applied = standing(applied, c)
	}
	if want := []string{"a", "b"}; !slices.Equal(applied, want) {
		t.Errorf("got %q, want %q", applied, want)
	}
	if got := standing(applied, "kubectl delete -k b --ignore-not-found"); got != nil {
		t.Errorf("after it was deleted: got %q", got)
	}
}
