package validation

import (
	"encoding/json"
	"fmt"
)

// Later is the definition that keeps a published schema open. It is an alternative to known values and stands for unknown fields,
// and allows any value.
const Later = "later"

// Closed returns the form of a published schema for producers, where undescribed fields and values are errors. It fails if
// schema is not JSON.
//
// It closes an object that has "type": "object" and properties. An object with its own additionalProperties stays unchanged,
// including everything inside. The schemas mark maps and partly described Kubernetes objects in this way. The definition [Later]
// becomes false.
func Closed(schema []byte) ([]byte, error) {
	var root any
	if err := json.Unmarshal(schema, &root); err != nil {
		return nil, fmt.Errorf("close schema: %w", err)
	}
	closeObjects(root)
	return json.Marshal(root)
}

// closeObjects closes schema and the schemas of nested values. Schemas that add conditions to the same value (allOf, if, then)
// describe only some of its fields and have no type. They stay open, but nested schemas are closed.
func closeObjects(schema any) {
	s, ok := schema.(map[string]any)
	if _, says := s["additionalProperties"]; !ok || says {
		return
	}
	properties, lists := s["properties"].(map[string]any)
	if s["type"] == "object" && lists {
		s["unevaluatedProperties"] = false
	}
	defs, _ := s["$defs"].(map[string]any)
	for _, named := range []map[string]any{properties, defs} {
		for _, sub := range named {
			closeObjects(sub)
		}
	}
	if _, open := defs[Later]; open {
		defs[Later] = false
	}
	for _, keyword := range []string{"items", "if", "then", "else"} {
		closeObjects(s[keyword])
	}
	for _, keyword := range []string{"allOf", "anyOf", "oneOf"} {
		list, _ := s[keyword].([]any)
		for _, sub := range list {
			closeObjects(sub)
		}
	}
}
