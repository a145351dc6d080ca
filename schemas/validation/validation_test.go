package validation_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/validation"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

func validators(t *testing.T) (published, closed *validation.Validator) {
	t.Helper()
	published, err := validation.New(schemas.Files)
	expect.Must(t, err)
	closed, err = validation.NewClosed(schemas.Files)
	expect.Must(t, err)
	return published, closed
}

// changed returns a published example after replacing a part of its text.
func changed(t *testing.T, name, old, now string) []byte {
	t.Helper()
	document, err := schemas.Files.ReadFile("v1/examples/" + name + ".json")
	expect.Must(t, err)
	if !bytes.Contains(document, []byte(old)) {
		t.Fatalf("%s does not contain %s", name, old)
	}
	return bytes.Replace(document, []byte(old), []byte(now), 1)
}

const (
	moment   = "a time such as 2030-01-02T15:04:05Z"
	required = "a value: the field is required"
	nothing  = "nothing: there is no such field here"
	outcomes = "one of evicted, restarted, requested, deferred, rejected, withdrawn, expired, failed, settled"
)

func problem(field, got, want string) validation.Problem {
	p := validation.Problem{Field: field, Want: want}
	if got != "" {
		p.Got = json.RawMessage(got)
	}
	return p
}

func TestProblems(t *testing.T) {
	published, closed := validators(t)
	for _, c := range []struct {
		name              string
		example, old, now string
		form              *validation.Validator
		want              validation.Problems
	}{
		{"a value of another type", "verdict", `"outcome": "evicted"`, `"outcome": 3`, published,
			validation.Problems{problem("/data/outcome", "3", "a string")}},
		{"unknown value", "verdict", `"outcome": "evicted"`, `"outcome": "vanished"`, closed,
			validation.Problems{problem("/data/outcome", `"vanished"`, outcomes)}},
		{"a reason, by its outcome", "verdict-restarted", `"reason": "RestartAccepted"`, `"reason": "Whim"`, closed,
			validation.Problems{problem("/data/reason", `"Whim"`, "one of RestartAccepted, SurgeAccepted")}},
		{"a field that is missing", "intents", `"profile": "default",`, ``, published,
			validation.Problems{problem("/data/profile", "", required)}},
		{"two fields, in the order of their names", "delta", `"name": "worker-7",`, `"name": "", "namespace": "",`, published,
			validation.Problems{
				problem("/data/object/name", `""`, "a string that is not empty"),
				problem("/data/object/namespace", `""`, "a string that is not empty"),
			}},
		{"unknown field", "delta", `"kind": "Node",`, `"kind": "Node", "a/b~c": {"n": 1.50},`, closed,
			validation.Problems{problem("/data/object/a~1b~0c", `{"n":1.50}`, nothing)}},
		{"a field that is not sent yet", "verdict", `"method":`, `"settlement": {"seconds": 1}, "method":`, closed,
			validation.Problems{problem("/data/settlement", `{"seconds":1}`, nothing)}},
		{"an entry of a list", "intents", `"node": "worker-7"`, `"node": ""`, published,
			validation.Problems{problem("/data/intents/0/node", `""`, "a string that is not empty")}},
		{"a time", "intents", `"expires": "2026-11-20T09:40:00.131207Z"`, `"expires": "soon"`, published,
			validation.Problems{problem("/data/intents/0/expires", `"soon"`, moment)}},
		{"a source", "delta", `"source": "/clusters/prod/watcher"`, `"source": "::"`, published,
			validation.Problems{problem("/source", `"::"`, "a URI reference such as /clusters/prod/watcher")}},
		{"a fixed value", "delta", `"specversion": "1.0"`, `"specversion": "0.3"`, published,
			validation.Problems{problem("/specversion", `"0.3"`, "1.0")}},
		{"a pattern", "delta", `"kind": "Node"`, `"kind": "node"`, published,
			validation.Problems{problem("/data/object/kind", `"node"`, "Node")}},
		{"a number", "intents", `"sequence": 4711`, `"sequence": -1`, published,
			validation.Problems{problem("/data/scope/sequence", "-1", "at least 0")}},
		{"a quantity", "scope", `"cpu": "7800m"`, `"cpu": "much"`, published,
			validation.Problems{problem("/data/node/status/allocatable/cpu", `"much"`, "a string that matches "+
				`^[+-]?([0-9]+|[0-9]+\.[0-9]*|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$`)}},
		{"nothing, when all is right", "verdict", "{", "{", closed, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.form.Validate(changed(t, c.example, c.old, c.now))
			got, _ := errors.AsType[validation.Problems](err)
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %v\nwant %v", err, c.want)
			}
		})
	}
}

func TestValueTruncation(t *testing.T) {
	published, _ := validators(t)
	causes := strings.Repeat(`{"kind":"due","time":"2026-11-20T09:30:00Z"},`, 16)
	err := published.Validate(changed(t, "scope", `"causes": [`, `"causes": [`+causes))
	want := `/data/causes: got [{"kind":"due","time":"2026-11-20T09:30:00Z"},{"kind":"due","time":"2026-11-20T0…, ` +
		"want at most 16 entries"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestUnknownAttributes(t *testing.T) {
	published, _ := validators(t)
	allowed := changed(t, "verdict", `"id":`, `"a": "x", "b": true, "c": -2147483648, "d": null, "e": 1.5, "id":`)
	if err := published.Validate(allowed); err != nil {
		t.Error(err)
	}
	err := published.Validate(changed(t, "verdict", `"id":`, `"causat^onid": "a", "Trace_": 7, "list": [], "map": {}, "large": 2147483648, "id":`))
	const want = `/Trace_: got 7, want a name of lower-case letters and digits
/causat^onid: got "a", want a name of lower-case letters and digits
/large: got 2147483648, want a string, a boolean, or a number of 32 bits
/list: got [], want a string, a boolean, or a number of 32 bits
/map: got {}, want a string, a boolean, or a number of 32 bits`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestUnparsableTimes(t *testing.T) {
	published, _ := validators(t)
	for _, at := range []string{"2026-11-20T11:15:34z", "2026-12-31T23:59:60Z", "0000-01-01T00:00:00+23:59"} {
		err := published.Validate(changed(t, "verdict", `"id":`, `"expirytime": "`+at+`", "id":`))
		if want := `/expirytime: got "` + at + `", want a time such as 2030-01-02T15:04:05Z`; err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

func TestInvalidDocuments(t *testing.T) {
	published, _ := validators(t)
	for _, c := range []struct{ name, document, want string }{
		{"a list", "[{}]", "the event: got [{}], want an object"},
		{"no JSON", "moin", "invalid event: not JSON: invalid character 'm' looking for beginning of value"},
		{"not UTF-8", "{\"type\":\"\xff\"}", "invalid event: not UTF-8"},
		{"two events", "{} {}", "invalid event: not JSON: invalid character after top-level value"},
		{"a type that is not Rehome's", `{"type":"com.example.thing.v1"}`, `unknown event type "com.example.thing.v1"`},
		{"a later version", `{"type":"dev.rehome.delta.v2"}`, `unknown event type "dev.rehome.delta.v2"`},
	} {
		if err := published.Validate([]byte(c.document)); err == nil || err.Error() != c.want {
			t.Errorf("%s:\ngot  %v\nwant %s", c.name, err, c.want)
		}
	}
}

func TestErrorKinds(t *testing.T) {
	published, _ := validators(t)
	is := func(document string) [3]bool {
		err := published.Validate([]byte(document))
		_, problems := errors.AsType[validation.Problems](err)
		return [3]bool{errors.Is(err, schemas.ErrInvalid), errors.Is(err, validation.ErrUnknownType), problems}
	}
	got := [][3]bool{is("moin"), is(`{"type":"dev.rehome.delta.v2"}`), is(`{"type":7}`), is("{}")}
	want := [][3]bool{{true, false, false}, {false, true, false}, {false, false, true}, {false, false, true}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestExternalReference(t *testing.T) {
	files := fstest.MapFS{"v1/event.schema.json": {Data: []byte(`{"$ref":"https://example.com/other.json"}`)}}
	if _, err := validation.New(files); err == nil {
		t.Error("got no error")
	}
	if _, err := validation.New(fstest.MapFS{}); err == nil {
		t.Error("without schemas: got no error")
	}
}

// Problems must have a text for every keyword of the published schemas.
func TestKeywordDescriptions(t *testing.T) {
	said := map[string]bool{
		"type": true, "enum": true, "const": true, "format": true, "pattern": true, "minLength": true, "minimum": true,
		"maxItems": true, "maxLength": true, "required": true,
		// These contain schemas, or have no rules for values.
		"properties": true, "additionalProperties": true, "items": true, "allOf": true, "anyOf": true, "if": true, "then": true,
		"else": true, "$ref": true, "$defs": true, "$id": true, "$schema": true, "title": true, "description": true,
	}
	names, err := fs.Glob(schemas.Files, "v1/*.schema.json")
	if err != nil || len(names) == 0 {
		t.Fatalf("schemas: got %d, error %v", len(names), err)
	}
	var walk func(path string, schema any)
	walk = func(path string, schema any) {
		s, _ := schema.(map[string]any)
		for keyword, value := range s {
			if !said[keyword] {
				t.Errorf("%s: no words for %s", path, keyword)
			}
			switch sub := value.(type) {
			case map[string]any:
				if keyword != "properties" && keyword != "$defs" {
					walk(path+"/"+keyword, sub)
					continue
				}
				for name, property := range sub {
					walk(path+"/"+keyword+"/"+name, property)
				}
			case []any:
				for _, alternative := range sub {
					walk(path+"/"+keyword, alternative)
				}
			}
		}
	}
	for _, name := range names {
		document, err := schemas.Files.ReadFile(name)
		expect.Must(t, err)
		schema := expect.FromJSON[any](t, document)
		walk(name, schema)
	}
}

func TestClosed(t *testing.T) {
	got, err := validation.Closed([]byte(`{
		"type": "object", "properties": {
			"word": {"anyOf": [{"enum": ["a"]}, {"$ref": "#/$defs/later"}]},
			"map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"x": {}}}},
			"list": {"items": {"type": "object", "properties": {"y": {}}}}
		},
		"allOf": [{"if": {}, "then": {"properties": {"z": {"type": "object", "properties": {}}}}}],
		"$defs": {"later": {"title": "Later"}, "other": {"title": "Other"}}
	}`))
	expect.Must(t, err)
	const want = `{"$defs":{"later":false,"other":{"title":"Other"}},` +
		`"allOf":[{"if":{},"then":{"properties":{"z":{"properties":{},"type":"object","unevaluatedProperties":false}}}}],` +
		`"properties":{"list":{"items":{"properties":{"y":{}},"type":"object","unevaluatedProperties":false}},` +
		`"map":{"additionalProperties":{"properties":{"x":{}},"type":"object"},"type":"object"},` +
		`"word":{"anyOf":[{"enum":["a"]},{"$ref":"#/$defs/later"}]}},"type":"object","unevaluatedProperties":false}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if _, err := validation.Closed([]byte("{")); err == nil {
		t.Error("not JSON: got no error")
	}
}
