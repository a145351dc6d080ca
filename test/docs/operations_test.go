package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
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
		for _, v := range variable.FindAllString(page(t, name), -1) {
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

var namedTest = regexp.MustCompile("`(Test[A-Za-z0-9]+)`")

// TestTestsOnOperationsPages finds each of them in the source.
func TestTestsOnOperationsPages(t *testing.T) {
	there := testNames(t)
	for _, name := range []string{"docs/operations.md", "docs/scale.md", "docs/security.md"} {
		for _, test := range namedTest.FindAllStringSubmatch(page(t, name), -1) {
			if !there[test[1]] {
				t.Errorf("%s: there is no %s", name, test[1])
			}
		}
	}
}

// TestSecurityClaims has a test for each credential.
func TestSecurityClaims(t *testing.T) {
	text := page(t, "docs/security.md")
	claims := regexp.MustCompile(`(?m)^\| .*$`).FindAllString(text, -1)
	for _, claim := range claims {
		isHead := strings.HasPrefix(claim, "| credential") || strings.HasPrefix(claim, "| key")
		if !isHead && !namedTest.MatchString(claim) {
			t.Errorf("no test: %s", claim)
		}
	}
	if len(claims) < 18 {
		t.Errorf("%d rows, want at least 18", len(claims))
	}
}

// testNames are the names of all tests of the repository.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9]+)\(`)
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && len(name) > 1 && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if err != nil || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
			names[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
