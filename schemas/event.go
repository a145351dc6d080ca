package schemas

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// ErrInvalid is wrapped by every error about an event that violates the contract. Retrying does not help: such an event belongs
// in the dead-letter stream.
var ErrInvalid = errors.New("invalid event")

// Event is a CloudEvent with the attributes that Rehome uses and JSON data. The zero value is not valid. Use [NewEvent] to make
// one.
type Event struct {
	// ID is unique within Source.
	ID string `cloudevent:"id"`
	// Source is a URI reference of the publisher, such as /clusters/default/watcher.
	Source string `cloudevent:"source" format:"uri-reference"`
	// Type identifies the schema of Data, such as dev.rehome.delta.v1.
	Type string `cloudevent:"type" pattern:"^dev\\.rehome\\.[a-z]+\\.v[1-9][0-9]*$"`
	// Subject is the path of an object or scope, such as nodes/worker-1 or namespaces/web/pods/api-0.
	Subject string `cloudevent:"subject"`
	// Time is when the event happened, by the clock of the publisher.
	Time time.Time `cloudevent:"time"`
	// Expires is when the event becomes useless. Zero means never. It is the extension expirytime.
	Expires time.Time `cloudevent:"expirytime,omitzero"`
	// CorrelationID is the ID of the first event of the chain.
	CorrelationID string `cloudevent:"correlationid"`
	// CausationID is the ID of the event that caused this one. It is empty for the first event of a chain.
	CausationID string `cloudevent:"causationid,omitempty"`
	// TraceParent is the W3C trace context, with one trace per chain and one span per event.
	TraceParent string `cloudevent:"traceparent" pattern:"^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$"`
	// Installation identifies the cluster and the installation: the UID of the namespace kube-system, a slash, and the name of
	// the installation. Empty means unknown. It is the extension installation.
	Installation string `cloudevent:"installation,omitempty"`
	// Data is the payload as JSON.
	Data json.RawMessage

	// Channel is the NATS subject of the event. It is not part of the CloudEvent.
	Channel string
	// Sequence is the stream sequence, which increases within a stream. It is zero for an event that does not come from a
	// stream. It is not part of the CloudEvent.
	Sequence uint64

	// The following fields are for traces and known only in this process. They are not part of the CloudEvent.

	// Parent is the TraceParent of the cause. It is empty for the first event of a chain, and for an event that was received.
	Parent string
	// Began is when the publisher received or made the cause, by its own clock. It is zero if Parent is empty.
	Began time.Time
	// Taken is when this process received the event, by its own clock. It is zero for an event that was made here.
	Taken time.Time
}

// Payload is the data of an event. All event types of this package implement it.
type Payload interface {
	// EventType returns the CloudEvents type.
	EventType() string
	// About returns the CloudEvents subject.
	About() string
	// Channel returns the NATS subject.
	Channel() string
	// Describe returns the short name of the object or scope, and one line of text about it, for people.
	Describe() (about, text string)
}

// NewEvent returns an event with the data p. cause is the event that led to it; the zero Event starts a new chain. It fails only
// if p cannot be encoded as JSON.
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

// Decode returns the data of e as a P. It ignores unknown fields. Its error wraps [ErrInvalid] if e has another type, if its
// data is not such JSON, or if it is a scope whose lists would need far more memory than its JSON.
func Decode[P Payload](e Event) (P, error) {
	var p P
	if want := p.EventType(); e.Type != want {
		return p, fmt.Errorf("event %s: type is %q, want %q: %w", e.ID, e.Type, want, ErrInvalid)
	}
	var err error
	if e.Type == ScopeType {
		err = checkSize(e.Data)
	}
	if err == nil {
		err = json.Unmarshal(e.Data, &p)
	}
	if err != nil {
		return p, fmt.Errorf("event %s of type %s: %w: %w", e.ID, e.Type, ErrInvalid, err)
	}
	return p, nil
}

// validTrace matches a version 00 trace context.
var validTrace = regexp.MustCompile(`^00-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}$`)

// childSpan returns a trace context with a new span in the trace of parent, or in a new trace if parent is not a valid version 00
// trace context.
func childSpan(parent string) string {
	var b [24]byte
	_, _ = rand.Read(b[:]) // crypto/rand.Read never fails
	trace, span := hex.EncodeToString(b[:16]), hex.EncodeToString(b[16:])
	if match := validTrace.FindStringSubmatch(parent); match != nil && strings.Trim(match[1], "0") != "" {
		trace = match[1]
	}
	return "00-" + trace + "-" + span + "-01"
}
