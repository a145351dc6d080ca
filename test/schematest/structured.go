package schematest

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/rehome-dev/rehome/schemas"
)

type structured struct {
	SpecVersion     string          `json:"specversion"`
	ID              string          `json:"id"`
	Source          string          `json:"source"`
	Type            string          `json:"type"`
	Subject         string          `json:"subject"`
	Time            time.Time       `json:"time,omitzero"`
	DataContentType string          `json:"datacontenttype"`
	CorrelationID   string          `json:"correlationid,omitempty"`
	CausationID     string          `json:"causationid,omitempty"`
	TraceParent     string          `json:"traceparent,omitempty"`
	ExpiryTime      time.Time       `json:"expirytime,omitzero"`
	Installation    string          `json:"installation,omitempty"`
	Data            json.RawMessage `json:"data"`
}

// Structured encodes e in the structured mode of CloudEvents, without empty attributes. It fails if e.Data is not JSON.
func Structured(e schemas.Event) ([]byte, error) {
	b, err := json.Marshal(structured{
		SpecVersion: "1.0", ID: e.ID, Source: e.Source, Type: e.Type, Subject: e.Subject, Time: e.Time,
		DataContentType: "application/json", CorrelationID: e.CorrelationID, CausationID: e.CausationID,
		TraceParent: e.TraceParent, ExpiryTime: e.Expires, Installation: e.Installation, Data: e.Data,
	})
	if err != nil {
		return nil, fmt.Errorf("write event %s: %w", e.ID, err)
	}
	return b, nil
}

// Parse decodes an event in the structured mode of CloudEvents, and sets the NATS subject for its data. Its error wraps
// [schemas.ErrInvalid].
func Parse(document []byte) (schemas.Event, error) {
	var s structured
	if err := json.Unmarshal(document, &s); err != nil {
		return schemas.Event{}, fmt.Errorf("read event: %w: %w", schemas.ErrInvalid, err)
	}
	e := schemas.Event{
		ID: s.ID, Source: s.Source, Type: s.Type, Subject: s.Subject, Time: s.Time, Expires: s.ExpiryTime,
		CorrelationID: s.CorrelationID, CausationID: s.CausationID, TraceParent: s.TraceParent, Installation: s.Installation,
		Data: s.Data,
	}
	p, err := Payload(e)
	if err != nil {
		return schemas.Event{}, err
	}
	e.Channel = p.Channel()
	return e, nil
}

// Payload decodes the data of an event of any type. Its error wraps [schemas.ErrInvalid].
func Payload(e schemas.Event) (schemas.Payload, error) {
	switch e.Type {
	case schemas.DeltaType:
		return schemas.Decode[schemas.Delta](e)
	case schemas.ScopeType:
		return scope(e)
	case schemas.IntentsType:
		return schemas.Decode[schemas.Intents](e)
	case schemas.VerdictType:
		return schemas.Decode[schemas.Verdict](e)
	case schemas.RequestType:
		return schemas.Decode[schemas.Request](e)
	case schemas.ReceiptType:
		return schemas.Decode[schemas.Receipt](e)
	case schemas.MaintenanceType:
		return schemas.Decode[schemas.Maintenance](e)
	}
	return nil, fmt.Errorf("event %s: type %q is not part of the contract: %w", e.ID, e.Type, schemas.ErrInvalid)
}

func scope(e schemas.Event) (schemas.Payload, error) {
	head, err := schemas.Decode[schemas.ScopeHead](e)
	if err != nil {
		return nil, err
	}
	switch head.Kind {
	case schemas.NodeKind:
		return schemas.Decode[schemas.NodeScope](e)
	case schemas.PodKind:
		return schemas.Decode[schemas.PodScope](e)
	case schemas.WorkloadKind:
		return schemas.Decode[schemas.WorkloadScope](e)
	case schemas.SpreadKind:
		return schemas.Decode[schemas.SpreadScope](e)
	case schemas.DomainKind:
		return schemas.Decode[schemas.DomainScope](e)
	case schemas.UsageKind:
		return schemas.Decode[schemas.UsageScope](e)
	case schemas.RequestKind:
		return schemas.Decode[schemas.RequestScope](e)
	}
	return nil, fmt.Errorf("event %s: scope kind %q is not part of the contract: %w", e.ID, head.Kind, schemas.ErrInvalid)
}
