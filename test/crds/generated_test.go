package crds

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// TestGeneratedFilesAreUpToDate generates the files in another folder and compares them.
func TestGeneratedFilesAreUpToDate(t *testing.T) {
	kinds, crds := t.TempDir(), t.TempDir()
	generate := exec.CommandContext(t.Context(), "make", "--no-print-directory", "generate", "REFERENCE=true",
		"KINDS="+kinds, "CRDS="+crds, "CHARTS="+t.TempDir())
	generate.Dir = root
	if out, err := generate.CombinedOutput(); err != nil {
		t.Fatalf("make generate: %v\n%s", err, out)
	}
	sources(t)
	upToDate(t, kinds, "schemas/v1alpha1", "zz_generated.*.go")
	upToDate(t, crds, "deploy/crds", "rehome.dev_*.yaml")
}

// sources reads the inputs of the generator, so that Go repeats the test when they change.
func sources(t *testing.T) {
	t.Helper()
	for _, file := range append(glob(t, filepath.Join(root, "schemas/v1alpha1/*.go")), root+"/Makefile", root+"/test/tools/crds/go.mod") {
		if _, err := os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// upToDate compares the files in fresh with the matching files of a folder.
func upToDate(t *testing.T, fresh, folder, pattern string) {
	t.Helper()
	var made, committed []string
	for _, file := range glob(t, filepath.Join(fresh, "*")) {
		made = append(made, filepath.Base(file))
	}
	for _, file := range glob(t, filepath.Join(root, folder, pattern)) {
		committed = append(committed, filepath.Base(file))
	}
	if !slices.Equal(made, committed) || len(made) == 0 {
		t.Fatalf("%s: make generate makes %q, there are %q", folder, made, committed)
	}
	for _, name := range made {
		want, err := os.ReadFile(filepath.Join(fresh, name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(root, folder, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s/%s is not up to date: run make generate", folder, name)
		}
	}
}
