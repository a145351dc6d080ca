// Package strict reads a YAML or JSON document into tagged Go structs, reports each error with its line and field, and
// writes the structs back.
//
//	problem.go   FieldError, Findings, Problem: an error, with file, line, and field
//	document.go  Decoder.Document: one map without aliases; LineOf: the line of a field
//	decode.go    Decoder.Decode: fills maps, lists, and structs; calls their Validate methods
//	scalar.go    text, numbers, booleans, durations, percentages
//	bounds.go    the tags required, enum, min, max, and above
//	encode.go    Encode: omits default values
//	schema.go    Schema: a JSON Schema whose errors are FieldErrors
//	suggest.go   Suggest: the known name that is nearest to a misspelled one
//
// A type may have three methods. SetDefaults sets the defaults of a section that is absent by default, as soon as the
// file has it. Complete is called on the read value, and Validate then checks everything that tags cannot; its errors
// are [FieldError]. The package knows nothing about policies.
package strict

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Decoder strictly fills Go values from YAML nodes by their JSON tags, and collects every problem instead of stopping
// at the first. The previous value is the default. The zero value is ready to use.
type Decoder struct {
	// Unreadable are values of another type than the field. Invalid are values that were read and are wrong.
	Unreadable, Invalid Problems

	values  int
	aliases []*yaml.Node // the aliases that expand is following, outermost first
}

// Place is the place of a value: its path, and the line of its key.
type Place struct {
	Path string
	Line int
}

// Field returns the place of a field of a struct.
func (p Place) Field(name string, line int) Place { return Place{Join(p.Path, name), line} }

// Item returns the place of an item of a list.
func (p Place) Item(i, line int) Place { return Place{p.Path + Item(i), line} }

// Report records that a value cannot be read.
func (d *Decoder) Report(at Place, wrong, got, right string) {
	d.Unreadable = append(d.Unreadable, Problem{Line: at.Line, Field: at.Path, Wrong: wrong, Got: got, Right: right})
}

// Check records the errors of a Validate method about the value that n was read into. It omits consequences of an
// unreadable value, which would mislead users.
func (d *Decoder) Check(n *yaml.Node, at Place, err error) {
	for _, e := range FieldErrors(err) {
		p := e.Problem()
		p.Field, p.Line = Join(at.Path, e.Field), LineOf(n, e.Field, at.Line)
		if !d.Unread(p.Field) {
			d.Invalid = append(d.Invalid, p)
		}
	}
}

// Unread reports whether the field, a field in it, or a field around it could not be read.
func (d *Decoder) Unread(field string) bool {
	within := func(inner, outer string) bool {
		rest, ok := strings.CutPrefix(inner, outer)
		return ok && (outer == "" || rest == "" || rest[0] == '.' || rest[0] == '[')
	}
	for _, p := range d.Unreadable {
		if within(p.Field, field) || within(field, p.Field) {
			return true
		}
	}
	return false
}

// Decode fills v from n. A null means no entry at all, except that it unsets a default.
func (d *Decoder) Decode(n *yaml.Node, v reflect.Value, at Place) {
	switch {
	case v.Type() == reflect.TypeFor[*yaml.Node]():
		v.Set(reflect.ValueOf(n))
		return
	case IsNull(n):
		switch v.Kind() {
		case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Interface:
			v.SetZero()
		}
		return
	}
	if !d.special(n, v, at) {
		switch v.Kind() {
		case reflect.Pointer:
			to := reflect.New(v.Type().Elem())
			if !v.IsNil() {
				to.Elem().Set(v.Elem()) // keep the defaults, and do not change the original value
			}
			d.Decode(n, to.Elem(), at)
			v.Set(to)
			return
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
	if value, ok := reflect.TypeAssert[interface{ Complete() }](v.Addr()); ok {
		value.Complete()
	}
	if value, ok := reflect.TypeAssert[interface{ Validate() error }](v.Addr()); ok {
		d.Check(n, at, value.Validate())
	}
}

// structure fills the fields of a struct. An unknown key is a problem; so is a key in the wrong case.
func (d *Decoder) structure(n *yaml.Node, v reflect.Value, at Place) {
	if n.Kind != yaml.MappingNode {
		d.WrongType(n, v.Type(), at)
		return
	}
	setDefaults(v)
	fields := FieldsOf(v)
	for _, e := range Entries(n) {
		f, known := fields[e.Key]
		if !known {
			right := Suggest(e.Key, Names(fields))
			for name, f := range fields {
				if f.tag.Get("old") == e.Key {
					right = "its name is " + name
				}
			}
			d.Report(at.Field(e.Key, e.Line), "unknown field", "", right)
			continue
		}
		before := len(d.Unreadable)
		d.Decode(e.Value, f.Value, at.Field(e.Key, e.Line))
		if len(d.Unreadable) == before && !IsNull(e.Value) {
			d.Check(e.Value, at.Field(e.Key, e.Line), f.bounds(f.Value))
		}
	}
	for _, name := range Names(fields) {
		if f := fields[name]; f.tag.Get("required") != "" && f.Value.IsZero() {
			d.Check(n, at, &FieldError{Field: name, Reason: "is missing", Right: f.missing()})
		}
	}
}

// setDefaults fills in the defaults of a section that is absent by default.
func setDefaults(v reflect.Value) {
	if section, ok := reflect.TypeAssert[interface{ SetDefaults() }](v.Addr()); ok && v.IsZero() {
		section.SetDefaults()
	}
}

// Field is a field of a struct. Enum are its valid words; nil means any.
type Field struct {
	Value reflect.Value
	Enum  []string
	tag   reflect.StructTag
}

// FieldsOf returns the fields of a struct and of its embedded structs by the name in their json tag.
func FieldsOf(v reflect.Value) map[string]Field {
	fields := map[string]Field{}
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
		case f.IsExported():
			name = cmp.Or(name, f.Name)
			fields[name] = Field{v.Field(i), Enum(v.Type(), f, name), f.Tag}
		}
	}
	return fields
}

// Enum returns the valid words of a field of a struct. nil means any.
func Enum(owner reflect.Type, f reflect.StructField, name string) []string {
	words, limited := f.Tag.Lookup("enum")
	if !limited {
		return nil
	}
	if section, ok := reflect.TypeAssert[interface{ Enums() map[string][]string }](reflect.Zero(owner)); ok && words == "*" {
		return section.Enums()[name]
	}
	return strings.Split(words, ",")
}

func (d *Decoder) list(n *yaml.Node, v reflect.Value, at Place) {
	if n.Kind != yaml.SequenceNode {
		d.WrongType(n, v.Type(), at)
		return
	}
	items := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)) // not nil means an empty list is not the same as none
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
	for _, e := range Entries(n) {
		value := reflect.New(v.Type().Elem()).Elem()
		d.Decode(e.Value, value, Place{fmt.Sprintf("%s[%s]", at.Path, e.Key), e.Line})
		values.SetMapIndex(reflect.ValueOf(e.Key).Convert(v.Type().Key()), value)
	}
	v.Set(values)
}

// Embedded reads a file of the program into the target of a pointer. An error in it is an error of the program.
func Embedded(data []byte, to any) {
	if err := Read(data, to); err != nil {
		panic(err)
	}
}

// Read reads a document into the target of a pointer. The problems in its error have no file.
func Read(data []byte, to any) error {
	var n yaml.Node
	if err := yaml.Unmarshal(data, &n); err != nil {
		return err
	}
	var d Decoder
	d.Decode(d.expand(n.Content[0], Place{}), reflect.ValueOf(to).Elem(), Place{})
	if problems := append(d.Unreadable, d.Invalid...); len(problems) > 0 {
		return problems
	}
	return nil
}

// Object returns the fields of a JSON object, or none for anything else.
func Object(data []byte) map[string]json.RawMessage {
	fields := map[string]json.RawMessage{}
	_ = json.Unmarshal(data, &fields) // no object: no fields
	return fields
}
