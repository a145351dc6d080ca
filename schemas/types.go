package schemas

import (
	"embed"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Prefix begins the NATS subject of every event.
const Prefix = "rehome"

// typePrefix begins every CloudEvents type of Rehome. The name and the major version follow.
const typePrefix = "dev.rehome."

// eventType is an event type, as the file of its data defines it.
type eventType struct {
	zero       Payload
	publishers string
	examples   map[string]Payload
	subjects   []string
	decode     func(Event) (Payload, error)
}

// eventTypes are all event types.
//
//nolint:gochecknoglobals // the files of the types fill it when the program starts; then nothing changes it
var eventTypes []eventType

// define adds an event type with the data P, the roles that publish it, [Examples], and its NATS subjects. Without examples, the
// files in v1/examples are written by hand, because the events of one chain refer to each other. It returns true to initialize
// a variable.
func define[P Payload](publishers string, examples map[string]P, subjects ...string) bool {
	var zero P
	t := eventType{zero, publishers, map[string]Payload{}, subjects, func(e Event) (Payload, error) { return Decode[P](e) }}
	for name, example := range examples {
		t.examples[name] = example
	}
	eventTypes = append(eventTypes, t)
	slices.SortFunc(eventTypes, func(a, b eventType) int { return strings.Compare(a.zero.EventType(), b.zero.EventType()) })
	return true
}

// EventTypes returns every event type, sorted.
func EventTypes() []string {
	var all []string
	for _, t := range eventTypes {
		all = append(all, t.zero.EventType())
	}
	return all
}

// NounOf returns the name in an event type, such as delta in dev.rehome.delta.v1.
func NounOf(eventType string) string {
	noun, _, _ := strings.Cut(strings.TrimPrefix(eventType, typePrefix), ".")
	return noun
}

// Payloads returns the zero value of the data of every event type, sorted by type. Scopes have the [ScopeHead] here; see
// [ScopeTypes].
func Payloads() []Payload {
	var all []Payload
	for _, t := range eventTypes {
		all = append(all, t.zero)
	}
	return all
}

// Examples returns the data of the events in v1/examples that derive from Go values, by file name without .json: the noun of the
// type, or NOUN-WORD. The other files there are not in the result.
func Examples() map[string]Payload {
	all := map[string]Payload{}
	for _, t := range eventTypes {
		maps.Copy(all, t.examples)
	}
	return all
}

// ScopeTypes returns the zero value of the data of every kind of scope.
func ScopeTypes() []Payload {
	return []Payload{NodeScope{}, PodScope{}, WorkloadScope{}, SpreadScope{}, DomainScope{}, UsageScope{}, RequestScope{}}
}

// Subjects returns the NATS subjects for events of a type, with capital letters in place of names, which [Token] encodes. It
// returns nil for an unknown type.
func Subjects(name string) []string {
	t, _ := typeOf(name)
	return t.subjects
}

// Publishers returns the roles that publish events of a type.
func Publishers(name string) []string {
	t, _ := typeOf(name)
	return strings.Split(t.publishers, ", ")
}

// Describe describes an event in words, and a scope by its head. It describes an unreadable event by its subject and type.
func Describe(e Event) (noun, about, text string) {
	if t, known := typeOf(e.Type); known {
		if p, err := t.decode(e); err == nil {
			about, text = p.Describe()
			return NounOf(e.Type), about, text
		}
	}
	return "event", e.Subject, e.Type
}

// DecodePayload decodes the data of an event of any type and any kind of scope. Its error wraps [ErrInvalid].
func DecodePayload(e Event) (Payload, error) {
	t, known := typeOf(e.Type)
	if !known {
		return nil, fmt.Errorf("event %s: the type %q is unknown: %w", e.ID, e.Type, ErrInvalid)
	}
	p, err := t.decode(e)
	if head, ok := p.(ScopeHead); ok && err == nil {
		if head.Kind == RequestKind {
			return Decode[RequestScope](e)
		}
		return DecodeScope(e, head.Kind)
	}
	return p, err
}

func typeOf(name string) (eventType, bool) {
	i := slices.IndexFunc(eventTypes, func(t eventType) bool { return t.zero.EventType() == name })
	if i < 0 {
		return eventType{}, false
	}
	return eventTypes[i], true
}

// Files has the contract as files, for programs in other languages:
//
//	v1/NAME.schema.json   the JSON Schema of the data of each event type, and of the envelope in event.schema.json
//	v1/examples/*.json    complete events in structured mode: at least one of each type and kind of scope, and causal chains
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
