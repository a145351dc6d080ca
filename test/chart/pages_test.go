package chart

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
	"github.com/rehome-dev/rehome/test/kit/program"
)

// typed are the commands that a page shows in blocks of the language console, each after "$ ".
func typed(t *testing.T, page string) (commands []string) {
	t.Helper()
	for _, block := range regexp.MustCompile("(?ms)^```console\n(.*?)^```$").FindAllStringSubmatch(page, -1) {
		for line := range strings.Lines(block[1]) {
			if command, is := strings.CutPrefix(strings.TrimRight(line, "\n"), "$ "); is {
				commands = append(commands, command)
			}
		}
	}
	if len(commands) < 5 {
		t.Fatalf("the page has %d commands, want at least 5", len(commands))
	}
	return commands
}

// terminal is where a person types the commands of a page: beside a folder deploy, with helm, kubectl and rehome at hand.
type terminal struct {
	dir         string
	environment []string
}

func newTerminal(t *testing.T) terminal {
	t.Helper()
	c := shared.Cluster(t)
	dir, deploy := t.TempDir(), ""
	deploy, err := filepath.Abs(filepath.Join(root, "deploy"))
	if err == nil {
		err = os.Symlink(deploy, filepath.Join(dir, "deploy"))
	}
	expect.Must(t, err)
	h := helm(t)
	path := strings.Join([]string{filepath.Dir(h.Path), filepath.Dir(c.Kubectl()), filepath.Dir(expect.Value(t, program.Build)), os.Getenv("PATH")}, ":")
	return terminal{dir, append(h.Env, "PATH="+path, "KUBECONFIG="+c.Kubeconfig())}
}

// line types one line, and returns what it prints.
func (tt terminal) line(t *testing.T, line string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), "bash", "-o", "pipefail", "-c", line)
	c.Dir, c.Env = tt.dir, tt.environment
	return must(t, c)
}

// inPod recognizes commands that need a kubelet, which kwok does not have. For commands that run rehome, it checks the arguments.
func inPod(t *testing.T, line string) bool {
	t.Helper()
	if _, command, is := strings.Cut(line, " -- /rehome "); is && strings.HasPrefix(line, "kubectl exec ") {
		must(t, exec.CommandContext(t.Context(), expect.Value(t, program.Build), append(strings.Fields(command), "--help")...))
		return true
	}
	return strings.HasPrefix(line, "kubectl logs ")
}

// TestMigrationPageCommands types them as they stand there, with a release of another chart in the place of
// the descheduler's, which was installed with a values file for it.
func TestMigrationPageCommands(t *testing.T) {
	clean(t)
	old := t.TempDir()
	for name, text := range map[string]string{
		"Chart.yaml":          "apiVersion: v2\nname: descheduler\nversion: 0.36.0\n",
		"templates/none.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: descheduler\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(old, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		filetest.Write(t, filepath.Join(old, name), text)
	}
	must(t, inCluster(t, "install", "descheduler", old, "-n", "kube-system", "--values", "testdata/descheduler/cronjob.yaml"))
	here, kubelet := newTerminal(t), 0
	commands := typed(t, filetest.Read(t, root, "docs/migrate-from-descheduler.md"))
	for _, command := range commands {
		if inPod(t, command) {
			kubelet++
			continue
		}
		here.line(t, command)
	}
	if kubelet != 3 {
		t.Errorf("%d commands are only for a real kubelet, want 3 of %q", kubelet, commands)
	}
}

func TestInstallPageHelmCommands(t *testing.T) {
	clean(t)
	_, section, found := strings.Cut(filetest.Read(t, root, "docs/install.md"), "\n## Helm\n")
	if !found {
		t.Fatal("docs/install.md has no section Helm")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	here := newTerminal(t)
	for _, command := range typed(t, section) {
		here.line(t, command)
	}
	for _, name := range regexp.MustCompile("`([a-z][A-Za-z.]*[A-Z.][A-Za-z]*)(?:: [^`]*)?`").FindAllStringSubmatch(section, -1) {
		if !slices.Contains([]string{"values.yaml"}, name[1]) {
			known(t, name[1])
		}
	}
}

// TestUpgradeTakesNewImage runs each command of a page that keeps the values of a release. It upgrades to a newer chart of a
// release, whose values name another image.
func TestUpgradeTakesNewImage(t *testing.T) {
	here := newTerminal(t)
	newer := filepath.Join(here.dir, "deploy")
	if err := os.Remove(newer); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(newer, os.DirFS(filepath.Join(root, "deploy"))); err != nil {
		t.Fatal(err)
	}
	values := filetest.Read(t, chart, "values.yaml")
	release := func(version string) string {
		digest := "sha256:" + strings.Repeat(version, 64)
		text := strings.Replace(values, `digest: ""`, "digest: "+digest, 1)
		filetest.Write(t, filepath.Join(newer, "helm/rehome/values.yaml"), text)
		return "ghcr.io/rehome-dev/rehome@" + digest
	}
	for _, page := range []string{"README.md", "docs/install.md", "deploy/helm/rehome/README.md"} {
		t.Run(page, func(t *testing.T) {
			commands := regexp.MustCompile(`helm upgrade rehome deploy/helm/rehome [^\n`+"`"+`]*reuse-values[^\n`+"`"+`]*`).
				FindAllString(filetest.Read(t, root, page), -1)
			if len(commands) == 0 {
				t.Fatal("the page has no command that keeps the values")
			}
			for _, command := range commands {
				clean(t)
				release("1")
				here.line(t, "helm install rehome deploy/helm/rehome -n rehome --create-namespace --set podLabels.team=a")
				want := []string{release("2") + " a"}
				here.line(t, command)
				got := here.line(t, "kubectl get deployments -n rehome "+
					`-o jsonpath='{range .items[*]}{.spec.template.spec.containers[0].image} {.spec.template.metadata.labels.team}{"\n"}{end}'`)
				if got := slices.Compact(strings.Split(strings.TrimSpace(got), "\n")); !slices.Equal(got, want) {
					t.Errorf("%s: got %s, want %s", command, got, want)
				}
				here.line(t, "helm uninstall rehome -n rehome")
			}
		})
	}
}

// known fails when there is no value of that name.
func known(t *testing.T, name string) {
	t.Helper()
	out := must(t, helm(t, "show", "values", chart))
	keys := strings.Split(name, ".")
	last := keys[len(keys)-1]
	if !regexp.MustCompile(fmt.Sprintf(`(?m)^ *%s:`, regexp.QuoteMeta(last))).MatchString(out) {
		t.Errorf("%s: there is no such value", name)
	}
}

// TestMigrationPageDifferences looks for a row about each value and flag that means something else.
func TestMigrationPageDifferences(t *testing.T) {
	page := filetest.Read(t, root, "docs/migrate-from-descheduler.md")
	of := map[string]string{
		"arguments": "cmdOptions", "leader": "leaderElection", "account": "serviceAccount", "user": "securityContext", "serves": "ports",
		"monitor": "serviceMonitor", "secrets": "rbac", "budget": "podDisruptionBudget",
	}
	for name, p := range deschedulers(t) {
		for field := range p.Differences {
			value := field
			if of[field] != "" {
				value = of[field]
			}
			if !strings.Contains(page, "\n| `"+value+"` |") {
				t.Errorf("%s: the page has no row about `%s`", name, value)
			}
		}
	}
	_, flags, _ := strings.Cut(page, "\n## Flags\n")
	flags, _, _ = strings.Cut(flags, "\n## ")
	for _, m := range regexp.MustCompile(`\$flag "([a-z0-9-]+)"\)? -\}\}|\$flag \(list ([^)]*)\)`).FindAllStringSubmatch(templates(t), -1) {
		names := regexp.MustCompile(`[a-z0-9-]+`).FindAllString(m[1]+" "+m[2], -1)
		told := slices.ContainsFunc(names, func(flag string) bool { return strings.Contains(flags, "`"+flag+"`") })
		if !told {
			t.Errorf("flags missing on the page: %q", names)
		}
	}
}
