package app

import (
	"context"
	"sync"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// hosted is the bus of the functions in this process. A strategy gets no scopes here while the policy assigns it to an
// external function. It implements functions.Bus.
type hosted struct {
	*bus.Bus

	mu        sync.Mutex
	elsewhere map[string]bool
	changed   chan struct{} // closed when elsewhere has changed
}

func newHosted(b *bus.Bus, p policy.Policy) *hosted {
	h := &hosted{Bus: b, changed: make(chan struct{})}
	_ = h.setPolicy(p) // never fails
	return h
}

func (h *hosted) setPolicy(p policy.Policy) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.elsewhere = make(map[string]bool)
	for _, o := range p.Outside {
		h.elsewhere[o.Strategy.Name] = true
	}
	close(h.changed)
	h.changed = make(chan struct{})
	return nil
}

// Work implements functions.Bus. It starts again after each policy change.
func (h *hosted) Work(ctx context.Context, strategy string, handle func(context.Context, schemas.Event) error) error {
	for ctx.Err() == nil {
		h.mu.Lock()
		elsewhere, changed := h.elsewhere[strategy], h.changed
		h.mu.Unlock()
		round, stop := context.WithCancel(ctx)
		go func() {
			defer stop()
			select {
			case <-changed:
			case <-round.Done():
			}
		}()
		var err error
		if elsewhere {
			<-round.Done()
		} else {
			err = h.Bus.Work(round, bus.Work{Strategy: strategy}, handle)
		}
		stop()
		if err != nil {
			return err
		}
	}
	return nil
}
