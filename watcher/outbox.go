package watcher

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/delivery"
)

// outboxLimit bounds the deltas that wait while the bus is away: at about 500 bytes each, 32 MB.
const outboxLimit = 65536

// outbox publishes deltas in order, apart from the evaluations that they wake, so that these need not wait. Deltas tell
// others what happened and no decision rests on their arrival: when too many wait, the oldest are dropped and counted.
type outbox struct {
	bus     Bus
	log     *slog.Logger
	metrics *metrics
	mu      sync.Mutex
	waiting []schemas.Event
	added   chan struct{} // capacity 1
}

func newOutbox(b Bus, log *slog.Logger, m *metrics) *outbox {
	return &outbox{bus: b, log: log, metrics: m, added: make(chan struct{}, 1)}
}

// add never blocks.
func (o *outbox) add(e schemas.Event) {
	o.mu.Lock()
	o.waiting = append(o.waiting, e)
	if over := len(o.waiting) - outboxLimit; over > 0 {
		o.waiting = o.waiting[over:]
		o.metrics.deltasDropped.Add(float64(over))
	}
	o.mu.Unlock()
	select {
	case o.added <- struct{}{}:
	default:
	}
}

// run publishes what is added until ctx ends.
func (o *outbox) run(ctx context.Context) {
	var wait backoff
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.added:
		}
		for list := o.take(); len(list) > 0; list = o.take() {
			refused, err := delivery.Refused(o.bus.PublishAll(ctx, list))
			list = o.leaveOut(list, refused)
			if err == nil {
				wait.reset()
				continue
			}
			if ctx.Err() != nil {
				return
			}
			delay := wait.next()
			if wait.first() {
				o.log.Warn("deltas could not be published and wait until they can", "count", len(list), "error", err)
			}
			o.putBack(list)
			if !sleep(ctx, delay) {
				return
			}
		}
	}
}

// leaveOut returns the deltas that the bus may still take.
func (o *outbox) leaveOut(list []schemas.Event, refused map[string]error) []schemas.Event {
	o.metrics.deltasDropped.Add(float64(len(refused)))
	return slices.DeleteFunc(slices.Clone(list), func(e schemas.Event) bool {
		why, out := refused[e.ID]
		if out {
			o.log.Error("a delta cannot be published and is dropped", "channel", e.Channel, "error", why)
		}
		return out
	})
}

func (o *outbox) take() []schemas.Event {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := o.waiting[:min(len(o.waiting), 256)]
	o.waiting = o.waiting[len(list):]
	return list
}

func (o *outbox) putBack(list []schemas.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waiting = append(append([]schemas.Event(nil), list...), o.waiting...)
}

// sleep waits for d, and returns false when ctx ended before.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
