package walls

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/test/expect"
)

// TestCompleteConstantLists finds functions such as DeltaKinds() []DeltaKind, which return a list of the constants of a type,
// and compares each list with the constants in the source of its package.
func TestCompleteConstantLists(t *testing.T) {
	constants, lists := map[string][]string{}, 0 // by package and type
	var functions []*ast.FuncDecl
	var packages []string // of the functions
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() && (entry.Name() == "test" || strings.HasPrefix(entry.Name(), ".") && path != root) {
			return skipped(err)
		}
		if entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				functions, packages = append(functions, d), append(packages, filepath.Dir(path))
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					v, isValue := spec.(*ast.ValueSpec)
					if !isValue || d.Tok != token.CONST {
						continue
					}
					if typ, isNamed := v.Type.(*ast.Ident); isNamed {
						for _, name := range v.Names {
							key := filepath.Dir(path) + "." + typ.Name
							constants[key] = append(constants[key], name.Name)
						}
					}
				}
			}
		}
		return nil
	})
	expect.Must(t, err)
	for i, f := range functions {
		typ, listed := listOf(f)
		want := constants[packages[i]+"."+typ]
		plural := f.Name.Name == typ+"s" || f.Name.Name == strings.TrimSuffix(typ, "y")+"ies" // not PlacementKinds, which are some
		if !plural || len(listed) == 0 || len(want) == 0 {
			continue
		}
		lists++
		for _, name := range want {
			if !slices.Contains(listed, name) {
				t.Errorf("%s: %s returns no %s, a constant of type %s", packages[i], f.Name.Name, name, typ)
			}
		}
	}
	if lists < 5 {
		t.Errorf("found %d lists, want at least 5, such as schemas.Outcomes", lists)
	}
}

func skipped(err error) error {
	if err != nil {
		return err
	}
	return fs.SkipDir
}

// listOf returns the type and the constants of a function without parameters that only returns a list of constants.
func listOf(f *ast.FuncDecl) (typ string, names []string) {
	if f.Recv != nil || f.Body == nil || len(f.Body.List) != 1 || f.Type.Params.NumFields() > 0 || f.Type.Results.NumFields() != 1 {
		return "", nil
	}
	result, isReturn := f.Body.List[0].(*ast.ReturnStmt)
	list, isList := f.Type.Results.List[0].Type.(*ast.ArrayType)
	if !isReturn || !isList {
		return "", nil
	}
	element, isNamed := list.Elt.(*ast.Ident)
	literal, isLiteral := result.Results[0].(*ast.CompositeLit)
	if !isNamed || !isLiteral {
		return "", nil
	}
	for _, e := range literal.Elts {
		if name, is := e.(*ast.Ident); is {
			names = append(names, name.Name)
		}
	}
	return element.Name, names
}
