package policy

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// mostValues bounds how many values one file may come to once its aliases are followed, so that a few lines of aliases
// to aliases cannot fill the memory. The largest real policies have some hundreds.
const mostValues = 100_000

// decoder fills Go values from YAML nodes by their json tags, strictly, and collects every problem instead of stopping
// at the first. What stands in a value before is its default. The zero value is ready to use.
type decoder struct {
	problems Problems
	values   int
	open     []*yaml.Node // the aliases that are being followed, outermost first
}

// defaulted is a part of a file that is absent by default, and has defaults as soon as it is there.
type defaulted interface{ setDefaults() }

// place is where a value stands: its path, and the line of its key, which is where a person looks for it.
type place struct {
	path string
	line int
}

func (p place) field(name string, line int) place { return place{join(p.path, name), line} }

func (p place) item(i, line int) place { return place{fmt.Sprintf("%s[%d]", p.path, i), line} }

func (p place) key(name string, line int) place {
	return place{fmt.Sprintf("%s[%s]", p.path, name), line}
}

func (d *decoder) report(at place, wrong, got, right string) {
	d.problems = append(d.problems, Problem{Line: at.line, Field: at.path, Wrong: wrong, Got: got, Right: right})
}

// decode fills v from n. A null is the same as no entry at all, except that it unsets a default.
func (d *decoder) decode(n *yaml.Node, v reflect.Value, at place) {
	if d.tooMany(at) {
		return
	}
	if n.Kind == yaml.AliasNode {
		d.follow(n, at, func(target *yaml.Node) { d.decode(target, v, at) })
		return
	}
	if v.Type() == reflect.TypeFor[*yaml.Node]() {
		v.Set(reflect.ValueOf(n))
		return
	}
	if isNull(n) {
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
			section.setDefaults()
		}
		d.decode(n, to.Elem(), at)
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
func (d *decoder) tooMany(at place) bool {
	if d.values++; d.values == mostValues+1 {
		d.report(at, fmt.Sprintf("the file comes to more than %d values", mostValues), "", "use fewer aliases")
	}
	return d.values > mostValues
}

// follow calls do with what the alias n stands for, unless that contains n itself.
func (d *decoder) follow(n *yaml.Node, at place, do func(*yaml.Node)) {
	if d.tooMany(at) {
		return
	}
	if slices.Contains(d.open, n) {
		d.report(at, "the alias *"+n.Value+" stands inside of what it stands for", "", "")
		return
	}
	d.open = append(d.open, n)
	do(n.Alias)
	d.open = d.open[:len(d.open)-1]
}

// structure fills the fields of a struct. A key that is no field is a problem; so is one in the wrong case.
func (d *decoder) structure(n *yaml.Node, v reflect.Value, at place) {
	if n.Kind != yaml.MappingNode {
		d.wrongType(n, v.Type(), at)
		return
	}
	fields := fieldsOf(v)
	for _, e := range d.entries(n, at) {
		to, known := fields[e.key]
		if !known {
			d.report(at.field(e.key, e.line), "unknown field", "", suggest(e.key, names(fields)))
			continue
		}
		d.decode(e.value, to, at.field(e.key, e.line))
	}
}

// fieldsOf returns the fields of a struct by the name in their json tag, those of embedded structs included.
func fieldsOf(v reflect.Value) map[string]reflect.Value {
	fields := map[string]reflect.Value{}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct:
			for inner, to := range fieldsOf(v.Field(i)) {
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

func (d *decoder) list(n *yaml.Node, v reflect.Value, at place) {
	if n.Kind != yaml.SequenceNode {
		d.wrongType(n, v.Type(), at)
		return
	}
	items := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)) // not nil: an empty list is not the same as none
	for i, item := range n.Content {
		to := at.item(i, item.Line)
		if isNull(item) && items.Index(i).Kind() != reflect.Interface {
			d.wrongType(item, v.Type().Elem(), to)
			continue
		}
		d.decode(item, items.Index(i), to)
	}
	v.Set(items)
}

func (d *decoder) mapping(n *yaml.Node, v reflect.Value, at place) {
	if n.Kind != yaml.MappingNode {
		d.wrongType(n, v.Type(), at)
		return
	}
	values := reflect.MakeMap(v.Type())
	for _, e := range d.entries(n, at) {
		value := reflect.New(v.Type().Elem()).Elem()
		d.decode(e.value, value, at.key(e.key, e.line))
		values.SetMapIndex(reflect.ValueOf(e.key).Convert(v.Type().Key()), value)
	}
	v.Set(values)
}

// entry is one key of a map with its value, and the line of the key.
type entry struct {
	key   string
	line  int
	value *yaml.Node
}

// entries returns the entries of a map in their order, then those that it merges in with << and does not override.
func (d *decoder) entries(n *yaml.Node, at place) []entry {
	var all []entry
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
			d.report(place{at.path, line}, "want a name before the colon", describe(key), "")
		case twice:
			d.report(at.field(key.Value, line), fmt.Sprintf("is given twice, first in line %d", first), "", "keep one")
		default:
			lines[key.Value] = line
			all = append(all, entry{key.Value, line, value})
		}
	}
	for _, m := range merged {
		d.merge(m, at, func(e entry) {
			if _, own := lines[e.key]; !own {
				lines[e.key] = e.line
				all = append(all, e)
			}
		})
	}
	return all
}

// merge calls add with every entry of what stands behind <<: a map, an alias of one, or a list of those.
func (d *decoder) merge(n *yaml.Node, at place, add func(entry)) {
	switch n.Kind {
	case yaml.AliasNode:
		d.follow(n, at, func(target *yaml.Node) { d.merge(target, at, add) })
	case yaml.SequenceNode:
		for _, item := range n.Content {
			d.merge(item, at, add)
		}
	case yaml.MappingNode:
		for _, e := range d.entries(n, at) {
			add(e)
		}
	default:
		d.report(at.field("<<", n.Line), "want a map, or an alias of one", describe(n), "")
	}
}
