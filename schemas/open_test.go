package schemas_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/validation"
	"github.com/rehome-dev/rehome/test/schematest"
)

// isLater reports whether a schema is the reference that keeps others open.
func isLater(schema place) bool {
	return strings.HasSuffix(schema.get("$ref").text(), "#/$defs/"+validation.Later)
}

// closing returns the parts of a published schema that reject additions: enums without an alternative, and forbidden fields.
func closing(path string, schema place) []string {
	var found []string
	for _, keyword := range []string{"additionalProperties", "unevaluatedProperties", "unevaluatedItems"} {
		if schema.get(keyword).at == false {
			found = append(found, path+" says "+keyword+": false")
		}
	}
	for _, p := range schema.get("properties").each() {
		if p.at == false {
			found = append(found, path+" forbids the field "+p.name)
		}
	}
	alternatives := schema.get("anyOf").each()
	open := slices.ContainsFunc(alternatives, func(e entry) bool { return isLater(e.place) })
	for _, e := range schema.each() {
		switch {
		case e.name == "enum":
			found = append(found, path+" has an enum that cannot grow")
		case e.name == "anyOf" && open:
			for _, alternative := range alternatives {
				if alternative.get("enum").at == nil {
					found = append(found, closing(path+"/anyOf/"+alternative.name, alternative.place)...)
				}
			}
		default:
			found = append(found, closing(path+"/"+e.name, e.place)...)
		}
	}
	return found
}

func TestPublishedSchemasAreOpen(t *testing.T) {
	for _, name := range schemaFiles() {
		for _, sentence := range closing("#", schemaOf(t, name)) {
			t.Errorf("v1/%s.schema.json: %s", name, sentence)
		}
	}
}

func TestClosedSchemasAreFound(t *testing.T) {
	later := map[string]any{"$ref": "delta.schema.json#/$defs/later"}
	words := map[string]any{"type": "string", "enum": []any{"a"}}
	got := closing("#", place{at: map[string]any{
		"properties": map[string]any{
			"open":   map[string]any{"anyOf": []any{words, later}},
			"closed": words,
			"half":   map[string]any{"anyOf": []any{words}},
			"never":  false,
		},
		"items": map[string]any{"additionalProperties": false, "unevaluatedProperties": true},
	}})
	want := []string{
		"# forbids the field never",
		"#/items says additionalProperties: false",
		"#/properties/closed has an enum that cannot grow",
		"#/properties/half/anyOf/0 has an enum that cannot grow",
	}
	same(t, "found", got, want)
}

func TestUnknownValues(t *testing.T) {
	closed, err := schematest.New()
	if err != nil {
		t.Fatal(err)
	}
	open, err := validation.New(schemas.Files)
	if err != nil {
		t.Fatal(err)
	}
	delta, _ := example[schemas.Delta](t, "delta")
	scope, _ := example[schemas.NodeScope](t, "scope")
	verdict, _ := example[schemas.Verdict](t, "verdict")
	restarted, _ := example[schemas.Verdict](t, "verdict-restarted")
	for name, e := range map[string]schemas.Event{
		"a kind of delta":                    with(t, delta, "node.painted", "kind"),
		"a node with a node":                 with(t, delta, "worker-7", "node"),
		"a status":                           with(t, delta, "Perhaps", "after", "ready"),
		"a phase":                            with(t, delta, "Dreaming", "after", "phase"),
		"a status of a condition":            with(t, delta, map[string]any{"Ready": "Perhaps"}, "after", "conditions"),
		"a kind of scope":                    with(t, scope, "rack", "kind"),
		"a kind of cause":                    with(t, scope, "whim", "causes", 0, "kind"),
		"an outcome":                         with(t, verdict, "vanished", "outcome"),
		"a reason":                           with(t, verdict, "Whim", "reason"),
		"a reason for another outcome":       with(t, verdict, "PodGone", "reason"),
		"a method":                           with(t, restarted, "persuasion", "method"),
		"a method instead of another":        with(t, restarted, instead("persuasion", "RestartNoRoom"), "instead"),
		"a reason to use another":            with(t, restarted, instead("surge", "Replaced"), "instead"),
		"a settlement of a move that is new": with(t, restarted, map[string]any{"seconds": 1}, "settlement"),
		"a kind of the scope of a verdict":   with(t, verdict, "rack", "scope", "kind"),
	} {
		document, err := schematest.Structured(e)
		if err != nil {
			t.Fatal(err)
		}
		if err := open.Validate(document); err != nil {
			t.Errorf("%s: published schema: %v", name, err)
		}
		if err := closed.Validate(e); !errors.Is(err, schemas.ErrInvalid) {
			t.Errorf("%s: closed schema: got error %v, want one that wraps ErrInvalid", name, err)
		}
	}
}
