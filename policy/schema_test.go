package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rehome-dev/rehome/policy/strict"
)

// comments maps TYPE.FIELD of this package to the comment of the field, without links.
func comments(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if s, ok := spec.Type.(*ast.StructType); ok {
				for _, f := range s.Fields.List {
					for _, name := range f.Names {
						text := strings.Join(strings.Fields(f.Doc.Text()), " ")
						all[spec.Name.Name+"."+name.Name] = regexp.MustCompile(`\[([\w.]+)\]`).ReplaceAllString(text, "$1")
					}
				}
			}
			return true
		})
	}
	return all
}

// object is an object of JSON whose keys are written in the order of the alphabet.
type object = map[string]any

// schemaOf is the JSON Schema of what the decoder reads into a type. A null is the same as no entry.
func schemaOf(typ reflect.Type, comments map[string]string) object {
	switch typ {
	case reflect.TypeFor[*yaml.Node](), reflect.TypeFor[json.RawMessage]():
		return object{}
	case reflect.TypeFor[time.Duration](), reflect.TypeFor[metav1.Duration]():
		return object{"type": []string{"string", "integer", "null"}, "pattern": `^-?([0-9.]+(ns|us|µs|ms|s|m|h))+$|^0$`, "enum": nil}
	case reflect.TypeFor[strict.Percent]():
		return object{"type": []string{"string", "null"}, "pattern": `^(100|[0-9]{1,2})%$`}
	case reflect.TypeFor[intstr.IntOrString]():
		return object{"type": []string{"integer", "string", "null"}, "minimum": 0}
	}
	one := func(name string) object { return object{"type": []string{name, "null"}} }
	switch kind := typ.Kind(); {
	case kind == reflect.Pointer:
		return schemaOf(typ.Elem(), comments)
	case kind == reflect.Bool:
		return one("boolean")
	case kind == reflect.String:
		return one("string")
	case kind == reflect.Float64:
		return one("number")
	case reflect.Int <= kind && kind <= reflect.Int64:
		return one("integer")
	case reflect.Uint <= kind && kind <= reflect.Uint64:
		s := one("integer")
		s["minimum"] = 0
		return s
	case kind == reflect.Slice:
		s := one("array")
		s["items"] = schemaOf(typ.Elem(), comments)
		return s
	case kind == reflect.Map:
		s := one("object")
		s["additionalProperties"] = schemaOf(typ.Elem(), comments)
		return s
	}
	s := one("object")
	s["additionalProperties"], s["properties"] = false, object{}
	addFields(s, typ, comments)
	return s
}

func addFields(s object, typ reflect.Type, comments map[string]string) {
	for f := range typ.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			addFields(s, f.Type, comments)
		}
		if name == "" || name == "-" {
			continue
		}
		field := schemaOf(f.Type, comments)
		if field["enum"] == nil {
			delete(field, "enum")
		}
		if words := strict.Enum(typ, f, name); words != nil {
			into := field
			if f.Type.Kind() == reflect.Slice {
				into, field["uniqueItems"] = field["items"].(object), true
			}
			values := []any{nil}
			for _, w := range words {
				values = append(values, w)
			}
			into["enum"] = values
		}
		for tag, keyword := range map[string]string{"min": "minimum", "max": "maximum", "above": "exclusiveMinimum"} {
			if n, err := strconv.Atoi(f.Tag.Get(tag)); err == nil && field["pattern"] == nil {
				field[keyword] = n
			}
		}
		if text := comments[typ.Name()+"."+f.Name]; text != "" {
			field["description"] = text
		}
		if f.Tag.Get("required") != "" {
			required, _ := s["required"].([]string)
			s["required"] = append(required, name)
		}
		s["properties"].(object)[name] = field
	}
}

// TestSchema compares policy.schema.json with the structs, and holds the files of testdata against it. With
// UPDATE_GOLDEN=1 in the environment the schema is written anew.
func TestSchema(t *testing.T) {
	s := schemaOf(reflect.TypeFor[file](), comments(t))
	s["$schema"], s["title"] = "https://json-schema.org/draft/2020-12/schema", "Rehome policy"
	s["type"], s["required"] = "object", []string{"apiVersion", "kind"}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(s); err != nil {
		t.Fatal(err)
	}
	golden(t, "policy.schema.json", b.String())
	document, err := jsonschema.UnmarshalJSON(&b)
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("policy", document); err != nil {
		t.Fatal(err)
	}
	compiled, err := c.Compile("policy")
	if err != nil {
		t.Fatal(err)
	}
	valid := func(path string) error {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var value any
		if err := yaml.Unmarshal(data, &value); err != nil {
			return err
		}
		return compiled.Validate(value)
	}
	files, err := filepath.Glob("testdata/*/*.yaml")
	if err != nil || len(files) < 20 {
		t.Fatalf("got %d files, %v", len(files), err)
	}
	for _, path := range append(files, "../deploy/policy.yaml") {
		data, _ := os.ReadFile(path)
		if bytes.Contains(data, []byte(OlderVersion)) || strings.Contains(path, "/broken/") {
			continue
		}
		if err := valid(path); err != nil {
			t.Errorf("%s is right, and the schema refuses it: %v", path, err)
		}
	}
	for name, field := range map[string]string{
		"brakes": "brakes/quota", "limits": "limits/inFlight/perNode", "restart": "restart/method", "requests": "evictionRequests/timeout",
		"signals": "signals/extraEnabled", "rate-out-of-range": "rate", "functions-traits": "functions/0/priority",
	} {
		invalid, ok := errors.AsType[*jsonschema.ValidationError](valid("testdata/" + name + ".yaml"))
		if !ok {
			t.Errorf("%s is wrong, and the schema accepts it", name)
			continue
		}
		if text := invalid.Error(); !strings.Contains(strings.ReplaceAll(text, "'", ""), strings.Split(field, "/")[0]) {
			t.Errorf("%s: got %s, want an error about %s", name, text, field)
		}
	}
}
