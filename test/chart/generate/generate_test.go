package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/rehome-dev/rehome/test/kit/expect"
)

func TestStaleFiles(t *testing.T) {
	folder := t.TempDir()
	if err := write(folder, map[string][]byte{"rehome/files/policy.yaml": []byte("a"), "rehome/files/crds/a.yaml": []byte("b"), "rehome/files/crds/b.yaml": []byte("c")}); err != nil {
		t.Fatal(err)
	}
	if err := write(folder, map[string][]byte{"rehome/files/policy.yaml": []byte("d"), "rehome/files/crds/b.yaml": []byte("c")}); err != nil {
		t.Fatal(err)
	}
	got := content(t, folder)
	if want := map[string]string{"rehome/files/policy.yaml": "d", "rehome/files/crds/b.yaml": "c"}; len(got) != 2 || string(got["rehome/files/policy.yaml"]) != want["rehome/files/policy.yaml"] ||
		string(got["rehome/files/crds/b.yaml"]) != want["rehome/files/crds/b.yaml"] {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestRoleWithoutRules(t *testing.T) {
	if text, err := rules(t.TempDir(), "watcher"); err == nil {
		t.Errorf("got %q, want an error", text)
	}
}

// content reads all files below a folder.
func content(t *testing.T, folder string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	err := fs.WalkDir(os.DirFS(folder), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files[name], err = os.ReadFile(filepath.Join(folder, name))
		return err
	})
	expect.Must(t, err)
	return files
}
