// Package schematest checks in tests that events are what the contract promises.
//
// # Usage
//
// A test that produced or received events hands them to [Check]:
//
//	schematest.Check(t, events...)
//
// # What is checked
//
// The envelope and the data are validated against the closed form of the published schemas: a field that no schema
// describes is an error, so nobody can add one without describing it. Beyond what a schema can say, the CloudEvents
// subject and the NATS subject must be the ones that the data asks for, and the first event of a chain must correlate
// with itself.
package schematest

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/rehome-dev/rehome/schemas"
)

// Check fails t with one message for each of the events that is not what the contract promises.
func Check(t testing.TB, events ...schemas.Event) {
	t.Helper()
	v, err := New()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if err := v.Validate(e); err != nil {
			t.Error(err)
		}
	}
}

// Validator holds the compiled schemas. Make one with [New]. It may be used by many goroutines at once.
type Validator struct {
	envelope *jsonschema.Schema
	data     map[string]*jsonschema.Schema // by event type
}

// New compiles the closed form of the embedded schemas. It reads nothing from the network.
func New() (*Validator, error) { return compile(Closed) }

// NewOpen compiles the schemas as they are published: unknown fields are allowed.
func NewOpen() (*Validator, error) {
	return compile(func(schema []byte) ([]byte, error) { return schema, nil })
}

// Validate says what is wrong with e. Its error names the event and wraps [schemas.ErrInvalid].
//
// The NATS subject is only compared when e.Channel is set: an event that came over HTTP has none.
func (v *Validator) Validate(e schemas.Event) error {
	if err := v.validate(e); err != nil {
		return fmt.Errorf("event %s of type %s about %s: %w: %w", e.ID, e.Type, e.Subject, schemas.ErrInvalid, err)
	}
	return nil
}

func (v *Validator) validate(e schemas.Event) error {
	schema, ok := v.data[e.Type]
	if !ok {
		return fmt.Errorf("no schema for this type")
	}
	if err := validate(schema, e.Data); err != nil {
		return fmt.Errorf("data: %w", err)
	}
	envelope, err := Structured(e)
	if err != nil {
		return err
	}
	if err := validate(v.envelope, envelope); err != nil {
		return fmt.Errorf("envelope: %w", err)
	}
	if e.CausationID == "" && e.CorrelationID != e.ID {
		return fmt.Errorf("no causationid, but correlationid %q is not its own id", e.CorrelationID)
	}
	return names(e)
}

// names compares the names that the event goes by with those that its data asks for.
func names(e schemas.Event) error {
	p, err := Payload(e)
	if err != nil {
		return err
	}
	if got, want := e.Subject, p.About(); got != want {
		return fmt.Errorf("subject is %q, want %q", got, want)
	}
	if got, want := e.Channel, p.Channel(); got != "" && got != want {
		return fmt.Errorf("NATS subject is %q, want %q", got, want)
	}
	return nil
}

func validate(schema *jsonschema.Schema, document []byte) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

// compile makes a validator of the schemas after form was applied to each of them.
func compile(form func([]byte) ([]byte, error)) (*Validator, error) {
	files, err := fs.Glob(schemas.Files, "v1/*.schema.json")
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	c.UseLoader(jsonschema.SchemeURLLoader{}) // no scheme: a reference to anything but the files below is an error
	for _, file := range files {
		if err := add(c, file, form); err != nil {
			return nil, fmt.Errorf("schema %s: %w", file, err)
		}
	}
	v := &Validator{data: map[string]*jsonschema.Schema{}}
	for _, file := range files {
		s, err := c.Compile(schemaURL(file))
		if err != nil {
			return nil, err
		}
		if noun := strings.TrimSuffix(path.Base(file), ".schema.json"); noun == "event" {
			v.envelope = s
		} else {
			v.data["dev.rehome."+noun+"."+path.Dir(file)] = s
		}
	}
	return v, nil
}

func add(c *jsonschema.Compiler, file string, form func([]byte) ([]byte, error)) error {
	published, err := schemas.Files.ReadFile(file)
	if err != nil {
		return err
	}
	formed, err := form(published)
	if err != nil {
		return err
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(formed))
	if err != nil {
		return err
	}
	return c.AddResource(schemaURL(file), document)
}

// schemaURL is the $id of the schema in file.
func schemaURL(file string) string { return "https://rehome.dev/schemas/" + file }
