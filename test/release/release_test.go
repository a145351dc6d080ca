// Package release makes a snapshot of a release in a registry on this machine, as docs/releasing.md describes, and uses each
// part of it with the tools of its users: cosign, helm, and krew.
package release

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/rehome-dev/rehome/test/cluster/binaries"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/program"
)

// snapshot is a release in a registry of this test.
type snapshot struct {
	root, registry  string
	version, commit string // the version is such as v0.1.0-snapshot.g0123abc
	environment     []string
}

func TestRelease(t *testing.T) {
	s := newSnapshot(t)
	t.Run("archives", s.testArchives)
	t.Run("manifests of krew and Homebrew", s.testManifests)
	t.Run("krew install", s.testKrew)
	t.Run("signatures", s.testSignatures)
	t.Run("provenance", s.testProvenance)
	t.Run("bill of materials", s.testMaterials)
	t.Run("helm install", s.testHelm)
}

// newSnapshot runs the commands of docs/releasing.md with another port.
func newSnapshot(t *testing.T) *snapshot {
	t.Helper()
	root, err := binaries.Root()
	expect.Must(t, err)
	addresses, err := program.FreeAddresses(1)
	expect.Must(t, err)
	s := &snapshot{root: root, registry: addresses[0]}
	for _, old := range []string{"registry", "release-key.key", "release-key.pub"} {
		if err := os.RemoveAll(filepath.Join(root, ".build", old)); err != nil {
			t.Fatal(err)
		}
	}
	caches := strings.Fields(s.run(t, "go", "env", "GOCACHE", "GOMODCACHE", "GOPATH"))
	for _, v := range os.Environ() { // make that runs this test has its own
		if !strings.HasPrefix(v, "MAKE") && !strings.HasPrefix(v, "MFLAGS") {
			s.environment = append(s.environment, v)
		}
	}
	krew := t.TempDir()
	s.environment = append(s.environment, "GOCACHE="+caches[0], "GOMODCACHE="+caches[1], "GOPATH="+caches[2], "HOME="+t.TempDir(),
		"KREW_ROOT="+krew, "KUBECONFIG="+os.DevNull, "COSIGN_PASSWORD=secret",
		"PATH="+filepath.Join(krew, "bin")+":"+filepath.Join(root, ".build/tools")+":"+filepath.Join(root, ".build/controlplane")+":"+os.Getenv("PATH"))
	s.commit = strings.TrimSpace(s.run(t, "git", "rev-parse", "HEAD"))
	s.version = "v0.1.0-snapshot.g" + strings.TrimSpace(s.run(t, "git", "rev-parse", "--short", "HEAD"))
	s.page(t, "Snapshots")
	return s
}

// page runs the commands of a section of docs/releasing.md. Processes that they leave running end with the test.
func (s *snapshot) page(t *testing.T, title string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.root, "docs/releasing.md"))
	expect.Must(t, err)
	m := regexp.MustCompile("(?s)\n## " + title + "\n.*?\n```sh\n(.*?)```\n").FindSubmatch(text)
	if m == nil {
		t.Fatalf("docs/releasing.md has no commands under %s", title)
	}
	c := s.command(t, "bash", "-ec", strings.ReplaceAll(string(m[1]), "127.0.0.1:5000", s.registry))
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Stdout, c.Stderr = t.Output(), t.Output()
	err = c.Start()
	if err == nil {
		t.Cleanup(func() { _ = syscall.Kill(-c.Process.Pid, syscall.SIGTERM) })
		err = c.Wait()
	}
	if err != nil {
		t.Fatalf("the commands under %s: %v", title, err)
	}
}

// run runs a program that must succeed, and returns what it prints to its output.
func (s *snapshot) run(t *testing.T, name string, arguments ...string) string {
	t.Helper()
	out, err := s.try(t, name, arguments...)
	expect.Must(t, err)
	return out
}

// try runs a program.
func (s *snapshot) try(t *testing.T, name string, arguments ...string) (string, error) {
	t.Helper()
	out, err := s.command(t, name, arguments...).Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%s %q: %w\n%s%s", name, arguments, err, out, failed.Stderr)
	}
	return string(out), err
}

// command prepares a program from the PATH of the environment.
func (s *snapshot) command(t *testing.T, name string, arguments ...string) *exec.Cmd {
	t.Helper()
	c := exec.CommandContext(t.Context(), "env", append([]string{name}, arguments...)...)
	c.Dir, c.Env = s.root, s.environment
	return c
}
