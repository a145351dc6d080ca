package policy_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/policy/strict"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// comment is the comment of a field.
type comment struct {
	text string            // without links of Go, with links of Markdown
	page map[string]string // the lines //page:NAME TEXT, which are only for docs/policy.md
}

// links of Go and of Markdown.
var (
	goLink   = regexp.MustCompile(`\[([\w.]+)\]([^(]|$)`)
	pageLink = regexp.MustCompile(`\[([^\]]+)\]\([^)]+\)`)
)

// comments maps PACKAGE.TYPE.FIELD to the comment of the field.
func comments(t *testing.T) map[string]comment {
	t.Helper()
	files, err := filepath.Glob("*.go")
	inside, _ := filepath.Glob("../functions/*/*.go")
	expect.Must(t, err)
	all := map[string]comment{}
	for _, name := range append(files, inside...) {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		expect.Must(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if s, ok := spec.Type.(*ast.StructType); ok {
				for _, f := range s.Fields.List {
					c := comment{goLink.ReplaceAllString(strings.Join(strings.Fields(f.Doc.Text()), " "), "$1$2"), map[string]string{}}
					if f.Doc != nil {
						for _, line := range f.Doc.List {
							if line, is := strings.CutPrefix(line.Text, "//page:"); is {
								name, text, _ := strings.Cut(line, " ")
								c.page[name] = text
							}
						}
					}
					for _, name := range f.Names {
						all[file.Name.Name+"."+spec.Name.Name+"."+name.Name] = c
					}
				}
			}
			return true
		})
	}
	return all
}

// object is a JSON object with sorted keys.
type object = map[string]any

// generator generates JSON Schemas of types that the decoder reads. A null means no entry.
type generator struct{ comments map[string]comment }

// comment returns the comment of a field of a struct.
func (g generator) comment(owner reflect.Type, f reflect.StructField) comment {
	return g.comments[filepath.Base(owner.PkgPath())+"."+owner.Name()+"."+f.Name]
}

// typed returns a schema of values of a type, or null.
func typed(names ...string) object {
	return object{"type": append(slices.Clone(names), "null")}
}

// schema returns the schema of a value whose default is v.
func (g generator) schema(v reflect.Value) object {
	switch typ := v.Type(); typ {
	case reflect.TypeFor[*yaml.Node](), reflect.TypeFor[json.RawMessage]():
		return object{}
	case reflect.TypeFor[time.Duration](), reflect.TypeFor[metav1.Duration]():
		s := typed("string", "integer")
		s["pattern"], s["maximum"] = `^-?([0-9.]+(ns|us|µs|ms|s|m|h))+$|^0$`, 0
		return s
	case reflect.TypeFor[strict.Percent]():
		s := typed("string")
		s["pattern"] = `^(100|[0-9]{1,2})%$`
		return s
	case reflect.TypeFor[intstr.IntOrString]():
		s := typed("integer", "string")
		s["minimum"], s["pattern"] = 0, `^(100|[0-9]{1,2})%$`
		return s
	case reflect.TypeFor[metav1.LabelSelectorOperator]():
		s := typed("string")
		s["enum"] = []any{nil, "In", "NotIn", "Exists", "DoesNotExist"}
		return s
	}
	switch kind := v.Kind(); {
	case kind == reflect.Pointer && v.IsNil():
		return g.schema(reflect.New(v.Type().Elem()).Elem())
	case kind == reflect.Pointer:
		return g.schema(v.Elem())
	case kind == reflect.Bool:
		return typed("boolean")
	case kind == reflect.String:
		return typed("string")
	case kind == reflect.Float64:
		return typed("number")
	case v.CanInt():
		s := typed("integer")
		if v.Type().Bits() < 64 {
			s["minimum"], s["maximum"] = -1<<(v.Type().Bits()-1), 1<<(v.Type().Bits()-1)-1
		}
		return s
	case v.CanUint():
		s := typed("integer")
		s["minimum"] = 0
		return s
	case kind == reflect.Slice:
		s := typed("array")
		s["items"] = g.schema(reflect.New(v.Type().Elem()).Elem())
		if items := s["items"].(object); items["type"] != nil { // a null is no item
			items["type"] = slices.DeleteFunc(items["type"].([]string), func(name string) bool { return name == "null" })
		}
		return s
	case kind == reflect.Map:
		s := typed("object")
		s["additionalProperties"] = g.schema(reflect.New(v.Type().Elem()).Elem())
		return s
	}
	s := typed("object")
	s["additionalProperties"], s["properties"] = false, object{}
	if section, ok := reflect.TypeAssert[interface{ SetDefaults() }](v.Addr()); ok && v.IsZero() {
		section.SetDefaults()
	}
	g.fields(s, v)
	return s
}

// fields adds the fields of a struct to its schema.
func (g generator) fields(s object, v reflect.Value) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			g.fields(s, v.Field(i))
		}
		if name == "" || name == "-" {
			continue
		}
		field := g.schema(addressable(v.Field(i)))
		if words := strict.Enum(v.Type(), f, name); words != nil {
			into := field
			var values []any
			if f.Type.Kind() == reflect.Slice {
				into, field["uniqueItems"] = field["items"].(object), true
			} else {
				values = []any{nil}
			}
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
		if text, timed := field["pattern"].(string); timed && f.Type.Kind() == reflect.Int64 && f.Tag.Get("min")+f.Tag.Get("above") != "" {
			field["pattern"] = strings.ReplaceAll(text, "-?", "")
			if _, above := f.Tag.Lookup("above"); above {
				field["allOf"] = []object{{"pattern": "[1-9]"}}
			}
		}
		if pattern := f.Tag.Get("pattern"); pattern != "" && f.Type.Kind() == reflect.Slice {
			field["items"].(object)["pattern"] = strict.PatternOf(pattern).Regexp
		} else if pattern != "" {
			field["pattern"] = strict.PatternOf(pattern).Regexp
		}
		if text := g.comment(v.Type(), f).text; text != "" {
			field["description"] = pageLink.ReplaceAllString(text, "$1")
		}
		if field["type"] != nil && field["properties"] == nil && !v.Field(i).IsZero() && f.Type.Kind() != reflect.Slice {
			field["default"] = v.Field(i).Interface()
			if length, ok := field["default"].(time.Duration); ok {
				field["default"] = length.String()
			}
		}
		if f.Tag.Get("required") != "" {
			required, _ := s["required"].([]string)
			s["required"] = append(required, name)
			field["type"] = slices.DeleteFunc(field["type"].([]string), func(name string) bool { return name == "null" })
			if f.Type.Kind() == reflect.String && field["enum"] == nil {
				field["minLength"] = 1
			}
		}
		s["properties"].(object)[name] = field
	}
}

func addressable(v reflect.Value) reflect.Value {
	to := reflect.New(v.Type()).Elem()
	to.Set(v)
	return to
}

// at returns the schema at a path of properties and items of arrays.
func at(s object, path ...string) object {
	for _, name := range path {
		if name == "[]" {
			s = s["items"].(object)
		} else {
			s = s["properties"].(object)[name].(object)
		}
	}
	return s
}

// when returns a schema that applies if a property has a value.
func when(property, value string, then object) object {
	return object{
		"if":   object{"properties": object{property: object{"const": value}}, "required": []string{property}},
		"then": then,
	}
}

// policySchema returns the JSON Schema of the policy file with the strategies of this program.
func policySchema(t *testing.T) object {
	t.Helper()
	g := generator{comments(t)}
	s := g.schema(reflect.ValueOf(policy.DefaultFile()).Elem())
	older := g.schema(reflect.ValueOf(policy.OlderFile()).Elem())
	both := object{
		"apiVersion": object{"enum": []string{policy.Version, policy.DeschedulerVersion, policy.OlderVersion}},
		"kind":       object{"const": policy.Kind},
	}
	for _, version := range []object{s, older} {
		maps.Copy(at(version)["properties"].(object), both)
	}
	at(s, "presets")["items"].(object)["enum"], at(s, "presets")["uniqueItems"] = policy.PresetNames(), true
	points := map[policy.Point][]string{}
	names := []string{policy.EvictorName}
	args := []object{when("name", policy.EvictorName, object{"properties": object{"args": g.schema(reflect.ValueOf(&policy.EvictorArgs{}).Elem())}})}
	for _, f := range functions.All() {
		points[f.Strategy.Point] = append(points[f.Strategy.Point], f.Strategy.Name)
		names = append(names, f.Strategy.Name)
		args = append(args, when("name", f.Strategy.Name, object{
			"description": f.Strategy.Summary,
			"properties":  object{"args": g.schema(reflect.ValueOf(f.Strategy.NewArgs()).Elem())},
		}))
	}
	at(s, "profiles", "[]", "pluginConfig", "[]")["allOf"] = args
	own := object{}
	for _, name := range policy.OwnFields() {
		own[name] = false
	}
	profile := object{"pluginConfig": object{"items": object{"properties": object{"name": object{"enum": names}}}}}
	plugins := object{}
	for point, names := range points {
		plugins[string(point)] = object{"properties": object{"enabled": object{"items": object{"enum": names}}}}
	}
	profile["plugins"] = object{"properties": plugins}
	s["allOf"] = []object{
		when("apiVersion", policy.DeschedulerVersion, object{"properties": own}),
		{ // else functions have names of their own
			"if":   object{"properties": object{"functions": false}},
			"then": object{"properties": object{"profiles": object{"items": object{"properties": profile}}}},
		},
	}
	strategies := object{"type": "object", "properties": object{}, "additionalProperties": false}
	for name, params := range policy.OlderParams() {
		i := slices.IndexFunc(functions.All(), func(f functions.Function) bool { return f.Strategy.Name == name })
		arguments := g.schema(reflect.ValueOf(functions.All()[i].Strategy.NewArgs()).Elem())["properties"].(object)
		strategy := g.schema(reflect.ValueOf(policy.OlderStrategy()).Elem())
		to := g.schema(reflect.ValueOf(policy.OlderCommon()).Elem())
		for path, argument := range params {
			block, key, nested := strings.Cut(path, ".")
			if !nested {
				to["properties"].(object)[path] = arguments[argument]
				continue
			}
			if to["properties"].(object)[block] == nil {
				to["properties"].(object)[block] = object{"type": "object", "properties": object{}, "additionalProperties": false}
			}
			at(to, block)["properties"].(object)[key] = arguments[argument]
		}
		if soft := "includeSoftConstraints"; params[soft] != "" {
			to["properties"].(object)[soft] = typed("boolean")
		}
		strategy["properties"].(object)["params"] = to
		strategies["properties"].(object)[name] = strategy
	}
	older["properties"].(object)["strategies"] = strategies
	whole := when("apiVersion", policy.OlderVersion, older)
	whole["else"] = s
	whole["$id"] = published
	whole["$schema"], whole["title"] = "https://json-schema.org/draft/2020-12/schema", "Rehome policy"
	whole["type"], whole["required"], whole["properties"] = "object", []string{"apiVersion", "kind"}, both
	return whole
}

// published is the address of the schema of the last release.
const published = "https://github.com/rehome-dev/rehome/releases/latest/download/policy.schema.json"

// compiled returns the schema of the program, as an independent validator reads it.
func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(policy.Schema()))
	expect.Must(t, err)
	c := jsonschema.NewCompiler()
	if err := c.AddResource(published, document); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile(published)
	expect.Must(t, err)
	return schema
}

// refused returns the fields of a file that a schema rejects, in the format of policy check.
func refused(s *jsonschema.Schema, data []byte) (fields []string) {
	var value any
	if err := yaml.Unmarshal(data, &value); err != nil {
		return []string{err.Error()}
	}
	var add func(*jsonschema.ValidationError)
	add = func(v *jsonschema.ValidationError) {
		path := strings.Join(v.InstanceLocation, ".")
		switch k := v.ErrorKind.(type) {
		case *kind.Required:
			for _, name := range k.Missing {
				fields = append(fields, strict.Join(path, name))
			}
		case *kind.AdditionalProperties:
			for _, name := range k.Properties {
				fields = append(fields, strict.Join(path, name))
			}
		case *kind.UniqueItems:
			fields = append(fields, strict.Join(path, strconv.Itoa(k.Duplicates[1])))
		default:
			if len(v.Causes) == 0 {
				fields = append(fields, path)
			}
		}
		for _, cause := range v.Causes {
			add(cause)
		}
	}
	if invalid, ok := errors.AsType[*jsonschema.ValidationError](s.Validate(value)); ok {
		add(invalid)
	}
	return fields
}

// TestSchema compares policy.schema.json with the structs. UPDATE_GOLDEN=1 in the environment rewrites it.
func TestSchema(t *testing.T) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(policySchema(t)); err != nil {
		t.Fatal(err)
	}
	policy.Golden(t, "policy.schema.json", b.String())
}

// beyond returns the broken files that no schema can reject, by their error.
func beyond() map[string][]string {
	return map[string][]string{
		"a second document": {"two-documents"},
		"two fields": {
			"circuit-breakers-against-their-defaults", "customizations-that-exclude-each-other", "customized-namespaces-both",
			"evictor-older-fields", "evictor-threshold-twice", "metrics-with-a-block-of-another-source", "namespaces-both",
			"percentages-out-of-order", "prometheus-without-its-block", "protections-by-both-ways",
			"functions-that-a-built-in-strategy-has",
		},
		"two items": {"configured-twice", "metrics-source-twice", "profile-names", "profile-names-missing", "profile-names-twice"},
		"two sections": {
			"customizations-of-no-preset", "customizations-without-presets", "customizations-without-prometheus",
			"customized-namespaces-of-whole-nodes", "enabled-without-a-config", "measured-by-another-source", "measured-by-nobody",
			"metrics-asked-for-in-both-ways", "preset-and-profile-of-one-name", "preset-without-prometheus",
			"presets-that-change-nothing", "presets-that-conflict", "presets-that-conflict-by-older-names",
		},
		"its own syntax":          {"customized-query-empty", "node-selector", "node-selector-syntax", "prometheus-url"},
		"how long a duration is":  {"requests-too-long", "window-too-long"},
		"the names of namespaces": {"customized-namespaces-protected", "namespace-patterns-in-the-version-of-the-descheduler"},
		"a check of a strategy":   {"constraints-unknown", "evictable-namespaces-included", "thresholds-missing"},
	}
}

// TestSchemaAndCheckAgree compares the schema with Parse for every example of a policy in the repository: the schema
// accepts what Parse accepts. What Parse rejects, it rejects for a field of Parse, unless no schema can.
func TestSchemaAndCheckAgree(t *testing.T) {
	var files []string
	for _, pattern := range []string{
		"testdata/*.yaml", "testdata/*/*.yaml", "../deploy/policy.yaml", "../deploy/kustomize/policy/policy.yaml",
		"../deploy/kustomize/components/*/policy.yaml", "../deploy/helm/rehome/files/policy.yaml", "../docs/examples/*/policy.yaml",
		"../cli/testdata/policy.yaml", "../cli/testdata/broken.yaml", "../functions/testdata/*.yaml",
		"../test/equivalence/testdata/everything.yaml",
	} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: no file, %v", pattern, err)
		}
		files = append(files, found...)
	}
	excused := map[string]bool{}
	for _, names := range beyond() {
		for _, name := range names {
			excused[name] = true
		}
	}
	schema := compiled(t)
	for _, path := range files {
		data, err := os.ReadFile(path)
		expect.Must(t, err)
		if !strings.Contains(path, "testdata/") && !bytes.HasPrefix(data, []byte("# yaml-language-server: $schema="+published+"\n")) {
			t.Errorf("%s does not name the schema in its first line", path)
		}
		_, err = policy.Parse(path, data, settings.Strategies())
		problems, _ := errors.AsType[policy.Problems](err)
		got, want := refused(schema, data), fieldsOf(problems)
		switch agree := slices.ContainsFunc(got, func(field string) bool { return covers(want, field) }); {
		case yaml.Unmarshal(data, new(any)) != nil && len(want) > 0: // editors report that without a schema
		case len(want) == 0 && len(got) > 0:
			t.Errorf("%s: the schema refuses %q, and it is right", path, got)
		case excused[strings.TrimSuffix(filepath.Base(path), ".yaml")]:
			if len(got) > 0 {
				t.Errorf("%s: the schema refuses %q, so it needs no excuse", path, got)
			}
		case len(want) > 0 && !agree:
			t.Errorf("%s: the schema refuses %q, want one of %q", path, got, want)
		}
	}
}

// fieldsOf returns the fields of problems, with dots before items and keys.
func fieldsOf(problems policy.Problems) (fields []string) {
	for _, p := range problems {
		fields = append(fields, strings.NewReplacer("[", ".", "]", "").Replace(p.Field))
	}
	return fields
}

// covers reports whether a field is one of fields, or inside or around one.
func covers(fields []string, field string) bool {
	return slices.ContainsFunc(fields, func(f string) bool {
		return f == field || strings.HasPrefix(f, field+".") || strings.HasPrefix(field, f+".")
	})
}
