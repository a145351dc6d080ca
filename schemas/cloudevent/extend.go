package cloudevent

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/rehome-dev/rehome/schemas"
)

// CheckExtension returns an error unless the name is valid for an extension attribute: lower-case letters and digits, and not the
// name of a standard attribute.
func CheckExtension(name string) error {
	own := []string{
		"specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema", "data", "data_base64",
	}
	if slices.Contains(own, name) {
		return fmt.Errorf("attribute %q: want an extension, got a standard attribute", name)
	}
	if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		return fmt.Errorf("attribute %q: want lower-case letters and digits", name)
	}
	return nil
}

// Extend sets attributes of an event in structured mode. The values are text. Its error wraps [schemas.ErrInvalid] if the
// document is not a JSON object.
func Extend(document []byte, attributes map[string]string) ([]byte, error) {
	var event map[string]json.RawMessage
	if err := json.Unmarshal(document, &event); err != nil {
		return nil, fmt.Errorf("extend CloudEvent: %w: %w", schemas.ErrInvalid, err)
	}
	for name, value := range attributes {
		text, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("extend CloudEvent: %w: %s: %w", schemas.ErrInvalid, name, err)
		}
		event[name] = text
	}
	return json.Marshal(event)
}
