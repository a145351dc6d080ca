package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// TestSettingsOnOperationsPages holds the pages against `rehome settings`, and has the page about operations name
// every setting that says how something is served.
func TestSettingsOnOperationsPages(t *testing.T) {
	s := newShell(t)
	var known []string
	for line := range strings.Lines(s.run("rehome settings")) {
		known = append(known, strings.Fields(line)[0])
	}
	variable := regexp.MustCompile(`REHOME_[A-Z0-9_]*[A-Z0-9]`)
	named := map[string]bool{}
	for _, name := range []string{"docs/operations.md", "docs/scale.md"} {
		for _, v := range variable.FindAllString(filetest.Read(t, root, name), -1) {
			named[v] = true
			if !slices.Contains(known, v) {
				t.Errorf("%s: there is no setting %s", name, v)
			}
		}
	}
	for _, v := range known {
		if (strings.HasPrefix(v, "REHOME_HTTP") || v == "REHOME_PROFILES" || v == "REHOME_API_TLS") && !named[v] {
			t.Errorf("no page says what %s is", v)
		}
	}
}

// TestReferencesToTests finds names of tests that do not exist: `go test -run` passes without any. A pattern may have the beginning
// of a name.
func TestReferencesToTests(t *testing.T) {
	source := testSource(t)
	files := []string{"Makefile", "CONTRIBUTING.md"}
	for _, pattern := range []string{"docs/*.md", "docs/decisions/*.md"} {
		pages, err := fs.Glob(os.DirFS(root), pattern)
		if err != nil || len(pages) == 0 {
			t.Fatalf("%s: got %d pages, error %v", pattern, len(pages), err)
		}
		files = append(files, pages...)
	}
	reference := regexp.MustCompile("\\b(Test[A-Z][A-Za-z0-9]+)(?:/([a-z0-9_]+))?(`?)")
	for _, file := range files {
		for _, m := range reference.FindAllStringSubmatch(filetest.Read(t, root, file), -1) {
			declaration := "\nfunc " + m[1]
			if m[2]+m[3] != "" {
				declaration += "("
			}
			subtest := strings.Contains(source, `"`+m[2]+`"`) || strings.Contains(source, `"`+strings.ReplaceAll(m[2], "_", " ")+`"`)
			if !strings.Contains(source, declaration) || m[2] != "" && !subtest {
				t.Errorf("%s: there is no test %s", file, m[0])
			}
		}
	}
}

// testSource returns the source of all tests of the repository.
func testSource(t *testing.T) string {
	t.Helper()
	var source strings.Builder
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && len(name) > 1 && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if err != nil || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		source.Write(text)
		return err
	})
	expect.Must(t, err)
	return source.String()
}

// TestSecurityClaims finds credentials and keys without a test.
func TestSecurityClaims(t *testing.T) {
	rows := regexp.MustCompile(`(?m)^\| .*`).FindAllString(filetest.Read(t, root, "docs/security.md"), -1)
	if len(rows) < 27 {
		t.Errorf("got %d rows with the headers, want at least 27", len(rows))
	}
	for _, row := range rows {
		if !strings.Contains(row, "`Test") && !strings.HasSuffix(row, "| test |") {
			t.Errorf("no test: %s", row)
		}
	}
}
