package app

import (
	"context"
	"sync"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// hosted is the bus of the functions in this process: a strategy that the policy sends elsewhere gets no scopes here as long
// as it does so. It implements functions.Bus.
type hosted struct {
	BusAdapter

	mu        sync.Mutex
	elsewhere map[string]bool
	changed   chan struct{} // closed when elsewhere has changed
}

func newHosted(b BusAdapter, p policy.Policy) *hosted {
	h := &hosted{BusAdapter: b, changed: make(chan struct{})}
	h.set(p)
	return h
}

// set says which strategies a policy sends elsewhere.
func (h *hosted) set(p policy.Policy) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.elsewhere = make(map[string]bool)
	for _, o := range p.Outside {
		h.elsewhere[o.Strategy.Name] = true
	}
	close(h.changed)
	h.changed = make(chan struct{})
}

// isHere says whether a strategy is answered here, and when to ask again.
func (h *hosted) isHere(strategy string) (here bool, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.elsewhere[strategy], h.changed
}

// Work implements functions.Bus.
func (h *hosted) Work(ctx context.Context, strategy string, handle func(context.Context, schemas.Event) error) error {
	for ctx.Err() == nil {
		here, changed := h.isHere(strategy)
		if !here {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		if err := h.whileHere(ctx, strategy, handle); err != nil {
			return err
		}
	}
	return nil
}

// whileHere works on the scopes of a strategy until it is sent elsewhere or ctx ends.
func (h *hosted) whileHere(ctx context.Context, strategy string, handle func(context.Context, schemas.Event) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer func() {
		cancel()
		watching.Wait()
	}()
	watching.Go(func() {
		defer cancel()
		for {
			here, changed := h.isHere(strategy)
			if !here {
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	})
	return h.BusAdapter.Work(ctx, strategy, handle)
}
