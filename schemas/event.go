package schemas

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrInvalid is wrapped by every error that says an event is not what the contract promises. Such an event will not
// become valid by being read again: it belongs in the dead-letter stream.
var ErrInvalid = errors.New("invalid event")

// Event is one CloudEvent: the attributes that Rehome uses, and the data as JSON.
//
// The zero value is not a valid event; [NewEvent] makes one.
type Event struct {
	// ID is unique within Source.
	ID string
	// Source is a URI reference to the emitter, such as /clusters/default/watcher.
	Source string
	// Type names the schema of Data, such as dev.rehome.delta.v1.
	Type string
	// Subject names what the event is about, such as nodes/worker-1 or namespaces/web/pods/api-0.
	Subject string
	// Time is when it happened, by the emitter's clock.
	Time time.Time
	// Expires is when the event stops being of use. Zero: never. Carried as the extension expirytime.
	Expires time.Time
	// CorrelationID is the ID of the first event of the chain.
	CorrelationID string
	// CausationID is the ID of the event that led to this one. Empty for the first of a chain.
	CausationID string
	// TraceParent is the W3C trace context: one trace a chain, one span an event.
	TraceParent string
	// Installation tells installations and clusters apart: the UID of the namespace kube-system, a slash, and the name of the
	// installation. Empty: unknown. Carried as the extension installation.
	Installation string
	// Data is the payload as JSON.
	Data json.RawMessage

	// Channel is the NATS subject that the event is published on. It is not part of the CloudEvent.
	Channel string
	// Sequence is the number that the stream gave the event when it was stored, higher for a later event of the same
	// stream. Zero for an event that does not come from a stream. It is not part of the CloudEvent.
	Sequence uint64

	// What follows is for traces. It is known to the process that made or read the event, and not part of the CloudEvent.

	// Parent is the TraceParent of the event that led to this one. Empty for the first of a chain, and for an event that was
	// read.
	Parent string
	// Began is when the emitter had the event that led to this one, by its own clock: when it took it up, or made it itself.
	// Zero where Parent is empty.
	Began time.Time
	// Taken is when the reader took the event up, by its own clock. Zero: it was made here, or nobody asked.
	Taken time.Time
}

// Payload is the data of an event. All types of this package that travel on the bus implement it.
type Payload interface {
	// EventType is the CloudEvents type.
	EventType() string
	// About is the CloudEvents subject.
	About() string
	// Channel is the NATS subject.
	Channel() string
}

// NewEvent makes the event that carries p, emitted by source at the time now. cause is the event that led to it; the
// zero Event starts a new chain. It fails only when p cannot be written as JSON.
func NewEvent(source string, p Payload, now time.Time, cause Event) (Event, error) {
	data, err := json.Marshal(p)
	if err != nil {
		return Event{}, fmt.Errorf("encode %s about %s: %w", p.EventType(), p.About(), err)
	}
	id := strings.ToLower(rand.Text())
	e := Event{
		ID: id, Source: source, Type: p.EventType(), Subject: p.About(), Time: now.UTC(),
		CorrelationID: id, TraceParent: childSpan(cause.TraceParent), Installation: cause.Installation, Data: data,
		Channel: p.Channel(),
	}
	if cause.ID != "" {
		e.CausationID = cause.ID
		e.CorrelationID = cause.CorrelationID
		e.Parent, e.Began = cause.TraceParent, cause.Taken
		if e.Began.IsZero() {
			e.Began = cause.Time
		}
	}
	return e, nil
}

// Decode reads the data of e as a P. It fails with an error that wraps [ErrInvalid] when e is of another type or its
// data is not JSON of that shape. Unknown fields are ignored.
func Decode[P Payload](e Event) (P, error) {
	var p P
	if want := p.EventType(); e.Type != want {
		return p, fmt.Errorf("event %s: type is %q, want %q: %w", e.ID, e.Type, want, ErrInvalid)
	}
	if err := json.Unmarshal(e.Data, &p); err != nil {
		return p, fmt.Errorf("event %s of type %s: %w: %w", e.ID, e.Type, ErrInvalid, err)
	}
	return p, nil
}

// childSpan returns a trace context of the same trace as parent with a new span, or of a new trace when parent is not
// a version 00 trace context.
func childSpan(parent string) string {
	var b [24]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand.Read promises it
	trace, span := hex.EncodeToString(b[:16]), hex.EncodeToString(b[16:])
	if len(parent) == 55 && strings.HasPrefix(parent, "00-") {
		trace = parent[3:35]
	}
	return "00-" + trace + "-" + span + "-01"
}
