package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/test/cluster/binaries"
)

// terminal has kubectl and the plugin from an unpacked archive.
type terminal struct {
	t       *testing.T
	kubectl string
	path    string // PATH
}

func newTerminal(t *testing.T) terminal {
	t.Helper()
	root, err := binaries.Root()
	if err != nil {
		t.Fatal(err)
	}
	out, bin := t.TempDir(), t.TempDir()
	system, machine := runtime.GOOS, runtime.GOARCH
	c := exec.CommandContext(t.Context(), "make", "--no-print-directory", "-C", root, "archives", "ARCHIVES="+out, "VERSION=v1.2.3",
		"REVISION=0123456789012345678901234567890123456789", "CREATED=1700000000", "DOWNLOADS="+system+"/"+machine)
	c.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "MAKE") || strings.HasPrefix(v, "MFLAGS") })
	if text, err := c.CombinedOutput(); err != nil {
		t.Fatalf("make archives: %v\n%s", err, text)
	}
	for name, text := range members(t, filepath.Join(out, "rehome-v1.2.3-"+system+"-"+machine+".tar.gz")) {
		if name == "rehome" {
			name = "kubectl-rehome"
		}
		_, content, _ := strings.Cut(text, " ")
		if err := os.WriteFile(filepath.Join(bin, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	kubectl := filepath.Join(root, ".build/controlplane/kubectl")
	if err := os.Symlink(kubectl, filepath.Join(bin, "kubectl")); err != nil {
		t.Fatal(err)
	}
	return terminal{t, kubectl, bin + string(filepath.ListSeparator) + os.Getenv("PATH")}
}

// types runs kubectl, and returns its exit code and output.
func (s terminal) types(words ...string) (code int, out string) {
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
	s := newTerminal(t)
	version := "rehome v1.2.3\ncommit 0123456789012345678901234567890123456789\n" + runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH + "\n"
	for _, c := range []struct {
		name  string
		words []string
		code  int
		want  string // the complete output, or a part of it after ~
	}{
		{"its version", []string{"rehome", "version"}, 0, version},
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
