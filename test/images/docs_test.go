package images

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// section returns a part of docs/install.md, without its title.
func section(t *testing.T, title string) string {
	t.Helper()
	text := filetest.Read(t, filepath.Join(repository(t), "docs/install.md"))
	_, after, found := strings.Cut(text, "\n## "+title+"\n")
	if !found {
		t.Fatalf("docs/install.md has no section %s", title)
	}
	part, _, _ := strings.Cut(after, "\n## ")
	return part
}

// commands returns the commands of a section.
func commands(t *testing.T, title string) (lines []string) {
	t.Helper()
	for _, m := range regexp.MustCompile(`(?m)^    (.*)$`).FindAllStringSubmatch(section(t, title), -1) {
		lines = append(lines, m[1])
	}
	return lines
}

// elsewhere are the commands that need what is not here, and why; they are held against what stands in their place.
var elsewhere = map[string]string{
	"rehome ready http://127.0.0.1:8642/readyz": "it needs a process; docker-compose.yaml runs it, and cli tests it",
}

// newcomer has a copy of the repository, a home directory, and kubectl.
type newcomer struct {
	t           *testing.T
	dir         string
	environment []string
	engine      bool
}

func newNewcomer(t *testing.T) newcomer {
	t.Helper()
	root, home := repository(t), t.TempDir()
	n := newcomer{t: t, dir: filepath.Join(t.TempDir(), "rehome")}
	copyTree(t, root, n.dir)
	bin := filepath.Join(home, ".local", "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(root, ".build/controlplane/kubectl"), filepath.Join(bin, "kubectl")); err != nil {
		t.Fatal(err)
	}
	for _, script := range []string{"deploy/krew/kubectl_complete-rehome"} { // git knows that they are programs
		if err := os.Chmod(filepath.Join(n.dir, script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cache := func(name string) string {
		out, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
		if err != nil {
			t.Fatal(err, complaint(err))
		}
		return name + "=" + strings.TrimSpace(string(out))
	}
	n.environment = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "MAKE") || strings.HasPrefix(v, "MFLAGS") })
	n.environment = append(n.environment, "HOME="+home, "PATH="+bin+":"+filepath.Join(n.dir, "bin")+":"+os.Getenv("PATH"),
		"KUBECONFIG="+os.DevNull, cache("GOCACHE"), cache("GOMODCACHE"), cache("GOPATH"))
	_, err := findEngine(t)
	n.engine = err == nil
	return n
}

// types runs the commands of a section in bash, and returns the commands that cannot run here.
func (n newcomer) types(title string) (not []string) {
	n.t.Helper()
	for _, line := range commands(n.t, title) {
		if strings.HasPrefix(line, "docker ") && (!n.engine || runtime.GOARCH != "amd64") || elsewhere[line] != "" {
			not = append(not, line)
			continue
		}
		c := exec.CommandContext(n.t.Context(), "bash", "-ec", line)
		c.Dir, c.Env = n.dir, n.environment
		if out, err := c.CombinedOutput(); err != nil || strings.Contains(line, "version") && !strings.Contains(string(out), "rehome ") {
			n.t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
	return not
}

func TestInstallPagePluginAndImageCommands(t *testing.T) {
	n := newNewcomer(t)
	got := append(n.types("The kubectl plugin"), n.types("Images")...)
	want := slices.Sorted(func(yield func(string) bool) {
		for line := range elsewhere {
			if !yield(line) {
				return
			}
		}
	})
	if !n.engine {
		t.Log("NO CONTAINER ENGINE: the commands of docker on the page are not run")
		got = slices.DeleteFunc(got, func(line string) bool { return strings.HasPrefix(line, "docker ") })
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("not run are %q, want %q", got, want)
	}
	if n.engine {
		if out, err := exec.CommandContext(t.Context(), "docker", "rmi", "ghcr.io/rehome-dev/rehome:"+rehomeVersion).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
}

func TestComposePageMatchesFile(t *testing.T) {
	text := section(t, "Docker Compose")
	table := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`[A-Z_`, ]+) \\|").FindAllStringSubmatch(text, -1) {
		for _, name := range regexp.MustCompile("`([A-Z_]+)`").FindAllStringSubmatch(row[1], -1) {
			table[name[1]] = true
		}
	}
	for _, name := range knobs {
		if !table[name] {
			t.Errorf("the page does not say what %s is", name)
		}
		delete(table, name)
	}
	if len(table) > 0 {
		t.Errorf("the page explains variables that are not asked for: %v", table)
	}
	want := []string{
		"kubectl config view --raw --minify --flatten > kubeconfig",
		"REHOME_DRY_RUN=true REHOME_USER=$(id -u):$(id -g) docker compose up --wait",
		"docker compose exec -e REHOME_NATS_NKEY_FILE=/etc/rehome/nats/reader.nk watcher /rehome status",
		"docker compose exec -e REHOME_NATS_NKEY_FILE=/etc/rehome/nats/reader.nk watcher /rehome events --since 1h",
		"docker compose down --volumes",
	}
	if got := commands(t, "Docker Compose"); !slices.Equal(got, want) {
		t.Errorf("got %q, and TestImagesAndCompose runs %q", got, want)
	}
}
