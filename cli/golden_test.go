package cli

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

var update = flag.Bool("update", false, "write the golden files")

// compared has the golden files that the tests have compared.
var compared = map[string]bool{}

// TestMain also finds golden files that no test compares, after a run of all tests.
func TestMain(m *testing.M) {
	if os.Getenv(mainInTest) != "" {
		os.Exit(Main())
	}
	time.Local = time.UTC
	code := m.Run()
	if code == 0 && flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.list").Value.String() == "" {
		files, _ := filepath.Glob("testdata/golden/*/*")
		for _, file := range files {
			if !compared[file] {
				fmt.Println("no test compares", file)
				code = 1
			}
		}
	}
	os.Exit(code)
}

// golden compares text with testdata/golden/NAME. With -update it writes the file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	name = strings.NewReplacer(" ", "-", ",", "").Replace(name)
	goldenFile(t, filepath.Join("testdata", "golden", filepath.FromSlash(name)), got)
}

func goldenFile(t *testing.T, file, got string) {
	t.Helper()
	compared[file] = true
	filetest.Golden(t, file, got, *update)
}

// commandNamed returns the command with these names.
func commandNamed(t *testing.T, names ...string) *cobra.Command {
	t.Helper()
	c, _, err := newRoot().Find(names)
	expect.Must(t, err)
	return c
}
