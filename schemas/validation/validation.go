// Package validation validates events with the JSON Schemas of the contract.
//
// # Two forms
//
// The published schemas are open: unknown fields and values are valid, so readers with an older schema continue to work. [New]
// uses this form. Tests of producers use the closed form, which [NewClosed] derives, see [Closed].
//
// # Limits
//
// A schema cannot compare the subject of an event with its data, or check that the first event of a chain is its own correlation
// ID. Package schematest does that.
package validation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
)

// ErrUnknownType is wrapped by the error for an event type without a schema.
var ErrUnknownType = errors.New("unknown event type")

// Validator has the compiled schemas. It is safe for concurrent use. Use [New] or [NewClosed] to make one.
type Validator struct {
	envelope *jsonschema.Schema
	types    map[string]bool
}

// New compiles the published schemas in files, which has the layout of [schemas.Files]. References to other schemas are errors.
func New(files fs.FS) (*Validator, error) {
	return compile(files, func(schema []byte) ([]byte, error) { return schema, nil })
}

// NewClosed compiles the closed form of the schemas.
func NewClosed(files fs.FS) (*Validator, error) { return compile(files, Closed) }

// Validate validates an event in the structured mode of CloudEvents. Its error is a [Problems], or wraps [ErrUnknownType] if
// there is no schema for the type, or wraps [schemas.ErrInvalid] if event is not one JSON value in UTF-8.
func (v *Validator) Validate(event []byte) error {
	if !utf8.Valid(event) {
		return fmt.Errorf("%w: not UTF-8", schemas.ErrInvalid)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(event))
	if err != nil {
		return fmt.Errorf("%w: not JSON: %w", schemas.ErrInvalid, err)
	}
	object, _ := value.(map[string]any)
	if typ, named := object["type"].(string); named && !v.types[typ] {
		return fmt.Errorf("%w %q", ErrUnknownType, typ)
	}
	if err := problemsOf(v.envelope.Validate(value), value); err != nil {
		return err
	}
	if err := checkAttributes(object); err != nil {
		return err
	}
	_, err = cloudevent.ReadStructured(event)
	return err
}

// checkAttributes returns the [Problems] of attributes that package cloudevent does not read. The schemas are open, so they allow
// any name and any value of an unknown attribute.
func checkAttributes(event map[string]any) error {
	var wrong Problems
	for name, value := range event {
		p := Problem{Field: pointer([]string{name}), Got: asJSON(value)}
		if isRead(name, p.Got) {
			continue
		}
		switch _, isText := value.(string); {
		case !isRead(name, json.RawMessage(`"2030-01-02T15:04:05Z"`)): // which is a value of each attribute
			p.Want = "a name of lower-case letters and digits"
		case isText:
			p.Want = ofFormat("date-time")
		default:
			p.Want = "a string, a boolean, or a number of 32 bits"
		}
		wrong = append(wrong, p)
	}
	if len(wrong) == 0 {
		return nil
	}
	return wrong.sorted()
}

// isRead reports whether package cloudevent reads an event with an attribute.
func isRead(name string, value json.RawMessage) bool {
	event := map[string]json.RawMessage{
		"specversion": json.RawMessage(`"1.0"`), "id": json.RawMessage(`"1"`), "source": json.RawMessage(`"/a"`),
		"type": json.RawMessage(`"a"`), "data": json.RawMessage(`{}`),
	}
	if _, needed := event[name]; needed { // the schema has checked its value
		return true
	}
	event[name] = value
	document, err := json.Marshal(event)
	if err == nil {
		_, err = cloudevent.ReadStructured(document)
	}
	return err == nil
}

// compile compiles the schemas after applying form to each.
func compile(files fs.FS, form func([]byte) ([]byte, error)) (*Validator, error) {
	names, err := fs.Glob(files, "v1/*.schema.json")
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	c.UseLoader(jsonschema.SchemeURLLoader{}) // has no schemes, so references to other files are errors
	for _, name := range names {
		if err := add(c, files, name, form); err != nil {
			return nil, fmt.Errorf("schema %s: %w", name, err)
		}
	}
	for _, name := range names { // including schemas that no event refers to
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

// typeOf returns the event type of a condition of the envelope.
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

// address returns the $id of the schema in a file.
func address(name string) string { return "https://rehome.dev/schemas/" + path.Clean(name) }

// asJSON encodes a value on one line and keeps its numbers unchanged.
func asJSON(value any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return nil
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
