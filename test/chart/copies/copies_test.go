package main

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rehome-dev/rehome/test/cluster/binaries"
)

// TestChartMatchesTheManifests compares every file that the chart reads with its source.
func TestChartMatchesTheManifests(t *testing.T) {
	root, err := binaries.Root()
	if err != nil {
		t.Fatal(err)
	}
	want, err := copies(filepath.Join(root, "deploy"))
	if err != nil {
		t.Fatal(err)
	}
	got := content(t, filepath.Join(root, "deploy/helm/rehome/files"))
	if g, w := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)); !slices.Equal(g, w) {
		t.Errorf("files:\n got %q\nwant %q: run make generate", g, w)
	}
	for name, text := range want {
		if !bytes.Equal(got[name], text) {
			t.Errorf("deploy/helm/rehome/files/%s is not what its source says: run make generate", name)
		}
	}
}

func TestStaleCopiesAreRemoved(t *testing.T) {
	folder := t.TempDir()
	if err := write(folder, map[string][]byte{"policy.yaml": []byte("a"), "crds/a.yaml": []byte("b"), "crds/b.yaml": []byte("c")}); err != nil {
		t.Fatal(err)
	}
	if err := write(folder, map[string][]byte{"policy.yaml": []byte("d"), "crds/b.yaml": []byte("c")}); err != nil {
		t.Fatal(err)
	}
	got := content(t, folder)
	if want := map[string]string{"policy.yaml": "d", "crds/b.yaml": "c"}; len(got) != 2 || string(got["policy.yaml"]) != want["policy.yaml"] ||
		string(got["crds/b.yaml"]) != want["crds/b.yaml"] {
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
	if err != nil {
		t.Fatal(err)
	}
	return files
}
