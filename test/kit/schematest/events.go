package schematest

import (
	"testing"
	"time"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// Event is [schemas.NewEvent]. It ends the test at an error.
func Event(t testing.TB, source string, data schemas.Payload, at time.Time, cause schemas.Event) schemas.Event {
	t.Helper()
	e, err := schemas.NewEvent(source, data, at, cause)
	expect.Must(t, err)
	return e
}

// Decode is [schemas.Decode]. It ends the test at an error.
func Decode[P schemas.Payload](t testing.TB, e schemas.Event) P {
	t.Helper()
	p, err := schemas.Decode[P](e)
	expect.Must(t, err)
	return p
}

// Request returns a request of admin that targets the node n1, with changes.
func Request(changes ...func(*schemas.Request)) schemas.Request {
	r := schemas.Request{
		Sender: "admin", Name: "one", Action: schemas.ActionDeschedule, Reason: "why", Target: &schemas.Target{Node: "n1"},
	}
	for _, change := range changes {
		change(&r)
	}
	return r
}

// Targets sets the target of a [Request].
func Targets(t schemas.Target) func(*schemas.Request) {
	return func(r *schemas.Request) { r.Target = &t }
}
