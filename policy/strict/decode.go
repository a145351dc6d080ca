// Package strict reads a YAML or JSON document into Go values, and says of each mistake in which line and field it stands.
//
//	decode.go   Decoder.Decode: maps, lists, structs by their json tags; aliases and merges
//	scalar.go   text, numbers, booleans, durations, percentages
//	syntax.go   Decoder.Syntax: a file that is no YAML and no JSON
//	lines.go    LineOf: the line of a field
//	findings.go FieldError, Findings: what a Validate method finds
//	problem.go  Problem: a mistake in words, with file, line and field
//	bounds.go   checks that several sections share
//	schema.go   Schema: a JSON Schema whose errors are FieldErrors
//	suggest.go  Suggest: the name that was probably meant
//
// The package knows nothing about policies. Nothing in it may be used by several goroutines at once, except [Schema].
package strict

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// mostValues bounds how many values one file may come to once its aliases are followed, so that a few lines of aliases
// to aliases cannot fill the memory. The largest real policies have some hundreds.
const mostValues = 100_000

// Decoder fills Go values from YAML nodes by their json tags, strictly, and collects every problem instead of stopping
// at the first. What stands in a value before is its default. The zero value is ready to use.
type Decoder struct {
	Problems Problems
	values   int
	open     []*yaml.Node // the aliases that are being followed, outermost first
}

// defaulted is a part of a file that is absent by default, and has defaults as soon as it is there.
type defaulted interface{ SetDefaults() }

// Place is where a value stands: its path, and the line of its key, which is where a person looks for it.
type Place struct {
	Path string
	Line int
}

func (p Place) Field(name string, line int) Place { return Place{Join(p.Path, name), line} }

func (p Place) Item(i, line int) Place { return Place{fmt.Sprintf("%s[%d]", p.Path, i), line} }

func (p Place) Key(name string, line int) Place {
	return Place{fmt.Sprintf("%s[%s]", p.Path, name), line}
}

// Report notes a problem.
func (d *Decoder) Report(at Place, wrong, got, right string) {
	d.Problems = append(d.Problems, Problem{Line: at.Line, Field: at.Path, Wrong: wrong, Got: got, Right: right})
}

// Decode fills v from n. A null is the same as no entry at all, except that it unsets a default.
func (d *Decoder) Decode(n *yaml.Node, v reflect.Value, at Place) {
	if d.tooMany(at) {
		return
	}
	if n.Kind == yaml.AliasNode {
		d.follow(n, at, func(target *yaml.Node) { d.Decode(target, v, at) })
		return
	}
	if v.Type() == reflect.TypeFor[*yaml.Node]() {
		v.Set(reflect.ValueOf(n))
		return
	}
	if IsNull(n) {
		switch v.Kind() {
		case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Interface:
			v.SetZero()
		}
		return
	}
	if d.special(n, v, at) {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		to := reflect.New(v.Type().Elem())
		if !v.IsNil() {
			to.Elem().Set(v.Elem()) // keep the defaults, leave the value that they came in alone
		} else if section, ok := reflect.TypeAssert[defaulted](to); ok {
			section.SetDefaults()
		}
		d.Decode(n, to.Elem(), at)
		v.Set(to)
	case reflect.Struct:
		d.structure(n, v, at)
	case reflect.Slice:
		d.list(n, v, at)
	case reflect.Map:
		d.mapping(n, v, at)
	default:
		d.scalar(n, v, at)
	}
}

// tooMany counts a value, and says whether that was one more than a file may have. It reports so once.
func (d *Decoder) tooMany(at Place) bool {
	if d.values++; d.values == mostValues+1 {
		d.Report(at, fmt.Sprintf("the file comes to more than %d values", mostValues), "", "use fewer aliases")
	}
	return d.values > mostValues
}

// follow calls do with what the alias n stands for, unless that contains n itself.
func (d *Decoder) follow(n *yaml.Node, at Place, do func(*yaml.Node)) {
	if d.tooMany(at) {
		return
	}
	if slices.Contains(d.open, n) {
		d.Report(at, "the alias *"+n.Value+" stands inside of what it stands for", "", "")
		return
	}
	d.open = append(d.open, n)
	do(n.Alias)
	d.open = d.open[:len(d.open)-1]
}

// structure fills the fields of a struct. A key that is no field is a problem; so is one in the wrong case.
func (d *Decoder) structure(n *yaml.Node, v reflect.Value, at Place) {
	if n.Kind != yaml.MappingNode {
		d.WrongType(n, v.Type(), at)
		return
	}
	fields := FieldsOf(v)
	for _, e := range d.Entries(n, at) {
		to, known := fields[e.Key]
		if !known {
			d.Report(at.Field(e.Key, e.Line), "unknown field", "", Suggest(e.Key, Names(fields)))
			continue
		}
		d.Decode(e.Value, to, at.Field(e.Key, e.Line))
	}
}

// FieldsOf returns the fields of a struct by the name in their json tag, those of embedded structs included.
func FieldsOf(v reflect.Value) map[string]reflect.Value {
	fields := map[string]reflect.Value{}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct:
			for inner, to := range FieldsOf(v.Field(i)) {
				if _, outer := fields[inner]; !outer {
					fields[inner] = to
				}
			}
		case !f.IsExported():
		case name == "":
			fields[f.Name] = v.Field(i)
		default:
			fields[name] = v.Field(i)
		}
	}
	return fields
}

func (d *Decoder) list(n *yaml.Node, v reflect.Value, at Place) {
	if n.Kind != yaml.SequenceNode {
		d.WrongType(n, v.Type(), at)
		return
	}
	items := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)) // not nil: an empty list is not the same as none
	for i, item := range n.Content {
		to := at.Item(i, item.Line)
		if IsNull(item) && items.Index(i).Kind() != reflect.Interface {
			d.WrongType(item, v.Type().Elem(), to)
			continue
		}
		d.Decode(item, items.Index(i), to)
	}
	v.Set(items)
}

func (d *Decoder) mapping(n *yaml.Node, v reflect.Value, at Place) {
	if n.Kind != yaml.MappingNode {
		d.WrongType(n, v.Type(), at)
		return
	}
	values := reflect.MakeMap(v.Type())
	for _, e := range d.Entries(n, at) {
		value := reflect.New(v.Type().Elem()).Elem()
		d.Decode(e.Value, value, at.Key(e.Key, e.Line))
		values.SetMapIndex(reflect.ValueOf(e.Key).Convert(v.Type().Key()), value)
	}
	v.Set(values)
}

// Entry is one key of a map with its value, and the line of the key.
type Entry struct {
	Key   string
	Line  int
	Value *yaml.Node
}

// Entries returns the entries of a map in their order, then those that it merges in with << and does not override.
func (d *Decoder) Entries(n *yaml.Node, at Place) []Entry {
	var all []Entry
	var merged []*yaml.Node
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		for key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		line := n.Content[i].Line
		first, twice := lines[key.Value]
		switch {
		case key.ShortTag() == "!!merge":
			merged = append(merged, value)
		case key.Kind != yaml.ScalarNode:
			d.Report(Place{at.Path, line}, "want a name before the colon", Describe(key), "")
		case twice:
			d.Report(at.Field(key.Value, line), fmt.Sprintf("is given twice, first in line %d", first), "", "keep one")
		default:
			lines[key.Value] = line
			all = append(all, Entry{key.Value, line, value})
		}
	}
	for _, m := range merged {
		d.merge(m, at, func(e Entry) {
			if _, own := lines[e.Key]; !own {
				lines[e.Key] = e.Line
				all = append(all, e)
			}
		})
	}
	return all
}

// merge calls add with every entry of what stands behind <<: a map, an alias of one, or a list of those.
func (d *Decoder) merge(n *yaml.Node, at Place, add func(Entry)) {
	switch n.Kind {
	case yaml.AliasNode:
		d.follow(n, at, func(target *yaml.Node) { d.merge(target, at, add) })
	case yaml.SequenceNode:
		for _, item := range n.Content {
			d.merge(item, at, add)
		}
	case yaml.MappingNode:
		for _, e := range d.Entries(n, at) {
			add(e)
		}
	default:
		d.Report(at.Field("<<", n.Line), "want a map, or an alias of one", Describe(n), "")
	}
}

// Object returns the fields of a JSON object, and none of anything else.
func Object(data []byte) map[string]json.RawMessage {
	fields := map[string]json.RawMessage{}
	_ = json.Unmarshal(data, &fields) // no object: no fields
	return fields
}
