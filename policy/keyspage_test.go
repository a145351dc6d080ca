package policy_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/policy/strict"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// mostNamed is how many values of a list the page names.
const mostNamed = 8

// keys maps each key below a struct to its row in docs/policy.md, and lists the keys in the order of the fields. A key is nested with
// dots, and has [] after a list. s is the schema of the struct.
func (g generator) keys(s object, typ reflect.Type, at string) (rows map[string]string, order []string) {
	rows = map[string]string{}
	for f := range typ.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		key := strings.TrimPrefix(at+"."+name, ".")
		inner, below := f.Type, object(nil)
		switch {
		case f.Anonymous && name == "":
			key, below = at, s
		case name == "" || name == "-" || name == "disabled" || name == "sort" || name == "presort": // the last three have no effect
			continue
		default:
			below = s["properties"].(object)[name].(object)
		}
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		c := g.comment(typ, f)
		field := below
		if inner.Kind() == reflect.Slice && inner.Elem().Kind() == reflect.Struct {
			inner, key, below = inner.Elem(), key+"[]", below["items"].(object)
		}
		if inner.Kind() == reflect.Struct && strings.Contains(inner.PkgPath(), "rehome/policy") && c.page["type"] == "" {
			more, names := g.keys(below, inner, key)
			maps.Copy(rows, more)
			order = append(order, names...)
			continue
		}
		key, meaning := strings.TrimSuffix(key, "[]"), c.text
		if meaning != "" && slices.Contains(policy.OwnFields(), regexp.MustCompile(`^\w+`).FindString(key)) {
			meaning = "*Rehome*: " + meaning
		}
		row := fmt.Sprintf("| `%s` | %s | %s | %s |\n", key, typeOf(field, f, c), defaultOf(field, f, c), strings.TrimSuffix(meaning, "."))
		rows[key], order = strings.ReplaceAll(row, "|  |", "| |"), append(order, key)
	}
	return rows, order
}

// typeOf describes the values of a field.
func typeOf(s object, f reflect.StructField, c comment) string {
	if text := c.page["type"]; text != "" {
		return text
	}
	typ := f.Type
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if typ.Kind() == reflect.Slice {
		values := valuesOf(s["items"].(object))
		if n := len(values); n == 0 || n > mostNamed {
			values = []string{"strings"}
		}
		return "list of " + strings.Join(values, ", ")
	}
	if values := valuesOf(s); values != nil {
		return strict.Either(values)
	}
	name := map[reflect.Kind]string{reflect.Bool: "boolean", reflect.Float64: "number", reflect.String: "string", reflect.Map: "object"}[typ.Kind()]
	switch {
	case typ == reflect.TypeFor[time.Duration]() || typ == reflect.TypeFor[metav1.Duration]():
		name = "duration"
	case typ == reflect.TypeFor[strict.Percent]():
		name = "percentage"
	case typ == reflect.TypeFor[intstr.IntOrString]():
		name = "integer or percentage"
	case typ == reflect.TypeFor[metav1.LabelSelector]():
		name = "label selector"
	case name == "":
		name = "integer"
	}
	least, most := bound(f.Tag.Get("min")), bound(f.Tag.Get("max"))
	switch {
	case least != "" && most != "":
		return name + ", " + least + " to " + most
	case most != "":
		return name + ", at most " + most
	case least != "":
		return name + ", at least " + least
	}
	return name
}

// valuesOf returns the values of an enum as a file has them.
func valuesOf(s object) (all []string) {
	switch values := s["enum"].(type) {
	case []string: // of a version
		for _, w := range values {
			all = append(all, "`"+w+"`")
		}
	case []any:
		for _, w := range values {
			if text, err := yaml.Marshal(w); w != nil && err == nil {
				all = append(all, "`"+strings.TrimSpace(string(text))+"`")
			}
		}
	}
	if kind, is := s["const"]; is { // of the file
		all = append(all, fmt.Sprintf("`%v`", kind))
	}
	return all
}

// bound returns a bound of a tag as a file has it, or "" for none. 0 is none, because no number here is negative.
func bound(text string) string {
	if length, err := time.ParseDuration(text); err == nil && text != "0" {
		return "`" + strict.Short(length) + "`"
	} else if text == "0" {
		return ""
	}
	return text
}

// defaultOf describes the default of a field.
func defaultOf(s object, f reflect.StructField, c comment) string {
	if text := c.page["default"]; text != "" {
		return text
	}
	if f.Tag.Get("required") != "" {
		return "required"
	}
	text, err := json.Marshal(s["default"])
	length, timed := s["default"].(string)
	switch kind := f.Type.Kind(); {
	case s["default"] == nil && kind == reflect.Bool:
		return "false"
	case s["default"] == nil && (kind == reflect.Slice || kind == reflect.Map):
		return "none"
	case s["default"] == nil && (kind == reflect.Int64 || kind == reflect.Uint || f.Type == reflect.TypeFor[metav1.Duration]()):
		return "0"
	case s["default"] == nil || err != nil:
		return ""
	case timed && f.Type == reflect.TypeFor[time.Duration]():
		d, _ := time.ParseDuration(length)
		return "`" + strict.Short(d) + "`"
	case text[0] == '"':
		return "`" + strings.Trim(string(text), `"`) + "`"
	}
	return string(text)
}

var keyRow = regexp.MustCompile("^\\| `([^`]+)` \\|")

// TestKeysPage compares the keys in docs/policy.md with the structs and their comments. With UPDATE_GOLDEN=1 in the environment it
// writes the rows, a new one after the key before it.
func TestKeysPage(t *testing.T) {
	const path = "../docs/policy.md"
	text := filetest.Read(t, path)
	g := generator{comments(t)}
	for _, table := range []struct {
		section string
		typ     reflect.Type
		schema  object
	}{
		{"The file", reflect.TypeOf(policy.DefaultFile()).Elem(), policySchema(t)["else"].(object)},
		{"DefaultEvictor", reflect.TypeFor[policy.EvictorArgs](), g.schema(reflect.ValueOf(&policy.EvictorArgs{}).Elem())},
	} {
		start := strings.Index(text, "\n## "+table.section+"\n")
		start += strings.Index(text[start:], "|---|---|---|---|\n") + len("|---|---|---|---|\n")
		end := start + strings.Index(text[start:], "\n\n") + 1
		rows, keys := g.keys(table.schema, table.typ, "")
		var written []string
		for line := range strings.Lines(text[start:end]) {
			if key := keyRow.FindStringSubmatch(line)[1]; rows[key] != "" {
				written = append(written, key)
			}
		}
		for i, key := range keys {
			if strings.HasSuffix(rows[key], "| |\n") {
				t.Errorf("the field of %s has no comment", key)
			}
			if !slices.Contains(written, key) {
				after := 0
				if i > 0 {
					after = slices.Index(written, keys[i-1]) + 1
				}
				written = slices.Insert(written, after, key)
			}
		}
		var page strings.Builder
		for _, key := range written {
			page.WriteString(rows[key])
		}
		text = text[:start] + page.String() + text[end:]
	}
	policy.Golden(t, path, text)
}
