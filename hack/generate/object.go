package main

import (
	"bytes"
	"encoding/json"
	"slices"
)

// object is a JSON object whose fields keep their order.
type object []field

type field struct {
	name  string
	value any
}

// set adds a field, or replaces its value.
func (o *object) set(name string, value any) {
	if i := slices.IndexFunc(*o, func(f field) bool { return f.name == name }); i >= 0 {
		(*o)[i].value = value
		return
	}
	*o = append(*o, field{name, value})
}

// get returns the value of a field, or nil.
func (o object) get(name string) any {
	for _, f := range o {
		if f.name == name {
			return f.value
		}
	}
	return nil
}

// MarshalJSON writes the fields in their order.
func (o object) MarshalJSON() ([]byte, error) {
	b := []byte("{")
	for i, f := range o {
		name, err := marshal(f.name)
		if err != nil {
			return nil, err
		}
		value, err := marshal(f.value)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, name...), ':'), value...)
	}
	return append(b, '}'), nil
}

// marshal is json.Marshal without escapes for HTML.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// indented writes v for a file.
func indented(v any) ([]byte, error) {
	text, err := marshal(v)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", "  "); err != nil {
		return nil, err
	}
	return append(b.Bytes(), '\n'), nil
}
