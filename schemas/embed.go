package schemas

import (
	"embed"
	"fmt"
	"strings"
)

// Files is the contract as files, for readers that are not Go programs:
//
//	v1/NAME.schema.json   the JSON Schema of the data of each event type, and of the envelope in event.schema.json
//	v1/examples/*.json    complete events in structured mode: one causal chain, a scope of every kind, a request, and maintenances
//	asyncapi.yaml         the NATS subjects, and who publishes and receives what on them
//
//go:embed v1/*.schema.json v1/examples/*.json asyncapi.yaml
var Files embed.FS

// Schema returns the JSON Schema of the data of events of that type, as it is published: unknown fields are allowed. It
// fails with an error that wraps [ErrInvalid] when there is no such type.
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

// EventTypes lists every type of event, in the order of a chain: those of requests and of maintenances last.
func EventTypes() []string {
	return []string{DeltaType, ScopeType, IntentsType, VerdictType, RequestType, ReceiptType, MaintenanceType}
}

// typePrefix is what the CloudEvents types of Rehome begin with; the noun and the major version follow.
const typePrefix = "dev.rehome."
