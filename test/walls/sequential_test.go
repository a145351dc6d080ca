package walls

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/test/kit/expect"
)

// concurrent returns the parts of a file that start goroutines or synchronize them.
func concurrent(t *testing.T, name string) []string {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
	expect.Must(t, err)
	var found []string
	add := func(n ast.Node, what string) {
		found = append(found, fmt.Sprintf("%s:%d: %s", filepath.Base(name), set.Position(n.Pos()).Line, what))
	}
	for _, imported := range file.Imports {
		if path := strings.Trim(imported.Path.Value, `"`); slices.Contains([]string{"sync", "sync/atomic", "net/http/httptest"}, path) {
			add(imported, "imports "+path)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			add(n, "starts a goroutine")
		case *ast.CallExpr:
			if called, ok := n.Fun.(*ast.SelectorExpr); ok && called.Sel.Name == "Parallel" && len(n.Args) == 0 {
				add(n, "calls Parallel")
			}
		}
		return true
	})
	return found
}

// The rule includes the tests of these packages.
func TestSequentialPackages(t *testing.T) {
	list := exec.CommandContext(t.Context(), "make", "-s", "sequential")
	list.Dir = "../.."
	out, err := list.Output()
	packages := strings.Fields(string(out))
	if err != nil || len(packages) < 15 {
		t.Fatalf("make sequential: %v; it lists %q, want 15 packages or more", err, packages)
	}
	for _, p := range packages {
		files, err := filepath.Glob(filepath.Join("../..", strings.TrimPrefix(p, module+"/"), "*.go"))
		if err != nil || len(files) == 0 {
			t.Errorf("%s: it has %d files, error %v", p, len(files), err)
		}
		for _, file := range files {
			for _, found := range concurrent(t, file) {
				t.Errorf("%s: %s; remove it from the list of make sequential, to test it with the race detector", p, found)
			}
		}
	}
}
