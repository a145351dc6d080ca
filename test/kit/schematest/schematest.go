// Package schematest checks events in tests against the contract.
//
//	schematest.Check(t, events...)
//
// The envelope and the data must be valid with the closed form of the published schemas, see package validation, so an
// undescribed field or value is an error. In addition, the CloudEvents subject and the NATS subject must match the data, and the
// first event of a chain must be its own correlation ID.
package schematest

import (
	"fmt"
	"testing"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
	"github.com/rehome-dev/rehome/schemas/validation"
)

// Check fails t for each invalid event.
func Check(t testing.TB, events ...schemas.Event) {
	t.Helper()
	v, err := New()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if err := v.Validate(e); err != nil {
			t.Error(err)
		}
	}
}

// Validator has the compiled schemas. It is safe for concurrent use. Use [New] to make one.
type Validator struct {
	events *validation.Validator
}

// New compiles the closed form of the embedded schemas.
func New() (*Validator, error) {
	v, err := validation.NewClosed(schemas.Files)
	if err != nil {
		return nil, err
	}
	return &Validator{events: v}, nil
}

// NewOpen compiles the published schemas, which allow unknown fields and values.
func NewOpen() (*Validator, error) {
	v, err := validation.New(schemas.Files)
	if err != nil {
		return nil, err
	}
	return &Validator{events: v}, nil
}

// Validate validates e. Its error names the event and wraps [schemas.ErrInvalid]. It compares the NATS subject only if e.Channel
// is set, because an event over HTTP has none.
func (v *Validator) Validate(e schemas.Event) error {
	if err := v.validate(e); err != nil {
		return fmt.Errorf("event %s of type %s about %s: %w: %w", e.ID, e.Type, e.Subject, schemas.ErrInvalid, err)
	}
	return nil
}

func (v *Validator) validate(e schemas.Event) error {
	document, err := cloudevent.WriteStructured(e)
	if err != nil {
		return err
	}
	if err := v.events.Validate(document); err != nil {
		return err
	}
	if e.CausationID == "" && e.CorrelationID != e.ID {
		return fmt.Errorf("no causationid, but correlationid %q is not its own id", e.CorrelationID)
	}
	return names(e)
}

// names compares the subjects of the event with its data.
func names(e schemas.Event) error {
	p, err := schemas.DecodePayload(e)
	if err != nil {
		return err
	}
	if got, want := e.Subject, p.About(); got != want {
		return fmt.Errorf("subject is %q, want %q", got, want)
	}
	if got, want := e.Channel, p.Channel(); got != "" && got != want {
		return fmt.Errorf("NATS subject is %q, want %q", got, want)
	}
	return nil
}
