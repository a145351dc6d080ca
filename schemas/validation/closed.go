package validation

import (
	"encoding/json"
	"fmt"
)

// Later is the name of the definition by which a published schema stays open: it stands beside the values that are known
// and in the place of fields that are not sent yet, and takes anything.
const Later = "later"

// Closed derives from a published schema the form that producers are tested with: what the schema does not describe is
// an error, be it a field of an object of Rehome or a value beside those that are known. It fails when schema is not JSON.
//
// An object is closed when it says "type": "object" and lists properties. An object that says something about
// additionalProperties itself is left as it is, with everything inside: that is how the schemas mark objects of the
// Kubernetes API, which are described in part only, and maps. The definition named [Later] becomes false.
func Closed(schema []byte) ([]byte, error) {
	var root any
	if err := json.Unmarshal(schema, &root); err != nil {
		return nil, fmt.Errorf("close schema: %w", err)
	}
	closeObjects(root)
	return json.Marshal(root)
}

// closeObjects closes schema and the schemas of everything that can be inside a value of it. Schemas that only add
// conditions to the same value (allOf, if, then) see a part of its fields and say no type: they stay open, and what is
// inside them is closed.
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
