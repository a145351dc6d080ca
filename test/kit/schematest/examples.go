package schematest

import (
	"cmp"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
)

// Example is a published example.
type Example struct {
	// Name is the file name without .json, such as delta or verdict-deferred.
	Name string
	// Document is the content of the file.
	Document []byte
	// Event is the parsed document.
	Event schemas.Event
}

// Examples returns the published examples, sorted by time. It fails t if one is invalid.
func Examples(t testing.TB) []Example {
	t.Helper()
	files, err := fs.Glob(schemas.Files, "v1/examples/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("published examples: got %d files, error %v", len(files), err)
	}
	var examples []Example
	for _, file := range files {
		document, err := schemas.Files.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		e, err := Parse(document)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		name := strings.TrimSuffix(path.Base(file), ".json")
		examples = append(examples, Example{Name: name, Document: document, Event: e})
	}
	slices.SortFunc(examples, func(a, b Example) int {
		return cmp.Or(a.Event.Time.Compare(b.Event.Time), strings.Compare(a.Name, b.Name))
	})
	return examples
}

// Parse reads an event in the structured mode of CloudEvents, and sets the NATS subject for its data. Its error wraps
// [schemas.ErrInvalid].
func Parse(document []byte) (schemas.Event, error) {
	e, err := cloudevent.ReadStructured(document)
	if err != nil {
		return schemas.Event{}, err
	}
	p, err := schemas.DecodePayload(e)
	if err != nil {
		return schemas.Event{}, err
	}
	e.Channel = p.Channel()
	return e, nil
}

// ExampleOf returns the published example with a name.
func ExampleOf(t testing.TB, name string) Example {
	t.Helper()
	for _, e := range Examples(t) {
		if e.Name == name {
			return e
		}
	}
	t.Fatalf("there is no example %s", name)
	return Example{}
}
