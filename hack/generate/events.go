package main

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas"
)

const (
	dialect = "https://json-schema.org/draft/2020-12/schema"
	address = "https://rehome.dev/schemas/v1/"
)

// events makes the JSON Schemas of events. Its descriptions are the comments of the Go types, and these tags limit values:
//
//	min, maxLength, maxItems, pattern, format   the keyword, which may be the name of a constant; min:"-" means no minimum
//	empty      the string may be empty
//	null       the value may be null
//	requires   FIELD=VALUE: the field is required if the other field has the value
//	only       FIELD=VALUE: the same, and it is not used with any other value
//	by         FIELD: the values for each value of the other field are those whose comments begin with it
//	groups     the groups of values that are valid here
//	has        fields that are required here
//
// The line //schema:allOf JSON in the comment of a type adds a condition, and //schema:includes TYPE adds the values of an enum.
type events struct {
	source source
	nouns  map[reflect.Type]string // of the data of events
	homes  map[string]string       // nouns by the file that declares them
	defs   map[string]*object      // definitions of the schema of a noun
	placed map[reflect.Type]string // nouns of the schemas that define types
	unique map[string]reflect.Type // types by noun and definition
}

func newEvents(s source) *events {
	e := &events{
		source: s, nouns: map[reflect.Type]string{}, homes: map[string]string{}, defs: map[string]*object{},
		placed: map[reflect.Type]string{}, unique: map[string]reflect.Type{},
	}
	for _, p := range schemas.Payloads() {
		noun := nounOf(p)
		e.nouns[reflect.TypeOf(p)], e.homes[s.files[keyOf(reflect.TypeOf(p))]], e.defs[noun] = noun, noun, &object{}
	}
	e.defs["delta"].set("later", object{
		{"title", "Later"},
		{"description", "Any value, for newer versions of Rehome. Readers skip values that they do not know. " +
			"The closed form of the schemas has false here."},
	})
	return e
}

func nounOf(p schemas.Payload) string { return strings.Split(p.EventType(), ".")[2] }

// all returns the schemas by noun.
func (e *events) all() map[string]object {
	roots := map[string]object{"event": e.envelope()}
	for _, p := range schemas.Payloads() {
		noun := nounOf(p)
		roots[noun] = e.structure(noun, reflect.TypeOf(p))
	}
	head := roots["scope"]
	conditions, _ := head.get("allOf").([]any)
	for _, s := range schemas.ScopeTypes() {
		t := reflect.TypeOf(s)
		then := object{{"title", t.Name()}, {"description", e.source.plain("schemas", e.source.docs[keyOf(t)])}}
		e.fields("scope", t, reflect.TypeFor[schemas.ScopeHead](), &then)
		kind := strings.ToLower(strings.TrimSuffix(t.Name(), "Scope"))
		conditions = append(conditions, object{{"if", when("kind", kind)}, {"then", then}})
	}
	head.set("allOf", conditions)
	roots["scope"] = head
	for noun, root := range roots {
		s := object{{"$schema", dialect}, {"$id", address + noun + ".schema.json"}}
		s = append(s, root...)
		if noun != "event" {
			s.set("description", root.get("description").(string)+" Readers ignore fields and values that they do not know.")
			if len(*e.defs[noun]) > 0 {
				s.set("$defs", *e.defs[noun])
			}
		}
		roots[noun] = s
	}
	return roots
}

// when is a condition about the value of a field.
func when(field string, value any) object {
	return object{{"properties", object{{field, object{{"const", value}}}}}}
}

// envelope returns the schema of a whole event.
func (e *events) envelope() object {
	s := e.structure("event", reflect.TypeFor[schemas.Event]())
	properties := object{{"specversion", object{
		{"description", "The version of the CloudEvents specification."}, {"type", "string"}, {"const", "1.0"},
	}}}
	properties = append(properties, s.get("properties").(object)...)
	required := append([]string{"specversion"}, s.get("required").([]string)...)
	properties.set("datacontenttype", object{
		{"description", "The data is JSON."}, {"type", "string"}, {"const", "application/json"},
	})
	properties.set("dataschema", object{{"description", "The $id of the schema of data."}, {"type", "string"}, {"format", "uri"}})
	properties.set("data", object{{"description", "The data. Its schema depends on type."}, {"type", "object"}})
	s.set("properties", properties)
	s.set("required", append(required, "datacontenttype", "data"))
	var conditions []any
	for _, p := range schemas.Payloads() {
		then := object{{"properties", object{{"data", object{{"$ref", nounOf(p) + ".schema.json"}}}}}}
		conditions = append(conditions, object{{"if", when("type", p.EventType())}, {"then", then}})
	}
	s.set("allOf", conditions)
	return s
}

// structure returns the schema of a struct.
func (e *events) structure(noun string, t reflect.Type) object {
	pkg, _, _ := strings.Cut(keyOf(t), ".")
	s := object{{"title", t.Name()}, {"description", e.source.plain(pkg, e.source.docs[keyOf(t)])}, {"type", "object"}}
	if pkg == "main" { // Kubernetes objects have more fields
		s.set("additionalProperties", true)
	}
	e.fields(noun, t, nil, &s)
	return s
}

// fields adds the fields of a struct to its schema, without the embedded struct except.
func (e *events) fields(noun string, t, except reflect.Type, s *object) {
	required, properties, conditions := []string{}, object{}, &object{}
	var add func(t reflect.Type)
	add = func(t reflect.Type) {
		for f := range t.Fields() {
			name := jsonName(f)
			switch {
			case f.Anonymous && name == "":
				if f.Type != except {
					add(f.Type)
				}
			case name != "":
				properties.set(name, e.field(noun, t, f))
				if !optional(f) {
					required = append(required, name)
				}
				e.conditions(noun, f, name, conditions)
			}
		}
	}
	add(t)
	if len(required) > 0 {
		s.set("required", required)
	}
	s.set("properties", properties)
	var all []any
	for _, d := range e.source.directives[keyOf(t)] {
		if text, ok := strings.CutPrefix(d, "allOf "); ok {
			all = append(all, json.RawMessage(text))
		}
	}
	for _, c := range *conditions {
		all = append(all, c.value)
	}
	if len(all) > 0 {
		s.set("allOf", all)
	}
}

// conditions adds the conditions about one field by the tags requires, only, and by.
func (e *events) conditions(noun string, f reflect.StructField, name string, all *object) {
	add := func(field, value, branch, keyword string, entry any) {
		key := field + "=" + value
		c, _ := all.get(key).(object)
		if c == nil {
			c = object{{"if", when(field, value)}}
		}
		b, _ := c.get(branch).(object)
		if properties, ok := entry.(object); ok {
			both, _ := b.get(keyword).(object)
			entry = append(both, properties...)
		}
		b.set(keyword, entry)
		c.set(branch, b)
		all.set(key, c)
	}
	for _, tag := range []string{"requires", "only"} {
		if field, value, ok := strings.Cut(f.Tag.Get(tag), "="); ok {
			add(field, value, "then", "required", []string{name})
			if tag == "only" {
				add(field, value, "else", "properties", object{{name, e.later(noun)}})
			}
		}
	}
	if field := f.Tag.Get("by"); field != "" {
		for _, group := range e.groups(f.Type) {
			add(field, group, "then", "properties", object{{name, e.ref(noun, f.Type, group+"Reason")}})
		}
	}
}

func (e *events) later(noun string) object {
	return object{{"$ref", schemaOf("delta", noun) + "#/$defs/later"}}
}

// schemaOf returns the reference from the schema of a noun to another one.
func schemaOf(noun, from string) string {
	if noun == from {
		return ""
	}
	return noun + ".schema.json"
}

// field returns the schema of a field: its type, its limits, and its description.
func (e *events) field(noun string, structure reflect.Type, f reflect.StructField) object {
	tag := f.Tag
	if strings.HasPrefix(keyOf(structure), "v1alpha1.") {
		tag = `empty:"true"` // controller-gen has markers, and the API server checks them
	}
	value := e.value(noun, f.Type, tag)
	if groups := f.Tag.Get("groups"); groups != "" {
		e.ref(noun, f.Type, "")
		var any []any
		for g := range strings.FieldsSeq(groups) {
			any = append(any, e.ref(noun, f.Type, g+"Reason"))
		}
		value = object{{"anyOf", any}}
	}
	if has := f.Tag.Get("has"); has != "" {
		value = object{{"allOf", []any{value}}, {"required", strings.Fields(has)}}
	}
	text := e.source.describe(structure, f)
	if all := e.source.enums[keyOf(f.Type)]; len(all) > 0 && value.get("type") == "string" {
		var names []string
		for _, c := range all {
			names = append(names, c.value)
		}
		text = strings.TrimSpace(text + " Values: " + strings.Join(names, ", ") + ".")
	}
	if n, err := strconv.Atoi(e.constant(f.Tag.Get("listMax"))); err == nil {
		value.set("maxItems", n)
	}
	if f.Tag.Get("null") != "" {
		value.set("type", []any{value.get("type"), "null"})
	}
	if text != "" {
		return append(object{{"description", text}}, value...)
	}
	return value
}

// constant returns the value of a tag that can be the name of a constant.
func (e *events) constant(tag string) string {
	if value, ok := e.source.constants["schemas."+tag]; ok {
		return value
	}
	return tag
}

// value returns the schema of a type. Strings and numbers have the limits of a tag.
func (e *events) value(noun string, t reflect.Type, tag reflect.StructTag) object { //nolint:gocyclo // a flat list of types
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if d, ok := described()[t]; ok {
		t = d
	}
	switch {
	case t == reflect.TypeFor[time.Time](), t == reflect.TypeFor[metav1.Time]():
		return object{{"type", "string"}, {"format", "date-time"}}
	case t == reflect.TypeFor[json.RawMessage]():
		return object{{"type", "object"}, {"additionalProperties", true}}
	case t == reflect.TypeFor[metav1.Duration]():
		return e.text(tag)
	case words(t) != nil:
		return object{{"type", "string"}, {"anyOf", []any{object{{"type", "string"}, {"enum", words(t)}}, e.later(noun)}}}
	case e.nouns[t] != "":
		return object{{"$ref", schemaOf(e.nouns[t], noun)}}
	case t == reflect.TypeFor[schemas.ScopeHead](), t.Kind() == reflect.Struct, t.Kind() == reflect.Slice && t.Name() != "",
		t.Kind() == reflect.String && strings.HasPrefix(keyOf(t), "schemas.") && e.source.enums[keyOf(t)] != nil:
		return e.ref(noun, t, "")
	}
	switch t.Kind() {
	case reflect.Slice:
		return object{{"type", "array"}, {"items", e.value(noun, t.Elem(), tag)}}
	case reflect.Map:
		if t.Elem().Kind() == reflect.Interface {
			return object{{"type", "object"}, {"additionalProperties", true}}
		}
		return object{{"type", "object"}, {"additionalProperties", e.value(noun, t.Elem(), tag)}}
	case reflect.String:
		return e.text(tag)
	case reflect.Bool:
		return object{{"type", "boolean"}}
	}
	s := object{{"type", "integer"}}
	if t.Kind() == reflect.Float64 {
		s = object{{"type", "number"}}
	}
	if lowest := tag.Get("min"); lowest != "-" {
		n, _ := strconv.Atoi(lowest)
		s.set("minimum", n)
	}
	return s
}

// text returns the schema of a string.
func (e *events) text(tag reflect.StructTag) object {
	s := object{{"type", "string"}}
	if format := tag.Get("format"); format != "" {
		s.set("format", format)
	}
	if pattern := tag.Get("pattern"); pattern != "" {
		s.set("pattern", pattern)
	} else if tag.Get("empty") == "" {
		s.set("minLength", 1)
	}
	if n, err := strconv.Atoi(e.constant(tag.Get("textMax"))); err == nil {
		s.set("maxLength", n)
	}
	return s
}

// ref returns a reference to the definition of a type, or to another definition beside it. The definition is in the schema of the
// noun that the same file declares, or else in the first schema that needs it.
func (e *events) ref(noun string, t reflect.Type, beside string) object {
	home, known := e.placed[t]
	name := strings.ToLower(t.Name()[:1]) + t.Name()[1:]
	if !known {
		if home = e.homes[e.source.files[keyOf(t)]]; home == "" || !strings.HasPrefix(keyOf(t), "schemas.") {
			home = noun
		}
		if other, taken := e.unique[home+" "+name]; taken {
			panic(fmt.Sprintf("%s.schema.json would define %s twice, for %v and %v", home, name, t, other))
		}
		e.placed[t], e.unique[home+" "+name] = home, t
		e.defs[home].set(name, nil) // keeps its place before the types of its fields
		e.defs[home].set(name, e.definition(home, t))
	}
	if beside != "" {
		name = beside
	}
	return object{{"$ref", schemaOf(home, noun) + "#/$defs/" + name}}
}

func (e *events) definition(noun string, t reflect.Type) object {
	pkg, _, _ := strings.Cut(keyOf(t), ".")
	s := object{{"title", t.Name()}, {"description", e.source.plain(pkg, e.source.docs[keyOf(t)])}}
	switch {
	case t == reflect.TypeFor[Quantity]():
		return append(s, object{{"type", "string"}, {"pattern", quantityPattern}}...)
	case t.Kind() == reflect.Slice:
		return append(s, object{{"type", "array"}, {"items", e.value(noun, t.Elem(), "")}}...)
	case t.Kind() == reflect.Struct:
		return e.structure(noun, t)
	}
	all := e.source.enums[keyOf(t)]
	var any []any
	if groups := e.groups(t); groups != nil {
		for _, group := range groups {
			var of []constant
			for _, c := range all {
				if groupOf(c) == group {
					of = append(of, c)
				}
			}
			if e.defs[noun].get(group+"Reason") != nil {
				panic(fmt.Sprintf("%s.schema.json would define %sReason twice", noun, group))
			}
			e.defs[noun].set(group+"Reason", e.enum(noun, object{{"description", e.source.values(pkg, of)}}, of))
			any = append(any, e.ref(noun, t, group+"Reason"))
		}
		return append(s, field{"anyOf", any})
	}
	s.set("description", s.get("description").(string)+" "+e.source.values(pkg, all))
	return e.enum(noun, s, all)
}

// enum adds values to the schema of a type.
func (e *events) enum(noun string, s object, all []constant) object {
	var any []any
	key := "schemas." + fmt.Sprint(s.get("title"))
	for _, d := range e.source.directives[key] {
		if other, ok := strings.CutPrefix(d, "includes "); ok {
			for t := range maps.Keys(e.placed) {
				if t.Name() == other {
					any = append(any, e.ref(noun, t, ""))
				}
			}
		}
	}
	var values []string
	for _, c := range all {
		values = append(values, c.value)
	}
	any = append(any, object{{"type", "string"}, {"enum", values}}, e.later(noun))
	return append(s, object{{"type", "string"}, {"anyOf", any}}...)
}

// groups returns the groups of the values of an enum with the line //schema:grouped, in the order of the source.
func (e *events) groups(t reflect.Type) (groups []string) {
	if !slices.Contains(e.source.directives[keyOf(t)], "grouped") {
		return nil
	}
	for _, c := range e.source.enums[keyOf(t)] {
		if g := groupOf(c); !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
	}
	return groups
}

// example returns an event that begins a chain. Its ID and its trace derive from its name.
func example(name string, data schemas.Payload) ([]byte, error) {
	hash := sha256.Sum256([]byte(name))
	id := strings.ToLower(base32.StdEncoding.EncodeToString(hash[:])[:26])
	return indented(object{
		{"specversion", "1.0"}, {"id", id}, {"source", "/clusters/prod/" + schemas.Publishers(data.EventType())[0]},
		{"type", data.EventType()}, {"subject", data.About()}, {"time", "2026-11-21T22:12:30.469015Z"},
		{"datacontenttype", "application/json"}, {"correlationid", id},
		{"traceparent", fmt.Sprintf("00-%x-%x-01", hash[:16], hash[16:24])}, {"data", data},
	})
}
