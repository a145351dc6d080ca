// Package schematest checks in tests that events are what the contract promises.
//
// # Usage
//
// A test that produced or received events hands them to [Check]:
//
//	schematest.Check(t, events...)
//
// # What is checked
//
// The envelope and the data are validated against the closed form of the published schemas, see package validation: a
// field or a value that no schema describes is an error, so nobody can add one without describing it. Beyond what a
// schema can say, the CloudEvents subject and the NATS subject must be the ones that the data asks for, and the first
// event of a chain must correlate with itself.
package schematest

import (
	"fmt"
	"testing"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/validation"
)

// Check fails t with one message for each of the events that is not what the contract promises.
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

// Validator holds the compiled schemas. Make one with [New]. It may be used by many goroutines at once.
type Validator struct {
	events *validation.Validator
}

// New compiles the closed form of the embedded schemas. It reads nothing from the network.
func New() (*Validator, error) {
	v, err := validation.NewClosed(schemas.Files)
	if err != nil {
		return nil, err
	}
	return &Validator{events: v}, nil
}

// NewOpen compiles the schemas as they are published: unknown fields and values are allowed.
func NewOpen() (*Validator, error) {
	v, err := validation.New(schemas.Files)
	if err != nil {
		return nil, err
	}
	return &Validator{events: v}, nil
}

// Validate says what is wrong with e. Its error names the event and wraps [schemas.ErrInvalid].
//
// The NATS subject is only compared when e.Channel is set: an event that came over HTTP has none.
func (v *Validator) Validate(e schemas.Event) error {
	if err := v.validate(e); err != nil {
		return fmt.Errorf("event %s of type %s about %s: %w: %w", e.ID, e.Type, e.Subject, schemas.ErrInvalid, err)
	}
	return nil
}

func (v *Validator) validate(e schemas.Event) error {
	document, err := Structured(e)
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

// names compares the names that the event goes by with those that its data asks for.
func names(e schemas.Event) error {
	p, err := Payload(e)
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
