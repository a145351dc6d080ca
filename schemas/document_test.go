package schemas_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/rehome-dev/rehome/schemas"
)

// place is one value inside one of the files of the contract.
type place struct {
	file string // in schemas.Files
	at   any
}

// open reads a JSON or YAML file of the contract.
func open(t *testing.T, file string) place {
	t.Helper()
	text, err := schemas.Files.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if strings.HasSuffix(file, ".json") {
		err = json.Unmarshal(text, &v)
	} else {
		err = yaml.Unmarshal(text, &v)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return place{file: file, at: v}
}

// object is the value as a JSON object; an empty one when it is something else.
func (p place) object() map[string]any {
	o, _ := p.at.(map[string]any)
	return o
}

func (p place) get(key string) place { return place{p.file, p.object()[key]} }

// each lists the entries of an object or of an array by name or index, in a fixed order.
func (p place) each() []entry {
	var entries []entry
	for _, name := range slices.Sorted(maps.Keys(p.object())) {
		entries = append(entries, entry{name, p.get(name)})
	}
	list, _ := p.at.([]any)
	for i, v := range list {
		entries = append(entries, entry{fmt.Sprint(i), place{p.file, v}})
	}
	return entries
}

type entry struct {
	name string
	place
}

func (p place) names() []string {
	var names []string
	for _, e := range p.each() {
		names = append(names, e.name)
	}
	return names
}

// strings is a list of strings.
func (p place) strings() []string {
	var all []string
	for _, e := range p.each() {
		all = append(all, e.text())
	}
	return all
}

func (p place) text() string { s, _ := p.at.(string); return s }

// follow goes where the references at p lead.
func (p place) follow(t *testing.T) place {
	t.Helper()
	for {
		ref := p.get("$ref").text()
		if ref == "" {
			return p
		}
		next, err := p.resolve(t, ref)
		if err != nil {
			t.Fatalf("%s: %v", p.file, err)
		}
		p = next
	}
}

// resolve finds what a reference in p's file means. A file is named relative to the file that names it.
func (p place) resolve(t *testing.T, ref string) (place, error) {
	t.Helper()
	file, pointer, _ := strings.Cut(ref, "#")
	target := open(t, p.file)
	if file != "" {
		name := path.Join(path.Dir(p.file), file)
		if _, err := schemas.Files.Open(name); err != nil {
			return place{}, fmt.Errorf("reference %q: %w", ref, err)
		}
		target = open(t, name)
	}
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	for _, token := range strings.Split(pointer, "/")[1:] {
		target = target.get(unescape.Replace(token))
		if target.at == nil {
			return place{}, fmt.Errorf("reference %q: there is no %q", ref, token)
		}
	}
	return target, nil
}

// references lists every $ref at p and below.
func (p place) references() []string {
	var refs []string
	if ref := p.get("$ref").text(); ref != "" {
		refs = append(refs, ref)
	}
	for _, e := range p.each() {
		refs = append(refs, e.references()...)
	}
	return refs
}

// enum lists the values that a schema allows, through references and alternatives.
func (p place) enum(t *testing.T) []string {
	t.Helper()
	p = p.follow(t)
	values := p.get("enum").strings()
	for _, alternative := range p.get("anyOf").each() {
		values = append(values, alternative.enum(t)...)
	}
	return values
}

// sameSet fails t when got and want are not the same values, in whatever order, each once.
func sameSet(t *testing.T, what string, got, want []string) {
	t.Helper()
	got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}

// schemaFiles returns the names of the published schemas.
func schemaFiles() []string {
	return []string{"delta", "event", "intents", "maintenance", "receipt", "request", "scope", "verdict"}
}

func schemaOf(t *testing.T, name string) place {
	t.Helper()
	return open(t, "v1/"+name+".schema.json")
}
