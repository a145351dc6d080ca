package schemas_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rehome-dev/rehome/schemas"
)

// field is a JSON field of a struct.
type field struct {
	typ      reflect.Type
	optional bool
}

// fields returns the JSON fields of a struct, including embedded structs.
func fields(typ reflect.Type) map[string]field {
	all := map[string]field{}
	for _, f := range reflect.VisibleFields(typ) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "-" || f.Anonymous && name == "" || underName(typ, f.Index) {
			continue
		}
		optional := strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero")
		all[name] = field{typ: f.Type, optional: optional}
	}
	return all
}

// underName reports whether an embedded struct has a JSON name.
func underName(typ reflect.Type, index []int) bool {
	for i := 1; i < len(index); i++ {
		if name, _, _ := strings.Cut(typ.FieldByIndex(index[:i]).Tag.Get("json"), ","); name != "" {
			return true
		}
	}
	return false
}

// comparison compares a Go type with its schema.
type comparison struct {
	*testing.T
}

// value compares a Go type with a schema.
func (c comparison) value(path string, typ reflect.Type, schema place) {
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	schema = schema.follow(c.T)
	switch {
	case typ == reflect.TypeFor[time.Time](), typ == reflect.TypeFor[metav1.Time]():
		c.is(path, schema, "string")
		if schema.get("format").text() != "date-time" {
			c.Errorf("%s: format is %q, want date-time", path, schema.get("format").text())
		}
	case typ == reflect.TypeFor[resource.Quantity](), typ == reflect.TypeFor[metav1.Duration]():
		c.is(path, schema, "string")
	case typ == reflect.TypeFor[intstr.IntOrString]():
		c.is(path, schema, "string")
		c.is(path, schema, "integer")
	case typ == reflect.TypeFor[json.RawMessage]():
		c.is(path, schema, "object")
	case typ.Kind() == reflect.Struct:
		c.structure(path, typ, schema)
	case typ.Kind() == reflect.Slice:
		c.is(path, schema, "array")
		c.value(path+"[]", typ.Elem(), schema.get("items"))
	case typ.Kind() == reflect.Map:
		c.is(path, schema, "object")
		c.value(path+"{}", typ.Elem(), schema.get("additionalProperties"))
	default:
		c.is(path, schema, scalar(typ.Kind()))
	}
}

func scalar(kind reflect.Kind) string {
	switch kind {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Float64:
		return "number"
	}
	return "integer"
}

// is checks the JSON type of a schema, or of each of its alternatives except the one that keeps it open.
func (c comparison) is(path string, schema place, want string) {
	schema = schema.follow(c.T)
	for _, alternative := range schema.get("anyOf").each() {
		if !isLater(alternative.place) {
			c.is(path, alternative.place, want)
		}
	}
	types := append(schema.get("type").strings(), schema.get("type").text())
	if schema.get("anyOf").at == nil && !slices.Contains(types, want) {
		c.Errorf("%s: the schema says %q, Go writes a JSON %s", path, types, want)
	}
}

// structure compares the fields of a struct with the properties of an object. The schema of a Kubernetes object may have fewer
// properties.
func (c comparison) structure(path string, typ reflect.Type, schema place) {
	c.is(path, schema, "object")
	properties, required := properties(typ.Name(), schema)
	inGo := fields(typ)
	partly := strings.HasPrefix(typ.PkgPath(), "k8s.io/")
	if partly != (schema.get("additionalProperties").at == true) {
		c.Errorf("%s: additionalProperties must be true for types of Kubernetes and for no others", path)
	}
	for name, f := range inGo {
		if _, described := properties[name]; !described && !partly {
			c.Errorf("%s.%s: a field of the Go type %s that the schema lacks", path, name, typ)
		}
		if must := slices.Contains(required, name); must == f.optional && !partly {
			c.Errorf("%s.%s: required is %v in the schema, and omitted when empty is %v in Go", path, name, must, f.optional)
		}
	}
	for name, p := range properties {
		f, ok := inGo[name]
		if !ok {
			c.Errorf("%s.%s: a property that the Go type %s lacks", path, name, typ)
			continue
		}
		if p.get("description").text()+p.follow(c.T).get("description").text() == "" {
			c.Errorf("%s.%s: no description", path, name)
		}
		if len(p.get("allOf").each()) > 0 {
			p = p.get("allOf").each()[0].place // a reference with further conditions
		}
		c.value(path+"."+name, f.typ, p)
	}
}

// properties returns the properties and the required ones of the schema of a Go type, including a condition whose title is the
// name of the type.
func properties(typ string, schema place) (map[string]place, []string) {
	all := map[string]place{}
	required := schema.get("required").strings()
	parts := []place{schema}
	for _, condition := range schema.get("allOf").each() {
		if then := condition.get("then"); then.get("title").text() == typ {
			parts = append(parts, then)
			required = append(required, then.get("required").strings()...)
		}
	}
	for _, part := range parts {
		for _, p := range part.get("properties").each() {
			all[p.name] = p.place
		}
	}
	return all, required
}

func TestGoFieldsMatchTheSchemas(t *testing.T) {
	for _, test := range []struct {
		schema string
		typ    reflect.Type
	}{
		{"delta", reflect.TypeFor[schemas.Delta]()},
		{"scope", reflect.TypeFor[schemas.NodeScope]()},
		{"scope", reflect.TypeFor[schemas.PodScope]()},
		{"scope", reflect.TypeFor[schemas.WorkloadScope]()},
		{"scope", reflect.TypeFor[schemas.SpreadScope]()},
		{"scope", reflect.TypeFor[schemas.DomainScope]()},
		{"scope", reflect.TypeFor[schemas.UsageScope]()},
		{"scope", reflect.TypeFor[schemas.RequestScope]()},
		{"request", reflect.TypeFor[schemas.Request]()},
		{"receipt", reflect.TypeFor[schemas.Receipt]()},
		{"intents", reflect.TypeFor[schemas.Intents]()},
		{"verdict", reflect.TypeFor[schemas.Verdict]()},
		{"maintenance", reflect.TypeFor[schemas.Maintenance]()},
	} {
		comparison{t}.value(test.typ.Name(), test.typ, schemaOf(t, test.schema))
	}
}

func TestScopeSchemaLimit(t *testing.T) {
	got := schemaOf(t, "scope").get("properties").get("causes").get("maxItems").at
	if got != float64(schemas.MaxCauses) {
		t.Errorf("maxItems of causes is %v, want MaxCauses, %d", got, schemas.MaxCauses)
	}
}

func TestRequestSchemaLimits(t *testing.T) {
	request := schemaOf(t, "request")
	target := request.get("$defs").get("target").get("properties")
	receipt := schemaOf(t, "receipt").get("properties")
	got := []any{
		request.get("properties").get("reason").get("maxLength").at, request.get("properties").get("requester").get("maxLength").at,
		request.get("properties").get("override").get("maxItems").at, target.get("pods").get("maxItems").at,
		receipt.get("pods").get("maxItems").at, receipt.get("missing").get("maxItems").at, receipt.get("remaining").get("maxItems").at,
	}
	const pods = float64(schemas.MaxRequestPods)
	same(t, "bounds", got, []any{
		float64(schemas.MaxRequestReason), float64(schemas.MaxRequester), float64(schemas.MaxOverride), pods, pods, pods, pods,
	})
}

func TestMaintenanceSchemaLimit(t *testing.T) {
	got := schemaOf(t, "maintenance").get("properties").get("nodes").get("maxItems").at
	if got != float64(schemas.MaxMaintenanceNodes) {
		t.Errorf("maxItems of nodes is %v, want MaxMaintenanceNodes, %d", got, schemas.MaxMaintenanceNodes)
	}
}

func TestSchemaHeads(t *testing.T) {
	for _, name := range schemaFiles() {
		s := schemaOf(t, name)
		got := []string{s.get("$schema").text(), s.get("$id").text()}
		want := []string{"https://json-schema.org/draft/2020-12/schema", "https://rehome.dev/schemas/v1/" + name + ".schema.json"}
		if !slices.Equal(got, want) {
			t.Errorf("%s: $schema and $id are %q, want %q", s.file, got, want)
		}
		if s.get("title").text() == "" || s.get("description").text() == "" {
			t.Errorf("%s: no title or no description", s.file)
		}
		for _, ref := range s.references() {
			if _, err := s.resolve(t, ref); err != nil {
				t.Errorf("%s: %v", s.file, err)
			}
		}
	}
}
