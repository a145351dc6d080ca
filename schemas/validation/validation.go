// Package validation holds events against the JSON Schemas of the contract.
//
// # Two forms
//
// The schemas are published open: a field or a value that they do not know is no error, so that whoever reads events with
// an older schema goes on reading. [New] makes a validator of that form. Producers are held against the closed form,
// which is derived from the published one: [NewClosed], see [Closed].
//
// # What is not checked
//
// A schema cannot say that the subject of an event is the one that its data asks for, or that the first event of a chain
// correlates with itself. Package schematest checks that, too.
package validation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/rehome-dev/rehome/schemas"
)

// ErrUnknownType is wrapped by the error about an event whose type the contract does not know. Whether it is right
// cannot be said.
var ErrUnknownType = errors.New("unknown event type")

// Validator holds the compiled schemas. Make one with [New] or [NewClosed]. It may be used by many goroutines at once.
type Validator struct {
	envelope *jsonschema.Schema
	types    map[string]bool
}

// New compiles the schemas of files as they are published. files has them where [schemas.Files] has them. Nothing is read
// from elsewhere: a reference to a schema that is not among them is an error.
func New(files fs.FS) (*Validator, error) {
	return compile(files, func(schema []byte) ([]byte, error) { return schema, nil })
}

// NewClosed is New with the closed form of the schemas.
func NewClosed(files fs.FS) (*Validator, error) { return compile(files, Closed) }

// Validate says what is wrong with an event in the structured mode of CloudEvents. It fails with an error of type
// [Problems], by field; or with one that wraps [ErrUnknownType] when the event names a type and there is no schema for
// that; or with one that wraps [schemas.ErrInvalid] when event is not one JSON value.
func (v *Validator) Validate(event []byte) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(event))
	if err != nil {
		return fmt.Errorf("%w: not JSON: %w", schemas.ErrInvalid, err)
	}
	object, _ := value.(map[string]any)
	if typ, named := object["type"].(string); named && !v.types[typ] {
		return fmt.Errorf("%w %q", ErrUnknownType, typ)
	}
	return problemsOf(v.envelope.Validate(value), value)
}

// compile makes a validator of the schemas after form was applied to each of them.
func compile(files fs.FS, form func([]byte) ([]byte, error)) (*Validator, error) {
	names, err := fs.Glob(files, "v1/*.schema.json")
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	c.UseLoader(jsonschema.SchemeURLLoader{}) // no scheme: a reference to anything but these files is an error
	for _, name := range names {
		if err := add(c, files, name, form); err != nil {
			return nil, fmt.Errorf("schema %s: %w", name, err)
		}
	}
	for _, name := range names { // also those that no event leads to
		if _, err := c.Compile(address(name)); err != nil {
			return nil, err
		}
	}
	v := &Validator{types: map[string]bool{}}
	if v.envelope, err = c.Compile(address("v1/event.schema.json")); err != nil {
		return nil, err
	}
	for _, condition := range v.envelope.AllOf {
		if typ, ok := typeOf(condition); ok {
			v.types[typ] = true
		}
	}
	return v, nil
}

// typeOf is the event type that a condition of the envelope is about.
func typeOf(condition *jsonschema.Schema) (string, bool) {
	if condition.If == nil || condition.If.Properties["type"] == nil || condition.If.Properties["type"].Const == nil {
		return "", false
	}
	typ, ok := (*condition.If.Properties["type"].Const).(string)
	return typ, ok
}

func add(c *jsonschema.Compiler, files fs.FS, name string, form func([]byte) ([]byte, error)) error {
	published, err := fs.ReadFile(files, name)
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
	return c.AddResource(address(name), document)
}

// address is the $id of the schema in the file of that name.
func address(name string) string { return "https://rehome.dev/schemas/" + path.Clean(name) }

// asJSON writes a value on one line, with its numbers as they were.
func asJSON(value any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return nil
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
