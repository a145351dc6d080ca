package walls

import (
	"fmt"
	"go/ast"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/tools/go/packages"
)

// writing are prefixes of client-go methods that change the cluster.
var writing = []string{"Create", "Update", "Patch", "Delete", "Apply", "Evict", "Bind", "Post", "Put", "Verb"}

// writes returns the calls of client-go methods in p that change the cluster.
func writes(p *packages.Package) []string {
	var found []string
	for _, file := range p.Syntax {
		ast.Inspect(file, func(n ast.Node) bool {
			selector, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			method, ok := p.TypesInfo.Uses[selector.Sel].(*types.Func)
			if ok && isClient(method) && isWriting(method.Name()) {
				at := p.Fset.Position(selector.Sel.Pos())
				found = append(found, fmt.Sprintf("%s:%d calls %s", filepath.Base(at.Filename), at.Line, method.FullName()))
			}
			return true
		})
	}
	return found
}

func isWriting(name string) bool {
	return slices.ContainsFunc(writing, func(w string) bool { return strings.HasPrefix(name, w) })
}

// reviewing are API groups whose objects are only reviews: creating one stores nothing.
var reviewing = []string{"typed/authentication/", "typed/authorization/"}

// isClient reports whether a method belongs to a typed, dynamic, metadata, scale, or REST client of client-go that can change the
// cluster.
func isClient(method *types.Func) bool {
	if method.Pkg() == nil || method.Signature().Recv() == nil {
		return false
	}
	path, isClientGo := strings.CutPrefix(method.Pkg().Path(), "k8s.io/client-go/")
	first, rest, _ := strings.Cut(path, "/")
	if first == "kubernetes" && slices.ContainsFunc(reviewing, func(group string) bool { return strings.HasPrefix(rest, group) }) {
		return false
	}
	return isClientGo && (slices.Contains([]string{"dynamic", "metadata", "rest", "scale", "gentype"}, first) ||
		first == "kubernetes" && strings.HasPrefix(rest, "typed/"))
}

// loadTyped loads the packages of this module with their types, once.
var loadTyped = sync.OnceValues(func() ([]*packages.Package, error) {
	return packages.Load(&packages.Config{Mode: packages.LoadSyntax}, module+"/...")
})

// typed returns the packages of this module with their types.
func typed(t *testing.T) []*packages.Package {
	t.Helper()
	loaded, err := loadTyped()
	if err != nil || len(loaded) == 0 {
		t.Fatalf("load %s/...: %d packages, error %v", module, len(loaded), err)
	}
	for _, p := range loaded {
		for _, err := range p.Errors {
			t.Fatal(err)
		}
	}
	return loaded
}

func TestClusterWriters(t *testing.T) {
	for _, p := range typed(t) {
		if withinAny(p.PkgPath, writers) {
			continue
		}
		for _, call := range writes(p) {
			t.Errorf("%s: %s: only the actuator changes the cluster", p.PkgPath, call)
		}
	}
}
