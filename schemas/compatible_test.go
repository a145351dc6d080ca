package schemas_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/validation"
)

// released returns the contract of the last release.
func released() fs.FS { return os.DirFS("testdata/released") }

// needsV2 ends every message about an incompatible change.
const needsV2 = "this is incompatible with v1: undo it, or add a new type with v2"

func TestCompatibleWithTheLastRelease(t *testing.T) {
	for _, sentence := range breaks(schemasIn(t, released()), schemasIn(t, schemas.Files)) {
		t.Errorf("%s; %s", sentence, needsV2)
	}
}

func TestExamplesAreValidInBothReleases(t *testing.T) {
	for _, schemasOf := range []struct {
		name  string
		files fs.FS
	}{{"the last release", released()}, {"this version", schemas.Files}} {
		v, err := validation.New(schemasOf.files)
		if err != nil {
			t.Fatal(err)
		}
		for _, examplesOf := range []struct {
			name  string
			files fs.FS
		}{{"the last release", released()}, {"this version", schemas.Files}} {
			for name, event := range jsonIn(t, examplesOf.files, "v1/examples/*.json") {
				err := v.Validate(event)
				if schemasOf.name != examplesOf.name && isNews(t, event) && errors.Is(err, validation.ErrUnknownType) {
					continue // readers ignore unknown types
				}
				if err != nil {
					t.Errorf("%s of %s is not valid by the schemas of %s: %v; %s", name, examplesOf.name, schemasOf.name, err, needsV2)
				}
			}
		}
	}
}

func TestEventsOfTheLastReleaseAreStillValid(t *testing.T) {
	v, err := validation.NewClosed(schemas.Files)
	if err != nil {
		t.Fatal(err)
	}
	for name, event := range jsonIn(t, released(), "v1/examples/*.json") {
		if err := v.Validate(event); err != nil {
			t.Errorf("%s of the last release is unknown to this version: %v; %s", name, err, needsV2)
		}
	}
}

// isNews reports whether the last release has no schema for the type of an event.
func isNews(t *testing.T, event []byte) bool {
	t.Helper()
	var head struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(event, &head); err != nil {
		t.Fatal(err)
	}
	words := strings.Split(head.Type, ".")
	_, err := fs.Stat(released(), words[3]+"/"+words[2]+".schema.json")
	return errors.Is(err, fs.ErrNotExist)
}

// jsonIn reads the matching files.
func jsonIn(t *testing.T, files fs.FS, pattern string) map[string][]byte {
	t.Helper()
	names, err := fs.Glob(files, pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: got %d files, error %v", pattern, len(names), err)
	}
	all := map[string][]byte{}
	for _, name := range names {
		if all[name], err = fs.ReadFile(files, name); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// schemasIn parses the schemas by file name.
func schemasIn(t *testing.T, files fs.FS) map[string]any {
	t.Helper()
	all := map[string]any{}
	for name, document := range jsonIn(t, files, "v1/*.schema.json") {
		var v any
		if err := json.Unmarshal(document, &v); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all[path.Base(name)] = v
	}
	return all
}

// schemaBefore is the schema to change.
const schemaBefore = `{
	"type": "object", "title": "Thing", "required": ["kind", "name"],
	"properties": {
		"kind": {"type": "string", "anyOf": [{"type": "string", "enum": ["a", "b"]}, {"$ref": "#/$defs/later"}]},
		"name": {"type": "string", "minLength": 1},
		"list": {"type": "array", "maxItems": 3, "items": {"$ref": "#/$defs/entry"}}
	},
	"allOf": [{"if": {"properties": {"kind": {"const": "a"}}}, "then": {"required": ["list"]}}],
	"$defs": {"later": {}, "entry": {"type": "object", "properties": {"n": {"type": "integer"}}}}
}`

func TestBreaks(t *testing.T) {
	parse := func(document string) map[string]any {
		var v any
		if err := json.Unmarshal([]byte(document), &v); err != nil {
			t.Fatalf("%v in %s", err, document)
		}
		return map[string]any{"thing.schema.json": v}
	}
	for _, test := range []struct {
		name     string
		old, now string
		want     []string
	}{
		{"nothing is no break", "", "", nil},
		{"other words", `"Thing"`, `"A thing", "description": "It is one."`, nil},
		{"a new field", `"list": {`, `"more": {"type": "string"}, "list": {`, nil},
		{"a new definition", `"later": {}`, `"later": {}, "other": {}`, nil},
		{"a new value", `["a", "b"]`, `["a", "b", "c"]`, nil},
		{"a new alternative", `{"$ref": "#/$defs/later"}]`, `{"$ref": "#/$defs/entry"}, {"$ref": "#/$defs/later"}]`, nil},
		{
			"a condition about a new value", `"allOf": [`,
			`"allOf": [{"if": {"properties": {"kind": {"const": "c"}}}, "then": {"required": ["more"]}},`, nil,
		},
		{
			"a condition about an old value", `"allOf": [`, `"allOf": [{"if": {"properties": {"kind": {"const": "b"}}}, "then": false},`,
			[]string{`#/allOf/0: a new condition about what there was before: ` +
				`{"if":{"properties":{"kind":{"const":"b"}}},"then":false}`},
		},
		{
			"a condition about all other values", `"allOf": [`,
			`"allOf": [{"if": {"properties": {"kind": {"const": "c"}}}, "else": false},`,
			[]string{`#/allOf/0: a new condition about what there was before: ` +
				`{"else":false,"if":{"properties":{"kind":{"const":"c"}}}}`},
		},
		{
			"a condition that is gone", `"const": "a"`, `"const": "c"`,
			[]string{`#/allOf: a condition is gone: if {"properties":{"kind":{"const":"a"}}}`},
		},
		{
			"a condition that says more", `"required": ["list"]`, `"required": ["list", "name"]`,
			[]string{"#/allOf/0/then/required: name is required now"},
		},
		{"a field that is gone", `"name": {"type": "string", "minLength": 1},`, "", []string{"#/properties/name: is gone"}},
		{"a field that must be there", `["kind", "name"]`, `["kind", "name", "list"]`, []string{"#/required: list is required now"}},
		{"a field that need not be there", `["kind", "name"]`, `["kind"]`, []string{"#/required: name is not required any more"}},
		{
			"another type", `{"n": {"type": "integer"}}`, `{"n": {"type": "string"}}`,
			[]string{`#/$defs/entry/properties/n/type: was "integer", is "string"`},
		},
		{"a value that is gone", `["a", "b"]`, `["a"]`, []string{"#/properties/kind/anyOf/0/enum: b is gone"}},
		{
			"an enum that cannot grow", `, {"$ref": "#/$defs/later"}`, "",
			[]string{`#/properties/kind/anyOf/1: is gone: {"$ref":"#/$defs/later"}`},
		},
		{
			"an enum where there was none", `"minLength": 1`, `"minLength": 1, "enum": ["x"]`,
			[]string{"#/properties/name/enum: was any value, is one of x"},
		},
		{"a tighter bound", `"maxItems": 3`, `"maxItems": 2`, []string{"#/properties/list/maxItems: was 3, is 2"}},
		{"a wider bound, which an older reader refuses", `"maxItems": 3`, `"maxItems": 4`, []string{"#/properties/list/maxItems: was 3, is 4"}},
		{"a new bound", `{"type": "integer"}`, `{"type": "integer", "minimum": 0}`,
			[]string{"#/$defs/entry/properties/n/minimum: was not said, is 0"}},
		{
			"fields that are forbidden", `"type": "object", "title"`, `"additionalProperties": false, "type": "object", "title"`,
			[]string{"#/additionalProperties: was not said, is false"},
		},
		{"another definition", `{"$ref": "#/$defs/entry"}`, `{"$ref": "#/$defs/later"}`,
			[]string{`#/properties/list/items/$ref: was "#/$defs/entry", is "#/$defs/later"`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if !strings.Contains(schemaBefore, test.old) {
				t.Fatalf("there is no %s", test.old)
			}
			var want []string
			for _, sentence := range test.want {
				want = append(want, "v1/thing.schema.json "+sentence)
			}
			got := breaks(parse(schemaBefore), parse(strings.Replace(schemaBefore, test.old, test.now, 1)))
			if !slices.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
	t.Run("a schema that is gone", func(t *testing.T) {
		same(t, "found", breaks(parse(schemaBefore), nil), []string{"v1/thing.schema.json #: the schema is gone"})
	})
}
