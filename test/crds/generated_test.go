package crds

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// TestWhatIsGeneratedIsUpToDate generates it anew, somewhere else.
func TestWhatIsGeneratedIsUpToDate(t *testing.T) {
	kinds, crds := t.TempDir(), t.TempDir()
	generate := exec.CommandContext(t.Context(), "make", "--no-print-directory", "generate",
		"KINDS="+kinds, "CRDS="+crds, "CHART="+t.TempDir())
	generate.Dir = root
	if out, err := generate.CombinedOutput(); err != nil {
		t.Fatalf("make generate: %v\n%s", err, out)
	}
	sources(t)
	upToDate(t, kinds, "schemas/v1alpha1", "zz_generated.*.go")
	upToDate(t, crds, "deploy/crds", "rehome.dev_*.yaml")
}

// sources reads what is generated from, so that Go runs the test again when a comment there changes.
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

// upToDate compares the files in fresh with those in a folder of the repository that match a pattern.
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
			t.Errorf("%s/%s is not what the types say: run make generate", folder, name)
		}
	}
}
