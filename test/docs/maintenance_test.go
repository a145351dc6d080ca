package docs

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/test/filetest"
)

var (
	wishRow = regexp.MustCompile(`(?m)^\| (NM-\d+) \| (.+?) \| (.+?) \| (.*?) \|$`)
	proof   = regexp.MustCompile("`([a-z0-9/]+)\\.((?:Test|Fuzz)\\w+)`((?:,? “[^”]+”)*)")
	quoted  = regexp.MustCompile(`“([^”]+)”`)
)

// TestMaintenanceRequestTable: each of the 28 is there once, in order, and is shown by tests that exist, or the
// page says that it is not built.
func TestMaintenanceRequestTable(t *testing.T) {
	var got, want []string
	for i := range 28 {
		want = append(want, fmt.Sprintf("NM-%d", i+1))
	}
	for _, row := range wishRow.FindAllStringSubmatch(filetest.Read(t, root, "docs/kep-4212.md"), -1) {
		got = append(got, row[1])
		proofs := proof.FindAllStringSubmatch(row[4], -1)
		if len(proofs) == 0 && !strings.Contains(row[3], "Not built") {
			t.Errorf("%s: neither a test shows it, nor does the page say that it is not built", row[1])
		}
		if rest := strings.Trim(proof.ReplaceAllString(row[4], ""), ", "); rest != "" {
			t.Errorf("%s: %q is no test", row[1], rest)
		}
		for _, p := range proofs {
			body := testBody(t, p[1], p[2])
			if body == "" {
				t.Errorf("%s: package %s has no test %s", row[1], p[1], p[2])
			}
			for _, name := range quoted.FindAllStringSubmatch(p[3], -1) {
				if body != "" && !strings.Contains(body, `"`+name[1]+`"`) {
					t.Errorf("%s: test %s has no case %q", row[1], p[2], name[1])
				}
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("rows: got %q, want %q", got, want)
	}
}

// testBody is the source of a test of a package, with its table. Empty: there is none.
func testBody(t *testing.T, folder, name string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text := filetest.Read(t, file)
		if _, body, found := strings.Cut(text, "\nfunc "+name+"("); found {
			body, _, _ = strings.Cut(body, "\n}\n")
			return body
		}
	}
	return ""
}
