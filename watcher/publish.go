package watcher

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/delivery"
)

// errNotLeading means that the lease has expired, so another leader may have published newer scopes.
var errNotLeading = errors.New("the lease has expired, and another process may lead")

// publish stores scopes and receipts while this process leads. It sends none after ctx has ended.
func (s *session) publish(ctx context.Context, events []schemas.Event) error {
	if s.w.config.LeaseValid != nil && !s.w.config.LeaseValid() {
		return errNotLeading
	}
	return s.w.config.Bus.PublishAll(ctx, events)
}

// requeueUnpublished requeues the keys whose scopes could not be published. It drops scopes that the bus refused; the
// next change or resync evaluates their keys again.
func (s *session) requeueUnpublished(ctx context.Context, due []*workItem, err error) {
	refused, err := delivery.Refused(err)
	due = slices.DeleteFunc(due, func(item *workItem) bool {
		e := item.built
		item.built = schemas.Event{}
		why, is := refused[e.ID]
		if is {
			s.w.log.Error("the bus refused a scope; dropping it", "channel", e.Channel, "bytes", len(e.Data), "error", why)
			s.w.metrics.refused.WithLabelValues(item.key.Strategy, item.key.Profile).Inc()
		}
		return is || e.ID == ""
	})
	if err == nil {
		s.retries.Forget("")
		return
	}
	for _, item := range due {
		s.answered[item.key] = true // the bus may have an earlier scope
	}
	if ctx.Err() != nil {
		return
	}
	if s.retries.NumRequeues("") == 0 {
		s.w.log.Warn("cannot publish scopes; retrying", "count", len(due), "error", err)
	}
	s.queue.requeue(due, s.w.now().Add(s.retries.When("")))
}

// outboxLimit bounds the deltas that wait while the bus is unavailable: 32 MB at about 500 bytes each.
const outboxLimit = 65536

// outbox publishes deltas in order. Scopes do not wait for it, because no decision depends on the arrival of a delta. A
// full outbox drops and counts the oldest deltas.
type outbox struct {
	bus     Bus
	log     *slog.Logger
	metrics *metrics
	mu      sync.Mutex
	waiting []schemas.Event
	added   chan struct{} // capacity 1
	retries workqueue.TypedRateLimiter[string]
}

func newOutbox(b Bus, log *slog.Logger, m *metrics) *outbox {
	return &outbox{bus: b, log: log, metrics: m, added: make(chan struct{}, 1), retries: newRetries()}
}

func (o *outbox) add(e schemas.Event) {
	o.mu.Lock()
	o.waiting = append(o.waiting, e)
	if over := len(o.waiting) - outboxLimit; over > 0 {
		o.waiting = o.waiting[over:]
		o.metrics.deltasDropped.Add(float64(over))
	}
	o.mu.Unlock()
	signal(o.added)
}

// signal puts an element into a channel of capacity 1, if it is empty.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run publishes deltas until ctx ends.
func (o *outbox) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.added:
		}
		for list := o.take(); len(list) > 0; list = o.take() {
			refused, err := delivery.Refused(o.bus.PublishAll(ctx, list))
			if err == nil {
				o.retries.Forget("")
			}
			list = o.dropRefused(list, refused)
			if err == nil {
				continue
			}
			if ctx.Err() == nil && o.retries.NumRequeues("") == 0 {
				o.log.Warn("cannot publish deltas; retrying", "count", len(list), "error", err)
			}
			o.mu.Lock()
			o.waiting = append(list, o.waiting...)
			o.mu.Unlock()
			if !sleep(ctx, o.retries.When("")) {
				return
			}
		}
	}
}

// dropRefused returns the deltas that the bus has not refused.
func (o *outbox) dropRefused(list []schemas.Event, refused map[string]error) []schemas.Event {
	o.metrics.deltasDropped.Add(float64(len(refused)))
	return slices.DeleteFunc(list, func(e schemas.Event) bool {
		why, is := refused[e.ID]
		if is {
			o.log.Error("the bus refused a delta; dropping it", "channel", e.Channel, "error", why)
		}
		return is
	})
}

func (o *outbox) take() []schemas.Event {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := slices.Clone(o.waiting[:min(len(o.waiting), 256)])
	o.waiting = o.waiting[len(list):]
	return list
}

// sleep waits for d. It returns false if ctx ends first.
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
