package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// Schema validates the arguments of a strategy that the policy describes. It is safe for concurrent use.
type Schema struct{ compiled *jsonschema.Schema }

// dialect is the supported version of JSON Schema.
const dialect = "https://json-schema.org/draft/2020-12/schema"

// NewSchema compiles a JSON Schema. Each error is a *[FieldError] below the schema. A reference to another document is
// an error, because nothing is loaded.
func NewSchema(written map[string]json.RawMessage) (*Schema, error) {
	var found Findings
	if named, given := written["$schema"]; given && string(named) != `"`+dialect+`"` {
		found.Add("[$schema]", named, "is not the supported version", "want "+dialect+", or nothing")
		return nil, found.Err()
	}
	data, err := json.Marshal(written)
	if err != nil {
		return nil, err
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	const address = "https://rehome.dev/argsSchema"
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	c.UseLoader(jsonschema.SchemeURLLoader{}) // no scheme: nothing is loaded
	if err := c.AddResource(address, document); err != nil {
		return nil, err
	}
	compiled, err := c.Compile(address)
	if invalid, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
		return nil, asFields(invalid.Err, Whole)
	}
	if unread, ok := errors.AsType[*jsonschema.LoadURLError](err); ok {
		found.Add("", unread.URL, "refers to another document", "write what it says below $defs")
		return nil, found.Err()
	}
	if err != nil {
		return nil, &FieldError{Reason: "is not a JSON Schema: " + strings.ReplaceAll(err.Error(), address, "")}
	}
	return &Schema{compiled}, nil
}

// Extent distinguishes complete arguments from defaults that others are added to.
type Extent bool

// The extents.
const (
	Whole Extent = true
	Part  Extent = false
)

// Validate checks arguments; each error is a *[FieldError]. In a part, fields may be missing at the top. A nil schema
// accepts everything.
func (s *Schema) Validate(fields map[string]json.RawMessage, e Extent) error {
	if s == nil {
		return nil
	}
	if fields == nil {
		fields = map[string]json.RawMessage{}
	}
	data, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return err
	}
	return asFields(s.compiled.Validate(document), e)
}

// asFields splits the error of a schema into one error for each wrong field.
func asFields(err error, e Extent) error {
	invalid, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return err
	}
	var found Findings
	seen := map[string]bool{}
	for _, f := range failed(invalid, e) {
		if text := f.Error(); !seen[text] {
			seen[text] = true
			found = append(found, f)
		}
	}
	return found.Err()
}

// failed returns the failed keywords of a schema. Alternatives are one failure.
func failed(v *jsonschema.ValidationError, e Extent) []*FieldError {
	here := "" // each step in brackets, as in any map
	if len(v.InstanceLocation) > 0 {
		here = "[" + strings.Join(v.InstanceLocation, "][") + "]"
	}
	each := func(names []string, reason string) []*FieldError {
		var all []*FieldError
		for _, name := range names {
			all = append(all, &FieldError{Field: here + "[" + name + "]", Reason: reason})
		}
		return all
	}
	var all []*FieldError
	for _, cause := range v.Causes {
		all = append(all, failed(cause, e)...)
	}
	switch k := v.ErrorKind.(type) {
	case *kind.Required:
		if here == "" && e == Part {
			return nil
		}
		return each(k.Missing, "is missing")
	case *kind.AdditionalProperties:
		return each(k.Properties, "is not known")
	case *kind.FalseSchema:
		return []*FieldError{{Field: here, Reason: "is not known"}}
	case *kind.AnyOf, *kind.OneOf:
		var reasons []string
		for _, one := range all {
			reasons = append(reasons, strings.TrimPrefix(strings.TrimPrefix(one.Field, here)+" "+one.Reason, " "))
		}
		slices.Sort(reasons)
		if reasons = slices.Compact(reasons); len(reasons) == 0 {
			return nil
		}
		return []*FieldError{{Field: here, Reason: strings.Join(reasons, "; or ")}}
	}
	if len(v.Causes) == 0 {
		return []*FieldError{{Field: here, Reason: v.BasicOutput().Error.String()}}
	}
	return all
}
