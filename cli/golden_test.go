package cli

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

var update = flag.Bool("update", false, "write the golden files")

func init() { time.Local = time.UTC }

// golden compares text with testdata/golden/NAME. With -update it writes the file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	name = strings.NewReplacer(" ", "-", ",", "").Replace(name)
	goldenFile(t, filepath.Join("testdata", "golden", filepath.FromSlash(name)), got)
}

func goldenFile(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s\n got %s\nwant %s", file, got, want)
	}
}

// commandNamed returns the command with these names.
func commandNamed(t *testing.T, names ...string) *cobra.Command {
	t.Helper()
	c, _, err := newRoot().Find(names)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
