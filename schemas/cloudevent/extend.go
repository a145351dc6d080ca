package cloudevent

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/rehome-dev/rehome/schemas"
)

// CheckExtension says whether an attribute of this name can be given to an event besides those that every CloudEvent may
// have: lower-case letters and digits, and none of the names that the standard uses itself.
func CheckExtension(name string) error {
	own := []string{
		"specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema", "data", "data_base64",
	}
	if slices.Contains(own, name) {
		return fmt.Errorf("attribute %q: want an extension, got an attribute that every event may have", name)
	}
	if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		return fmt.Errorf("attribute %q: want lower-case letters and digits", name)
	}
	return nil
}

// Extend writes attributes into an event in structured mode, in place of those of the same names. The values are text. Its
// error wraps [schemas.ErrInvalid]: the document is no JSON object.
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
