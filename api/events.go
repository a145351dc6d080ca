package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/rehome-dev/rehome/api/feed"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/filter"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
	"github.com/rehome-dev/rehome/schemas/cloudevent/serve"
	"github.com/rehome-dev/rehome/status"
)

const (
	// eventQueue is the number of events that a client may be behind.
	eventQueue = 1000
	// deferredFor is the time after its last verdict for which a deferred pod is listed.
	deferredFor = time.Hour
	// retryHistory is the time between two tries to read the history.
	retryHistory = 2 * time.Second
	// mostReads limits the reads of past events for a client that is slower than new events.
	mostReads = 5
)

// history follows the history of the bus for all clients, and has the deferred pods.
type history struct {
	bus *bus.Bus

	mu       sync.Mutex
	clients  map[*listener]bool
	deferred status.Deferrals
	changed  time.Time // when the last event arrived
	last     uint64    // the sequence of the last event
}

// event is an event for several clients.
type event struct {
	schemas.Event
	namespace string // of the pod that a verdict or a delta is about; empty: only users who may see everything see the event
	encode    func() *feed.Message
}

// listener is a client of new events.
type listener struct {
	queue chan *event

	mu     sync.Mutex
	missed int // since the last report to the client
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
	deferred := status.Deferrals{}
	query := bus.Query{Channels: []string{bus.VerdictChannels}, Since: time.Now().Add(-deferredFor)}
	err = h.bus.Events(ctx, query, func(e schemas.Event) error {
		last = e.Sequence
		if v, err := schemas.Decode[schemas.Verdict](e); err == nil {
			deferred.Verdict(v, e.Time)
		}
		return nil
	})
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
	h.changed, h.last = time.Now(), e.Sequence
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

// put adds an event to the queue, or counts it as missed.
func (l *listener) put(e *event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.missed == 0 {
		select {
		case l.queue <- e:
			return
		default:
		}
	}
	l.missed++
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

func (h *history) join() *listener {
	l := &listener{queue: make(chan *event, eventQueue)}
	h.mu.Lock()
	defer h.mu.Unlock()
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
	for key, p := range h.deferred {
		if now.Sub(p.Last) > deferredFor {
			delete(h.deferred, key)
		}
	}
	return h.deferred.List()
}

type eventsInput struct {
	Types        []string `query:"type" doc:"types in the history, such as verdict; comma-separated, like all lists" maxItems:"10"`
	Outcomes     []string `query:"outcome" doc:"outcome of verdicts, such as evicted" maxItems:"10"`
	Strategies   []string `query:"strategy" maxItems:"50"`
	Namespaces   []string `query:"namespace" maxItems:"50"`
	Pods         []string `query:"pod" doc:"NAMESPACE/NAME" maxItems:"50"`
	Nodes        []string `query:"node" maxItems:"50"`
	Maintenances []string `query:"maintenance" maxItems:"50"`
	Correlations []string `query:"correlation" maxItems:"50"`
	Since        string   `query:"since" doc:"start this long ago, such as 1h, or at this time, such as 2030-01-02T15:04:05Z"`
	Follow       bool     `query:"follow" default:"true" doc:"continue with new events"`
	Limit        int      `query:"limit" minimum:"0" doc:"largest number of events; 0 means no limit"`
	LastEventID  string   `header:"Last-Event-ID" doc:"id of the last event that the client has; replaces since"`
}

// eventsQuery is the query of a client.
type eventsQuery struct {
	filter.Filter
	bus.Query      // of the past
	past      bool // past events are needed
	follow    bool
	left      int // remaining events; negative means no limit
}

func (in *eventsInput) query(now time.Time) (q eventsQuery, err error) {
	q.Filter = filter.Filter{
		Types: in.Types, Outcomes: in.Outcomes, Strategies: in.Strategies, Namespaces: in.Namespaces, Nodes: in.Nodes,
		Maintenances: in.Maintenances, Correlations: in.Correlations,
	}
	for _, text := range in.Pods {
		p, err := filter.ParsePod(text)
		if err != nil {
			return q, serve.Refuse(http.StatusUnprocessableEntity, "pod: %w", err)
		}
		q.Pods = append(q.Pods, p)
	}
	if err := q.Check(); err != nil {
		return q, serve.Refuse(http.StatusUnprocessableEntity, "%w", err)
	}
	for _, noun := range []string{filter.Scope, filter.Request} {
		if slices.Contains(q.Types, noun) {
			return q, serve.Refuse(http.StatusUnprocessableEntity, "type: want %s, got %s", filter.Choices(), noun)
		}
	}
	q.Query.Channels, q.follow, q.left = q.Filter.Channels(), in.Follow, in.Limit
	if q.left == 0 {
		q.left = -1
	}
	if in.LastEventID != "" {
		if q.After, err = strconv.ParseUint(in.LastEventID, 10, 64); err != nil {
			return q, serve.Refuse(http.StatusUnprocessableEntity, "Last-Event-ID: want a number, got %.100q", in.LastEventID)
		}
	}
	if q.Since, err = timeOf(in.Since, now); err != nil {
		return q, err
	}
	if q.Since.IsZero() && !q.follow {
		q.Since = time.Unix(0, 0)
	}
	q.past = q.After > 0 || !q.Since.IsZero()
	return q, nil
}

// timeOf parses a time, or a duration before now. It returns the zero time for an empty text.
func timeOf(since string, now time.Time) (at time.Time, err error) {
	if since == "" {
		return at, nil
	}
	if d, err := time.ParseDuration(since); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	if at, err = time.Parse(time.RFC3339, since); err != nil {
		return at, serve.Refuse(http.StatusUnprocessableEntity,
			"since: want a duration such as 1h, or a time such as 2030-01-02T15:04:05Z, got %.100q", since)
	}
	return at, nil
}

// missedEvents is the number of events that a slow client missed.
type missedEvents struct {
	Count int `json:"count"`
}

func (s *Server) registerEvents(a huma.API) {
	huma.Register(a, streamOperation(a, huma.Operation{
		OperationID: "events", Path: "/v1/events", Summary: "Past and new events",
		Description: "Server-sent events without a name. The data is a CloudEvent as JSON, and the id is an increasing number. " +
			"The event missed has the number of events that a slow client missed.",
	}, map[string]any{"message": map[string]any{}, "missed": missedEvents{}}), answer(s, s.events))
}

func (s *Server) events(ctx context.Context, in *eventsInput) (*huma.StreamResponse, error) {
	c := callOf(ctx)
	q, err := in.query(time.Now())
	if err != nil {
		return nil, err
	}
	a, err := s.access(ctx, c.user)
	if err != nil {
		return nil, err
	}
	if q.past || !q.follow { // else it waits
		if err := s.Bus.Ready(); err != nil {
			return nil, err
		}
	}
	end, err := s.listens.begin(c.user)
	if err != nil {
		return nil, err
	}
	return s.streamed(c, end, func(ctx context.Context, to *stream) {
		r := eventWriter{server: s, call: c, access: a, eventsQuery: q, to: to}
		if err := r.run(ctx); err != nil && !errors.Is(err, errGone) && ctx.Err() == nil {
			s.Log.Warn("cannot read the history for a client", "user", c.user.Username, "error", err)
		}
	}), nil
}

// errGone means that the client is gone, or has all requested events.
var errGone = errors.New("the client is gone")

// eventWriter writes events to one client.
type eventWriter struct {
	eventsQuery
	server *Server
	call   call
	access access
	to     *stream
	// read is the sequence of the last past event, and seen the sequence of the last new event that was skipped because of it.
	read, seen uint64
}

// run writes the past and then new events. It returns errGone, or an error of the bus.
func (r *eventWriter) run(ctx context.Context) error {
	h := r.server.history
	live := h.join()
	defer h.leave(live)
	if h.lost(r.After) {
		r.After = 0
		if r.Since.IsZero() {
			r.Since = time.Unix(0, 0)
		}
		if r.to.tell("missed", missedEvents{}) != nil {
			return errGone
		}
	}
	for reads := 0; r.past && reads < mostReads; reads++ {
		if err := r.readPast(ctx); err != nil {
			return err
		}
		live.mu.Lock()
		again := live.missed > 0 // they are in the past now
		if again {
			live.missed, live.queue = 0, make(chan *event, eventQueue)
		}
		live.mu.Unlock()
		if !again {
			break
		}
		r.After = r.read
	}
	if !r.follow {
		return errGone
	}
	return r.follows(ctx, live)
}

func (r *eventWriter) readPast(ctx context.Context) error {
	return r.server.Bus.Events(ctx, r.Query, func(e schemas.Event) error {
		r.read = e.Sequence
		return r.write(newEvent(e))
	})
}

// write sends an event if it matches the query and the client may see it.
func (r *eventWriter) write(e *event) error {
	if !r.Matches(e.Event) || !r.access.full() && (e.namespace == "" || !r.access.sees(e.namespace)) {
		return nil
	}
	m := e.encode()
	if m == nil {
		return nil
	}
	if r.to.send(m) != nil {
		return errGone
	}
	if r.left--; r.left == 0 {
		return errGone
	}
	return nil
}

func (r *eventWriter) follows(ctx context.Context, live *listener) error {
	pings, rechecks := time.NewTicker(pingEvery), time.NewTicker(recheckEvery)
	defer pings.Stop()
	defer rechecks.Stop()
	for {
		if n := live.takeMissed(); n > 0 && r.to.tell("missed", missedEvents{n}) != nil {
			return errGone
		}
		select {
		case <-ctx.Done():
			return errGone
		case e := <-live.queue:
			if e.Sequence <= r.read && e.Sequence > r.seen {
				r.seen = e.Sequence
				continue
			}
			r.read = 0 // also if the history was created again
			if err := r.write(e); err != nil {
				return err
			}
		case <-pings.C:
			if r.to.send(ping()) != nil {
				return errGone
			}
		case <-rechecks.C:
			now, gone := r.server.recheck(ctx, r.call)
			if gone {
				return errGone
			}
			if now != nil {
				r.access = *now
			}
		}
	}
}
