// Package walls tests the imports between packages. rules_test.go has the rules and their reasons.
package walls

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// graph has the direct imports of all packages by import path, including other modules.
type graph map[string][]string

// own returns the packages of this module, sorted.
func (g graph) own() []string {
	var own []string
	for path := range g {
		if path == module || strings.HasPrefix(path, module+"/") {
			own = append(own, path)
		}
	}
	return slices.Sorted(slices.Values(own))
}

// within reports whether pattern matches path. A pattern whose first element has no dot is relative to this module, unless it is
// in the standard library.
func within(path, pattern string) bool {
	if pattern == "..." {
		return path == module || strings.HasPrefix(path, module+"/")
	}
	if pattern == "testing" || strings.Contains(strings.SplitN(pattern, "/", 2)[0], ".") {
		return path == pattern || strings.HasPrefix(path, pattern+"/")
	}
	if below, ok := strings.CutSuffix(pattern, "/..."); ok {
		return path == module+"/"+below || strings.HasPrefix(path, module+"/"+below+"/")
	}
	return path == module+"/"+pattern
}

func withinAny(path string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return within(path, p) })
}

// way returns a shortest chain of imports from a package to a match of the patterns, or nil. direct limits it to direct imports.
func (g graph) way(from string, patterns []string, direct bool) []string {
	before := map[string]string{from: ""}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if at != from && withinAny(at, patterns) {
			return chain(before, at)
		}
		if direct && at != from {
			continue
		}
		for _, next := range slices.Sorted(slices.Values(g[at])) {
			if _, seen := before[next]; !seen {
				before[next] = at
				queue = append(queue, next)
			}
		}
	}
	return nil
}

func chain(before map[string]string, to string) []string {
	var reversed []string
	for at := to; at != ""; at = before[at] {
		reversed = append(reversed, at)
	}
	slices.Reverse(reversed)
	return reversed
}

// broken returns a sentence for each violation.
func (g graph) broken() []string {
	var found []string
	for _, path := range g.own() {
		for _, r := range rules {
			if !withinAny(path, r.packages) || withinAny(path, r.except) {
				continue
			}
			if way := g.way(path, r.never, r.direct); way != nil {
				found = append(found, fmt.Sprintf("%s: %s", strings.Join(way, " → "), r.because))
			}
		}
		found = append(found, g.beyondAllowance(path)...)
		found = append(found, g.knowsTwoRoles(path)...)
	}
	return append(found, g.missing()...)
}

func (g graph) beyondAllowance(path string) []string {
	var found []string
	for _, a := range onlyFrom {
		if !within(path, a.path) {
			continue
		}
		for _, imported := range g[path] {
			first, _, _ := strings.Cut(imported, "/")
			if standard := !strings.Contains(first, "."); !standard && !withinAny(imported, a.may) {
				found = append(found, fmt.Sprintf("%s → %s: %s", path, imported, a.because))
			}
		}
	}
	return found
}

// knowsTwoRoles reports a package that imports two roles. The packages of one role may import each other.
func (g graph) knowsTwoRoles(path string) []string {
	if withinAny(path, wiring) {
		return nil
	}
	known := map[string]bool{}
	for _, at := range append([]string{path}, g[path]...) {
		for _, role := range roles {
			if within(at, role) {
				known[strings.TrimSuffix(role, "/...")] = true
			}
		}
	}
	if len(known) < 2 {
		return nil
	}
	names := strings.Join(slices.Sorted(maps.Keys(known)), " and ")
	return []string{fmt.Sprintf("%s imports %s: only app may import several roles", path, names)}
}

// missing returns packages of rules that do not exist.
func (g graph) missing() []string {
	var found []string
	for _, pattern := range named() {
		exists := slices.ContainsFunc(g.own(), func(path string) bool { return within(path, pattern) })
		if !exists {
			found = append(found, fmt.Sprintf("%s: a rule names this package, but it does not exist", pattern))
		}
	}
	return found
}

// named returns the packages of this module in the rules.
func named() []string {
	all := slices.Concat(roles, wiring)
	for _, r := range rules {
		all = slices.Concat(all, r.packages, r.except, r.never)
	}
	for _, a := range onlyFrom {
		all = append(append(all, a.path), a.may...)
	}
	all = slices.DeleteFunc(all, func(pattern string) bool {
		return !within(module+"/"+strings.TrimSuffix(pattern, "/..."), pattern)
	})
	return slices.Compact(slices.Sorted(slices.Values(all)))
}

func TestImports(t *testing.T) {
	g := graph{}
	for p := range load(t, packages.NeedName|packages.NeedImports|packages.NeedDeps) {
		for path := range p.Imports {
			g[p.PkgPath] = append(g[p.PkgPath], path)
		}
		if _, known := g[p.PkgPath]; !known {
			g[p.PkgPath] = nil
		}
	}
	for _, sentence := range g.broken() {
		t.Error(sentence)
	}
}

// load yields every package of this module and its direct imports.
func load(t *testing.T, mode packages.LoadMode) func(func(*packages.Package) bool) {
	t.Helper()
	loaded, err := packages.Load(&packages.Config{Mode: mode}, module+"/...")
	if err != nil || len(loaded) == 0 {
		t.Fatalf("load %s/...: %d packages, error %v", module, len(loaded), err)
	}
	return func(yield func(*packages.Package) bool) {
		packages.Visit(loaded, yield, nil)
	}
}
