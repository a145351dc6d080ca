package functions

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// desk is a bus that delivers scopes once, and records the results.
type desk struct {
	scopes  []schemas.Event
	stale   bool // a newer scope of the key has been published
	answers []schemas.Intents
	errors  []error
}

func (d *desk) Work(ctx context.Context, _ string, handle func(context.Context, schemas.Event) error) error {
	for _, s := range d.scopes {
		d.errors = append(d.errors, handle(ctx, s))
	}
	return nil
}

func (d *desk) Current(context.Context, schemas.Event) (bool, error) { return !d.stale, nil }

func (d *desk) Answer(_ context.Context, e schemas.Event, answer schemas.Intents) error {
	if e.CausationID != d.scopes[0].ID || e.Expires.IsZero() {
		return errors.New("the answer does not name its scope, or does not expire")
	}
	d.answers = append(d.answers, answer)
	return nil
}

func host(t *testing.T, d *desk, f Function) {
	t.Helper()
	if err := (Host{Functions: []Function{f}, Bus: d, Source: "/test"}).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestHostAnswers(t *testing.T) {
	scope, want := evaluateFirst(t, nodeTaintsPolicy("{}"))
	d := &desk{scopes: []schemas.Event{scope}}
	host(t, d, All()[0])
	if !reflect.DeepEqual(d.answers, []schemas.Intents{want}) || d.errors[0] != nil {
		t.Errorf("got %+v, errors %v\nwant %+v", d.answers, d.errors, want)
	}
}

func TestHostDropsStaleAnswer(t *testing.T) {
	scope, _ := evaluateFirst(t, nodeTaintsPolicy("{}"))
	d := &desk{scopes: []schemas.Event{scope}, stale: true}
	host(t, d, All()[0])
	if d.answers != nil || d.errors[0] != nil {
		t.Errorf("got %+v, errors %v, want neither", d.answers, d.errors)
	}
}

func TestHostPanic(t *testing.T) {
	e, _ := evaluateFirst(t, nodeTaintsPolicy("{}"))
	d := &desk{scopes: []schemas.Event{e}}
	host(t, d, function(broken{}, policy.Strategy{Name: All()[0].Strategy.Name}))
	want := "strategy RemovePodsViolatingNodeTaints panicked at scope " + e.ID
	if err := d.errors[0]; !errors.Is(err, schemas.ErrInvalid) || !strings.Contains(err.Error(), want) {
		t.Errorf("got error %v, want %s", err, want)
	}
}

// broken is a strategy that panics.
type broken struct{}

func (broken) Validate() error                           { return nil }
func (broken) Decide(schemas.NodeScope) []schemas.Intent { panic("no") }
