package cli

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/rehome-dev/rehome/actuator"
	"github.com/rehome-dev/rehome/cli/cmdutil"
	"github.com/rehome-dev/rehome/cli/look"
	"github.com/rehome-dev/rehome/cli/try"
	"github.com/rehome-dev/rehome/explain"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/simulate"
	"github.com/rehome-dev/rehome/status"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// outputSchema is the file with the schema of the -o json and -o yaml output of all commands.
const outputSchema = "../docs/cli.schema.json"

// printed lists the printed kinds, and whether they are printed as lists.
var printed = []struct {
	kind string
	typ  reflect.Type
	list bool
}{
	{"Move", reflect.TypeFor[actuator.Move](), true}, {"DeferredPod", reflect.TypeFor[status.DeferredPod](), true},
	{"WorkloadBreaker", reflect.TypeFor[status.WorkloadBreaker](), true}, {"Request", reflect.TypeFor[status.OpenRequest](), true},
	{"Maintenance", reflect.TypeFor[status.Maintenance](), true}, {"DeadLetter", reflect.TypeFor[look.Brief](), true},
	{"Status", reflect.TypeFor[status.Status](), false}, {"PodExplanation", reflect.TypeFor[explain.Explanation](), false},
	{"WorkloadExplanation", reflect.TypeFor[explain.WorkloadExplanation](), false}, {"NodeExplanation", reflect.TypeFor[explain.NodeExplanation](), false}, {"Settlement", reflect.TypeFor[simulate.Settlement](), false},
}

// lines lists the objects that commands print one per line with -o json, without apiVersion and kind. Commands that print events
// print CloudEvents, which have schemas of their own.
var lines = []reflect.Type{
	reflect.TypeFor[simulate.Line](), reflect.TypeFor[policy.Problem](), reflect.TypeFor[try.ListedSchema](), reflect.TypeFor[try.EventProblem](),
}

type object = map[string]any

// schemaMaker builds the schema of each struct once.
type schemaMaker struct{ defs object }

func (m schemaMaker) of(t reflect.Type) object {
	if t == reflect.TypeFor[time.Time]() {
		return object{"type": "string", "format": "date-time"}
	}
	if t.Implements(reflect.TypeFor[json.Marshaler]()) || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]()) {
		return object{} // it has its own JSON form
	}
	switch t.Kind() {
	case reflect.Pointer:
		return object{"anyOf": []object{m.of(t.Elem()), {"type": "null"}}}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return object{"type": "string"}
		}
		return object{"type": []string{"array", "null"}, "items": m.of(t.Elem())}
	case reflect.Map:
		return object{"type": []string{"object", "null"}, "additionalProperties": m.of(t.Elem())}
	case reflect.Struct:
		name := strings.NewReplacer("look.", "", "status.", "").Replace(t.String())
		if m.defs[name] == nil {
			schema := object{"type": "object"}
			m.defs[name] = schema
			properties, required := object{}, []string{}
			m.fields(t, properties, &required)
			schema["properties"], schema["required"] = properties, required
		}
		return object{"$ref": "#/$defs/" + name}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Float64:
		return object{"type": "number"}
	}
	return object{"type": "integer"}
}

func (m schemaMaker) fields(t reflect.Type, properties object, required *[]string) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			m.fields(f.Type, properties, required)
		case f.IsExported() && name != "-" && name != "":
			properties[name] = m.of(f.Type)
			if !strings.Contains(options, "omit") {
				*required = append(*required, name)
			}
		}
	}
}

// TestOutputSchema compares the schema with the types. `make generate` writes it.
func TestOutputSchema(t *testing.T) {
	m := schemaMaker{object{}}
	var kinds []object
	header := func(kind string) object {
		return object{"apiVersion": object{"const": cmdutil.APIVersion}, "kind": object{"const": kind}}
	}
	for _, p := range printed {
		one := object{"allOf": []object{m.of(p.typ)}, "properties": header(p.kind), "required": []string{"apiVersion", "kind"}}
		kinds = append(kinds, one)
		if p.list {
			list := header(p.kind + "List")
			list["items"] = object{"type": "array", "items": one}
			kinds = append(kinds, object{"properties": list, "required": []string{"apiVersion", "kind", "items"}})
		}
	}
	for _, line := range lines {
		kinds = append(kinds, object{"allOf": []object{m.of(line)}, "properties": object{"apiVersion": false}})
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	err := e.Encode(object{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Output of the commands of Rehome with -o json and -o yaml",
		"$id":   "https://github.com/rehome-dev/rehome/releases/latest/download/cli.schema.json",
		"oneOf": kinds, "$defs": m.defs,
	})
	expect.Must(t, err)
	goldenFile(t, outputSchema, b.String())
}

// TestOutput validates the output of the commands. Each line of some files is a document.
func TestOutput(t *testing.T) {
	schema, err := jsonschema.NewCompiler().Compile(outputSchema)
	expect.Must(t, err)
	files, err := filepath.Glob("testdata/golden/*/*.json")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, error %v", len(files), err)
	}
	for _, file := range files {
		documents := json.NewDecoder(strings.NewReader(filetest.Read(t, file)))
		for documents.More() {
			var text json.RawMessage
			if err := documents.Decode(&text); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			document := value.(object)
			if document["specversion"] != nil {
				e, err := schematest.Parse(text)
				if err != nil {
					t.Fatalf("%s: %v", file, err)
				}
				schematest.Check(t, e)
				continue
			}
			if err := schema.Validate(document); err != nil {
				t.Errorf("%s: %v", file, err)
			}
			if document["apiVersion"] == nil {
				document["apiVersion"] = cmdutil.APIVersion
			} else {
				delete(document, "apiVersion")
			}
			if schema.Validate(document) == nil {
				t.Errorf("%s is valid with the wrong apiVersion: %v", file, document["apiVersion"])
			}
		}
	}
}
