package crds

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/test/kit/expect"
)

// TestGeneratedFiles runs make generate in a copy of the repository, which must change no file.
func TestGeneratedFiles(t *testing.T) {
	fresh := t.TempDir()
	files := map[string][]byte{}
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == ".git" || name == ".build" || name == "bin"):
			return fs.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(fresh, name), 0o755)
		case !d.Type().IsRegular():
			return nil
		}
		if files[name], err = os.ReadFile(filepath.Join(root, name)); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(fresh, name), files[name], 0o644)
	})
	expect.Must(t, err)
	generate := exec.CommandContext(t.Context(), "make", "--no-print-directory", "generate")
	generate.Dir, generate.Env = fresh, append(os.Environ(), "GOFLAGS=-trimpath") // the cache then serves any directory
	if out, err := generate.CombinedOutput(); err != nil {
		t.Fatalf("make generate: %v\n%s", err, out)
	}
	var changed []string
	err = fs.WalkDir(os.DirFS(fresh), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(fresh, name))
		if !bytes.Equal(text, files[name]) {
			changed = append(changed, name)
		}
		delete(files, name)
		return err
	})
	changed = slices.AppendSeq(changed, maps.Keys(files)) // that are gone
	if err != nil || len(changed) > 0 {
		t.Errorf("run make generate: it changes %s, error %v", strings.Join(changed, ", "), err)
	}
}
