package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// constant is a constant with a literal value, and its comments: the one above it and the one behind it.
type constant struct {
	name, value     string
	above, trailing string
}

// source has the comments and constants of Go packages. Keys begin with the name of the package, such as schemas.Delta.Kind.
type source struct {
	docs       map[string]string
	files      map[string]string   // declaring files of types
	directives map[string][]string // lines of the comment of a type that begin with //schema:
	enums      map[string][]constant
	constants  map[string]string
}

// readSource parses the Go files of directories, without tests.
func readSource(dirs ...string) (source, error) {
	s := source{map[string]string{}, map[string]string{}, map[string][]string{}, map[string][]constant{}, map[string]string{}}
	for _, dir := range dirs {
		names, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			return s, err
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				return s, err
			}
			s.add(file, filepath.Base(name))
		}
	}
	return s, nil
}

func (s source) add(file *ast.File, name string) {
	for _, d := range file.Decls {
		d, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				doc := spec.Doc
				if doc == nil {
					doc = d.Doc
				}
				s.addType(file.Name.Name+"."+spec.Name.Name, name, doc, spec.Type)
			case *ast.ValueSpec:
				if d.Tok == token.CONST {
					s.addConstants(file.Name.Name, spec)
				}
			}
		}
	}
}

func (s source) addType(key, file string, doc *ast.CommentGroup, typ ast.Expr) {
	s.docs[key], s.files[key] = doc.Text(), file
	if doc != nil {
		for _, line := range doc.List {
			if directive, ok := strings.CutPrefix(line.Text, "//schema:"); ok {
				s.directives[key] = append(s.directives[key], directive)
			}
		}
	}
	structure, ok := typ.(*ast.StructType)
	if !ok {
		return
	}
	previous := "" // also the comment of the next fields that it names
	for _, f := range structure.Fields.List {
		text := f.Doc.Text()
		for _, n := range f.Names {
			if text == "" && regexp.MustCompile(`\b`+n.Name+`\b`).MatchString(previous) {
				text = previous
			}
			s.docs[key+"."+n.Name] = text
		}
		if f.Doc != nil {
			previous = text
		}
	}
}

// addConstants adds name T = "value", name = T("value"), and numbers.
func (s source) addConstants(pkg string, spec *ast.ValueSpec) {
	for i, value := range spec.Values {
		typ, _ := spec.Type.(*ast.Ident)
		literal, ok := value.(*ast.BasicLit)
		if !ok {
			continue
		}
		text := literal.Value
		if literal.Kind == token.STRING {
			text, _ = strconv.Unquote(literal.Value)
		}
		s.constants[pkg+"."+spec.Names[i].Name] = text
		if typ != nil {
			key := pkg + "." + typ.Name
			trailing := strings.TrimSpace(spec.Comment.Text())
			s.enums[key] = append(s.enums[key], constant{spec.Names[i].Name, text, spec.Doc.Text(), trailing})
		}
	}
}

// keyOf returns the key of a named type.
func keyOf(t reflect.Type) string { return filepath.Base(t.PkgPath()) + "." + t.Name() }

var (
	markdownLink = regexp.MustCompile(`\[([^\]]+)\]\([^)]*\)`)
	docLink      = regexp.MustCompile(`\[([A-Za-z0-9_.]+)\]`)
	absent       = regexp.MustCompile(`\b(Zero|nil|Empty|0)( means|:)`)
)

// paragraphs returns the text of a comment by paragraphs, each on one line, up to the first marker of controller-gen.
func paragraphs(doc string) []string {
	var all []string
	for p := range strings.SplitSeq(doc, "\n\n") {
		p = strings.Join(strings.Fields(p), " ")
		if strings.HasPrefix(p, "+") {
			break
		}
		if p != "" {
			all = append(all, p)
		}
	}
	return all
}

// plain returns the first paragraph of a comment for readers of JSON: a link to a constant is its value, and a missing value is
// absent.
func (s source) plain(pkg, doc string) string {
	all := paragraphs(doc)
	if len(all) == 0 {
		return ""
	}
	text := markdownLink.ReplaceAllString(all[0], "$1")
	text = docLink.ReplaceAllStringFunc(text, func(link string) string {
		name := strings.Trim(link, "[]")
		if value, ok := s.constants[pkg+"."+name]; ok {
			return value
		}
		if value, ok := s.constants[name]; ok {
			return value
		}
		return name[strings.LastIndex(name, ".")+1:]
	})
	text = absent.ReplaceAllString(text, "Absent$2")
	return strings.ReplaceAll(strings.ReplaceAll(text, "It is nil", "It is absent"), " is nil", " is absent")
}

// describe returns the comment of a field of a struct. It names fields as JSON does.
func (s source) describe(structure reflect.Type, f reflect.StructField) string {
	pkg, _, _ := strings.Cut(keyOf(structure), ".")
	text := s.plain(pkg, s.docs[keyOf(structure)+"."+f.Name])
	for other := range structure.Fields() {
		if name := jsonName(other); name != "" {
			text = regexp.MustCompile(`\b`+other.Name+`\b`).ReplaceAllString(text, name)
		}
	}
	return text
}

// values describes the values of an enum.
func (s source) values(pkg string, all []constant) string {
	var b strings.Builder
	for _, c := range all {
		text := c.trailing
		if c.above != "" {
			text = c.above
		} else if _, rest, grouped := strings.Cut(text, ": "); grouped && groupOf(c) != "" {
			text = rest
		}
		fmt.Fprintf(&b, " %s: %s.", c.value, strings.TrimSuffix(s.plain(pkg, text), "."))
	}
	return strings.TrimSpace(b.String())
}

// groupOf returns the first word of the comment behind a constant.
func groupOf(c constant) string {
	word, _, _ := strings.Cut(c.trailing, ":")
	return word
}

// jsonName returns the name of a field in JSON, or "" if it has none.
func jsonName(f reflect.StructField) string {
	tag := f.Tag.Get("json")
	if tag == "" {
		tag = f.Tag.Get("cloudevent")
	}
	name, _, _ := strings.Cut(tag, ",")
	if name == "-" || !f.IsExported() {
		return ""
	}
	return name
}

// optional returns whether a field is left out when it is empty.
func optional(f reflect.StructField) bool {
	tag := f.Tag.Get("json") + f.Tag.Get("cloudevent")
	return strings.Contains(tag, ",omitempty") || strings.Contains(tag, ",omitzero")
}
