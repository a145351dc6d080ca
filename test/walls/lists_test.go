package walls

import (
	"go/ast"
	"go/types"
	"strings"
	"testing"
)

// TestCompleteConstantLists finds functions such as DeltaKinds() []DeltaKind, which return a list of the constants of a type,
// and checks that each list has all constants of its type.
func TestCompleteConstantLists(t *testing.T) {
	lists := 0
	for _, p := range typed(t) {
		if withinAny(p.PkgPath, []string{"test/..."}) {
			continue
		}
		for _, file := range p.Syntax {
			for _, d := range file.Decls {
				f, isFunction := d.(*ast.FuncDecl)
				if !isFunction || f.Recv != nil || f.Body == nil || f.Type.Params.NumFields() > 0 || f.Type.Results.NumFields() != 1 {
					continue
				}
				list, _ := p.TypesInfo.TypeOf(f.Type.Results.List[0].Type).(*types.Slice)
				if list == nil {
					continue
				}
				element, isNamed := list.Elem().(*types.Named)
				if !isNamed || !isPlural(f.Name.Name, element.Obj().Name()) {
					continue
				}
				used, missing := map[types.Object]bool{}, []string(nil)
				ast.Inspect(f.Body, func(n ast.Node) bool {
					if name, is := n.(*ast.Ident); is {
						used[p.TypesInfo.Uses[name]] = true
					}
					return true
				})
				constants := 0
				for _, name := range p.Types.Scope().Names() {
					if c, is := p.Types.Scope().Lookup(name).(*types.Const); is && c.Type() == list.Elem() {
						if constants++; !used[c] {
							missing = append(missing, name)
						}
					}
				}
				if constants == len(missing) {
					continue
				}
				lists++
				if len(missing) > 0 {
					t.Errorf("%s: %s does not return %s", p.PkgPath, f.Name.Name, strings.Join(missing, ", "))
				}
			}
		}
	}
	if lists < 5 {
		t.Errorf("found %d lists, want at least 5, such as schemas.Outcomes", lists)
	}
}

// isPlural accepts DeltaKinds for DeltaKind, but not PlacementKinds, which are some of them.
func isPlural(name, singular string) bool {
	return name == singular+"s" || name == strings.TrimSuffix(singular, "y")+"ies"
}
