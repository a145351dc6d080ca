package main

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/test/cluster/binaries"
	"github.com/rehome-dev/rehome/test/expect"
)

// TestGenerated compares every generated file of the chart with its sources.
func TestGenerated(t *testing.T) {
	root, err := binaries.Root()
	expect.Must(t, err)
	want, err := generate(root)
	expect.Must(t, err)
	got := content(t, filepath.Join(root, "deploy/helm"))
	maps.DeleteFunc(got, func(name string, _ []byte) bool { return want[name] == nil && !strings.Contains(name, "/files/") })
	if g, w := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)); !slices.Equal(g, w) {
		t.Errorf("files:\n got %q\nwant %q: run make generate", g, w)
	}
	for name, text := range want {
		if !bytes.Equal(got[name], text) {
			t.Errorf("deploy/helm/%s is not what its source says: run make generate", name)
		}
	}
}

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
