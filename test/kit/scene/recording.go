package scene

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// Recording has every event in the history of a bus, in order, and every scope since the start of the recording.
type Recording struct {
	T         testing.TB
	validator *schematest.Validator
	mu        sync.Mutex
	events    []schemas.Event
	more      chan struct{}
}

// Record follows all events of a bus from the beginning of its history until the test ends, and new scopes, which have no
// history. It validates each event with the published schemas.
func Record(t testing.TB, options bus.Options) *Recording {
	t.Helper()
	options.Name = cmp.Or(options.Name, "scene")
	options.Log = slog.New(slog.DiscardHandler)
	b, err := bus.Connect(options)
	expect.Must(t, err)
	validator, err := schematest.New()
	expect.Must(t, err)
	r := &Recording{T: t, validator: validator, more: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	var followed sync.WaitGroup
	followed.Go(func() { _ = b.Events(ctx, bus.Query{Since: time.Unix(0, 0), Follow: true}, r.add) })
	followed.Go(func() { _ = b.Subscribe(ctx, []string{bus.ScopeChannels}, nil, r.add) })
	t.Cleanup(func() {
		cancel()
		followed.Wait()
		b.Close()
	})
	return r
}

// BusIn returns the address of the bus of a `rehome run` with that store.
func BusIn(store string) bus.Options { return bus.Options{Socket: filepath.Join(store, "bus.sock")} }

func (r *Recording) add(e schemas.Event) error {
	if err := r.validator.Validate(e); err != nil {
		r.T.Errorf("event on %s: %v", e.Channel, err)
	}
	r.mu.Lock()
	r.events = append(r.events, e)
	r.mu.Unlock()
	select {
	case r.more <- struct{}{}:
	default:
	}
	return nil
}

// All returns every event so far.
func (r *Recording) All() []schemas.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// Verdicts returns all final verdicts so far, in order.
func (r *Recording) Verdicts() []schemas.Verdict {
	return slices.DeleteFunc(Payloads[schemas.Verdict](r), func(v schemas.Verdict) bool { return v.Outcome == schemas.Settled })
}

// Settlements returns the ends of moves so far, in order.
func (r *Recording) Settlements() []schemas.Verdict {
	return WithOutcome(schemas.Settled, Payloads[schemas.Verdict](r))
}

// Payloads returns the data of all events of one type so far, in order.
func Payloads[P schemas.Payload](r *Recording) []P {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []P
	var p P
	for _, e := range r.events {
		if e.Type != p.EventType() {
			continue
		}
		p, err := schemas.Decode[P](e)
		if err != nil {
			r.T.Errorf("event on %s: %v", e.Channel, err)
			continue
		}
		list = append(list, p)
	}
	return list
}

// WaitVerdicts waits until the verdicts meet a condition.
func (r *Recording) WaitVerdicts(what string, so func([]schemas.Verdict) bool) []schemas.Verdict {
	r.T.Helper()
	deadline := time.After(expect.Patience)
	for {
		verdicts := r.Verdicts()
		if so(verdicts) {
			return verdicts
		}
		select {
		case <-r.more:
		case <-deadline:
			r.T.Fatalf("not within %v: %s; verdicts: %s", expect.Patience, what, Summary(verdicts))
		}
	}
}

// Summary returns a line for each verdict, without the parts that differ between runs.
func Summary(verdicts []schemas.Verdict) string {
	var b strings.Builder
	for _, v := range verdicts {
		fmt.Fprintf(&b, "\n  %s %s %s: %s", v.Intent.Pod, v.Outcome, v.Reason, v.Message)
	}
	return b.String()
}

// WithOutcome returns the verdicts with one outcome.
func WithOutcome(outcome schemas.Outcome, verdicts []schemas.Verdict) []schemas.Verdict {
	return slices.DeleteFunc(slices.Clone(verdicts), func(v schemas.Verdict) bool { return v.Outcome != outcome })
}
