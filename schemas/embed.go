package schemas

import (
	"embed"
	"fmt"
	"strings"
)

// Files has the contract as files, for programs in other languages:
//
//	v1/NAME.schema.json   the JSON Schema of the data of each event type, and of the envelope in event.schema.json
//	v1/examples/*.json    complete events in structured mode: at least one of each type and of each kind of scope, and causal chains
//	asyncapi.yaml         the NATS subjects, and the publisher and subscribers of each
//
//go:embed v1/*.schema.json v1/examples/*.json asyncapi.yaml
var Files embed.FS

// Schema returns the published JSON Schema of the data of an event type, which allows unknown fields. Its error wraps
// [ErrInvalid] if there is no such type.
func Schema(eventType string) ([]byte, error) {
	noun, version, ok := strings.Cut(strings.TrimPrefix(eventType, typePrefix), ".")
	if !ok || !strings.HasPrefix(eventType, typePrefix) {
		return nil, fmt.Errorf("%q is not an event type of Rehome: %w", eventType, ErrInvalid)
	}
	schema, err := Files.ReadFile(version + "/" + noun + ".schema.json")
	if err != nil {
		return nil, fmt.Errorf("no schema for event type %q: %w", eventType, ErrInvalid)
	}
	return schema, nil
}
