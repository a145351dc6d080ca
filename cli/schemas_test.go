package cli

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

const contract = "../schemas/v1/"

func TestSchemasPrint(t *testing.T) {
	list := []string{"event"}
	for _, typ := range schemas.EventTypes() {
		list = append(list, schemas.NounOf(typ))
	}
	slices.Sort(list)
	nouns := strings.Join(list, ", ")
	files, failed := filepath.Glob(contract + "examples/*.json")
	if failed != nil || len(files) == 0 {
		t.Fatalf("got %d examples, error %v", len(files), failed)
	}
	for i, file := range files {
		files[i] = strings.TrimSuffix(filepath.Base(file), ".json")
	}
	examples := strings.Join(files, ", ")
	converse(t, "schemas print", []dialogue{
		{"by its type", []string{"dev.rehome.verdict.v1"}, "", filetest.Read(t, contract+"verdict.schema.json"), ""},
		{"an example of a type", []string{"--example", "dev.rehome.intents.v1"}, "", filetest.Read(t, contract+"examples/intents.json"), ""},
		{"no schema of an example", []string{"verdict-settled"}, "", "", `no schema "verdict-settled"; there are: ` + nouns},
		{"no example of the envelope", []string{"event", "--example"}, "", "", `no example "event"; there are: ` + examples},
		{"no later version", []string{"dev.rehome.delta.v2"}, "", "", `no schema "dev.rehome.delta.v2"; there are: ` + nouns},
		{"nothing elsewhere", []string{"../asyncapi"}, "", "", `no schema "../asyncapi"; there are: ` + nouns},
	})
}

func TestSchemasPrintAll(t *testing.T) {
	for pattern, flags := range map[string][]string{"*.schema.json": nil, "examples/*.json": {"--example"}} {
		files, err := filepath.Glob(contract + pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: got %d files, error %v", pattern, len(files), err)
		}
		for _, file := range files {
			name, _, _ := strings.Cut(filepath.Base(file), ".")
			if out, err := said(t, "", append([]string{"schemas", "print", name}, flags...)...); out != filetest.Read(t, file) {
				t.Errorf("%s: error %q, got\n%s", name, err, out)
			}
		}
	}
}

// exampleLine returns a published example on one line after replacing parts of its text.
func exampleLine(t *testing.T, name string, pairs ...string) string {
	t.Helper()
	for _, e := range schematest.Examples(t) {
		if e.Name != name {
			continue
		}
		line, err := cloudevent.WriteStructured(e.Event)
		expect.Must(t, err)
		for i := 0; i < len(pairs); i += 2 {
			if !strings.Contains(string(line), pairs[i]) {
				t.Fatalf("%s does not contain %s", name, pairs[i])
			}
		}
		return strings.NewReplacer(pairs...).Replace(string(line)) + "\n"
	}
	t.Fatalf("there is no example %s", name)
	panic("unreachable")
}

const (
	vanished = `stdin[1]: dev.rehome.verdict.v1: /data/outcome: got "vanished", want one of evicted, restarted, requested, ` +
		"deferred, rejected, withdrawn, expired, failed, settled\n"
)

func TestSchemasValidate(t *testing.T) {
	allTypes := "one of " + strings.Join(schemas.EventTypes(), ", ")
	delta, nameless := exampleLine(t, "delta"), exampleLine(t, "delta", `"name":"worker-7"`, `"name":""`)
	untimed := exampleLine(t, "verdict", `"time":`, `"thyme":`, `"evicted"`, `7`)
	later := exampleLine(t, "verdict", `"evicted"`, `"vanished"`)
	const nameOfObject = `dev.rehome.delta.v1: /data/object/name: got "", want a string that is not empty` + "\n"
	converse(t, "schemas validate", []dialogue{
		{"one event", nil, delta, "stdin: 1 valid event\n", ""},
		{"none", nil, " \n", "stdin: no valid event\n", ""},
		{"one a line", []string{"-"}, delta + "\n" + later, "stdin: 2 valid events\n", ""},
		{"a list", []string{"-"}, "[" + delta + "," + later + "]", "stdin: 2 valid events\n", ""},
		{"an empty list", []string{"-"}, "[]", "stdin: no valid event\n", ""},
		{
			"files, each for itself", []string{contract + "examples/delta.json", "-", contract + "examples/scope.json"}, nameless,
			contract + "examples/delta.json: 1 valid event\nstdin[0]: " + nameOfObject + contract + "examples/scope.json: 1 valid event\n",
			"1 of 3 events not valid",
		},
		{
			"each field that is wrong is a line, by its index", nil, "[" + delta + "," + untimed + "]" + nameless,
			`stdin[1]: dev.rehome.verdict.v1: /data/outcome: got 7, want a string
stdin[1]: dev.rehome.verdict.v1: /time: got nothing, want a value: the field is required
stdin[2]: ` + nameOfObject, "2 of 3 events not valid",
		},
		{"unknown value, open", nil, delta + later, "stdin: 2 valid events\n", ""},
		{"unknown value, strict", []string{"--strict"}, delta + later, vanished, "1 of 2 events not valid"},
		{
			"unknown field, strict", []string{"--strict"}, exampleLine(t, "intents", `"node":`, `"note":"x","node":`),
			`stdin[0]: dev.rehome.intents.v1: /data/intents/0/note: got "x", want nothing: there is no such field here
stdin[0]: dev.rehome.intents.v1: /data/intents/1/note: got "x", want nothing: there is no such field here
stdin[0]: dev.rehome.intents.v1: /data/intents/2/note: got "x", want nothing: there is no such field here
`, "1 of 1 event not valid",
		},
		{
			"a type that there is no schema for", nil, delta + `{"type":"com.example.thing.v1"}`,
			`stdin[1]: com.example.thing.v1: /type: got "com.example.thing.v1", want ` + allTypes + "\n",
			"1 of 2 events of an unknown type, 0 not valid",
		},
		{
			"invalid JSON and the rest", nil, delta + "moin\n" + delta,
			`stdin[1]: no type: the event: got "moin", want a JSON object: invalid character 'm' looking for beginning of value` + "\n",
			"1 of 2 events not valid",
		},
		{
			"an event that ends early", nil, `{"type":`,
			`stdin[0]: no type: the event: got "{\"type\":", want a JSON object: unexpected EOF` + "\n",
			"1 of 1 event not valid",
		},
		{
			"JSON has only problems", []string{"-o", "json"}, delta + "[3]" + nameless,
			`{"file":"stdin","index":1,"field":"","got":3,"want":"an object"}
{"file":"stdin","index":2,"type":"dev.rehome.delta.v1","field":"/data/object/name","got":"","want":"a string that is not empty"}
`, "2 of 3 events not valid",
		},
		{
			"not when a file cannot be read", []string{"nope.json", "-"}, nameless, "",
			"nope.json: cannot be read: no such file or directory",
		},
	})
}
