package images

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rehome-dev/rehome/test/cluster/binaries"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// The name and version of the images in these tests.
const (
	version  = "v0.0.1-test"
	revision = "0123456789012345678901234567890123456789"
	created  = "1700000000" // 2023-11-14T22:13:20Z
)

// repository returns the root of this repository.
func repository(t *testing.T) string {
	t.Helper()
	root, err := binaries.Root()
	expect.Must(t, err)
	return root
}

// runMake runs make there, with variables, and returns what it prints.
func runMake(dir string, arguments ...string) (string, error) {
	c := exec.Command("make", append([]string{"--no-print-directory", "-C", dir}, arguments...)...)
	for _, v := range os.Environ() { // make that runs this test has its own
		if !strings.HasPrefix(v, "MAKE") && !strings.HasPrefix(v, "MFLAGS") {
			c.Env = append(c.Env, v)
		}
	}
	out, err := c.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("make %s: %w\n%s", strings.Join(arguments, " "), err, out)
	}
	return string(out), nil
}

// imageArguments returns the arguments of make images.
func imageArguments(root, out string, more ...string) []string {
	return append([]string{
		"images", "IMAGES=" + out, "VERSION=" + version, "REVISION=" + revision, "CREATED=" + created,
		"PACK=" + filepath.Join(root, ".build/tools/images"),
	}, more...)
}

// shared has the results that several tests read.
var shared struct {
	once sync.Once
	dir  string
	said string
	err  error
}

// built returns the directory with the images, which are built once for all tests, and what make said.
func built(t *testing.T) (dir, said string) {
	t.Helper()
	root := repository(t)
	shared.once.Do(func() {
		//nolint:usetesting // it outlives the test that comes first; TestMain removes it
		if shared.dir, shared.err = os.MkdirTemp("", "rehome-images"); shared.err == nil {
			shared.said, shared.err = runMake(root, imageArguments(root, shared.dir)...)
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.dir, shared.said
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.dir != "" {
		_ = os.RemoveAll(shared.dir)
	}
	os.Exit(code)
}

// copyTree copies what git knows or would add, so that the same sources are at another place.
func copyTree(t *testing.T, root, to string) {
	t.Helper()
	list := exec.CommandContext(t.Context(), "git", "ls-files", "-co", "--exclude-standard", "-z")
	list.Dir = root
	out, err := list.Output()
	expect.Must(t, err)
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) { // removed, but git does not know yet
			continue
		}
		target := filepath.Join(to, name)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(target), 0o755)
		}
		if err == nil {
			err = os.WriteFile(target, text, 0o644)
		}
		expect.Must(t, err)
	}
}

// contents returns the files below dir with their content.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		all[name] = string(text)
		return err
	})
	expect.Must(t, err)
	return all
}

func TestReproducibleBuilds(t *testing.T) {
	root := repository(t)
	first, _ := built(t)
	elsewhere, again := filepath.Join(t.TempDir(), "another", "place"), t.TempDir()
	copyTree(t, root, elsewhere)
	if _, err := runMake(elsewhere, imageArguments(root, again)...); err != nil {
		t.Fatal(err)
	}
	a, b := contents(t, first), contents(t, again)
	if len(a) != len(b) || len(a) < 10 {
		t.Errorf("%d files and %d files", len(a), len(b))
	}
	for name, text := range a {
		if b[name] != text {
			t.Errorf("%s differs", name)
		}
	}
}
