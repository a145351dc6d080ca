package docs

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/test/filetest"
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

// namedTest matches a test that a page names, and a case of it.
var namedTest = regexp.MustCompile("`(Test[A-Za-z0-9]+)(?:/([a-z0-9_]+))?`")

// TestTestsOnOperationsPages finds each of them in the source.
func TestTestsOnOperationsPages(t *testing.T) {
	there := tests(t)
	for _, name := range []string{"docs/operations.md", "docs/scale.md", "docs/security.md"} {
		for _, test := range namedTest.FindAllStringSubmatch(filetest.Read(t, root, name), -1) {
			if !there.has(test[1], test[2]) {
				t.Errorf("%s: there is no %s", name, test[0])
			}
		}
	}
}

// TestReferencesToTests finds the name of a test, or the beginning of names in a pattern, that matches no test: `go test -run`
// passes without any.
func TestReferencesToTests(t *testing.T) {
	there := slices.Sorted(maps.Keys(tests(t)))
	files := []string{"Makefile", "CONTRIBUTING.md"}
	for _, pattern := range []string{"docs/*.md", "docs/decisions/*.md"} {
		pages, err := fs.Glob(os.DirFS(root), pattern)
		if err != nil || len(pages) == 0 {
			t.Fatalf("%s: got %d pages, error %v", pattern, len(pages), err)
		}
		files = append(files, pages...)
	}
	for _, file := range files {
		for _, name := range regexp.MustCompile(`\bTest[A-Z][A-Za-z0-9]+`).FindAllString(filetest.Read(t, root, file), -1) {
			if !slices.ContainsFunc(there, func(test string) bool { return strings.HasPrefix(test, name) }) {
				t.Errorf("%s: no test begins with %s", file, name)
			}
		}
	}
}

// TestSecurityClaims has a test for each credential, and for each paragraph that claims something.
func TestSecurityClaims(t *testing.T) {
	rows, claims := 0, regexp.MustCompile(`(?m)^(\| |- |[A-Z]).*(\n[^|\n-].*)*`).FindAllString(filetest.Read(t, root, "docs/security.md"), -1)
	for _, claim := range claims {
		claimsNothing := slices.ContainsFunc([]string{
			"Rehome may evict any pod", "- A user who can change the policy file", "| credential | ", "| ServiceAccount | reads |", "| key | ",
			"Write to the maintainers",
		}, func(start string) bool { return strings.HasPrefix(claim, start) })
		if !claimsNothing && !namedTest.MatchString(claim) {
			t.Errorf("no test: %s", claim)
		}
		if strings.HasPrefix(claim, "| ") {
			rows++
		}
	}
	if rows < 25 || len(claims) < rows+12 {
		t.Errorf("%d rows and %d claims, want at least 25 and 12 more", rows, len(claims))
	}
}

// testSources are the tests of the repository, with the sources of the packages that have a test of that name.
type testSources map[string][]string

// has reports whether there is a test with a case. Its source has the name of the case, which `go test` prints with underscores.
func (s testSources) has(test, name string) bool {
	return slices.ContainsFunc(s[test], func(source string) bool {
		return name == "" || strings.Contains(source, `"`+name+`"`) || strings.Contains(source, `"`+strings.ReplaceAll(name, "_", " ")+`"`)
	})
}

func tests(t *testing.T) testSources {
	t.Helper()
	names, packages := map[string][]string{}, map[string]string{}
	declared := regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9]+)\(`)
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && len(name) > 1 && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if err != nil || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		packages[path.Dir(name)] += string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range packages {
		for _, m := range declared.FindAllStringSubmatch(source, -1) {
			names[m[1]] = append(names[m[1]], source)
		}
	}
	return names
}
