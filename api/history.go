package api

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/rehome-dev/rehome/api/feed"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
	"github.com/rehome-dev/rehome/status"
)

const (
	// eventQueue is the number of events that a client may be behind, and eventQueueSize the size of their data. An event that is
	// larger is queued alone. A thousand usual events have some 2 MiB.
	eventQueue, eventQueueSize = 1000, 16 << 20
	// retryHistory is the time between two tries to read the history.
	retryHistory = 2 * time.Second
)

// history follows the history of the bus for all clients, and has the deferred pods.
type history struct {
	bus *bus.Bus

	mu       sync.Mutex
	clients  map[*listener]bool
	deferred status.Deferrals
	changed  time.Time // when the last event arrived
	last     uint64    // the sequence of the last event
	life     int       // the number of times that the history was created again
}

// event is an event for several clients.
type event struct {
	schemas.Event
	namespace string // of the pod that a verdict or a delta is about; empty: only users who may see everything see the event
	encode    func() *feed.Message
	life      int // of the history
}

// listener is a client of new events.
type listener struct {
	queue chan *event
	life  int // of the history when the client joined

	mu     sync.Mutex
	size   int               // of the data of the events in the queue
	wanted func(*event) bool // the filter: other events are neither queued nor missed
	missed int               // since the last report to the client
}

// run follows the history until ctx ends.
func (h *history) run(ctx context.Context) error {
	for ctx.Err() == nil {
		after, err := h.readDeferred(ctx)
		if err == nil {
			err = h.bus.Events(ctx, bus.Query{After: after, Follow: true}, func(e schemas.Event) error {
				h.take(e)
				return nil
			})
		}
		if err == nil {
			return nil
		}
		select { // Ready of the bus has the reason
		case <-time.After(retryHistory):
		case <-ctx.Done():
		}
	}
	return nil
}

// readDeferred reads the verdicts of the last hour, and returns the sequence of the last one.
func (h *history) readDeferred(ctx context.Context) (last uint64, err error) {
	deferred, last, err := status.ReadDeferrals(ctx, h.bus, time.Now())
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deferred, h.changed = deferred, time.Now()
	return last, err
}

// take delivers an event to all clients without waiting for them.
func (h *history) take(e schemas.Event) {
	item := newEvent(e)
	h.mu.Lock()
	defer h.mu.Unlock()
	if e.Sequence <= h.last {
		h.life++
	}
	h.changed, h.last, item.life = time.Now(), e.Sequence, h.life
	if e.Type == schemas.VerdictType {
		if v, err := schemas.Decode[schemas.Verdict](e); err == nil {
			h.deferred.Verdict(v, e.Time)
		}
	}
	for l := range h.clients {
		l.put(item)
	}
}

func newEvent(e schemas.Event) *event {
	item := &event{Event: e, encode: sync.OnceValue(func() *feed.Message { return encoded(e) })}
	switch e.Type {
	case schemas.VerdictType:
		if v, err := schemas.Decode[schemas.Verdict](e); err == nil {
			item.namespace = v.Intent.Pod.Namespace
		}
	case schemas.DeltaType:
		if d, err := schemas.Decode[schemas.Delta](e); err == nil && d.Object.Kind == "Pod" {
			item.namespace = d.Object.Namespace
		}
	}
	return item
}

// encoded returns the event as a message, or nil if it cannot be encoded.
func encoded(e schemas.Event) *feed.Message {
	text, err := cloudevent.WriteStructured(e)
	if err != nil {
		return nil
	}
	if bytes.ContainsAny(text, "\r\n") { // they would end the line of the stream
		var line bytes.Buffer
		if json.Compact(&line, text) != nil {
			return nil
		}
		text = line.Bytes()
	}
	return feed.NewEvent(e.Sequence, text)
}

// put adds an event that the client wants to the queue, or counts it as missed.
func (l *listener) put(e *event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.wanted(e) {
		return
	}
	if l.missed == 0 && (len(l.queue) == 0 || l.size+len(e.Data) <= eventQueueSize) {
		select {
		case l.queue <- e:
			l.size += len(e.Data)
			return
		default:
		}
	}
	l.missed++
}

// took records that the client took an event from the queue.
func (l *listener) took(e *event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.size -= len(e.Data)
}

// want sets the filter of the events after the queued ones.
func (l *listener) want(wanted func(*event) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wanted = wanted
}

// takeMissed returns the number of events that the client missed after the queued ones, and resets it.
func (l *listener) takeMissed() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) > 0 {
		return 0
	}
	n := l.missed
	l.missed = 0
	return n
}

// join adds a client. It gets the new events that pass its filter.
func (h *history) join(wanted func(*event) bool) *listener {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := &listener{queue: make(chan *event, eventQueue), life: h.life, wanted: wanted}
	h.clients[l] = true
	return l
}

func (h *history) leave(l *listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.clients, l)
}

// lost reports whether the history ends before a sequence, which means that it was lost and created again.
func (h *history) lost(after uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last > 0 && after > h.last
}

// changedSince reports whether an event arrived after a time.
func (h *history) changedSince(at time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.changed.After(at)
}

// deferredPods returns the pods that are deferred, unless their last verdict is too old.
func (h *history) deferredPods(now time.Time) []status.DeferredPod {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deferred.Forget(now)
	return h.deferred.List()
}
