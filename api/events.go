package api

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/filter"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent/serve"
)

// mostReads limits the reads of past events for a client that is slower than new events.
const mostReads = 5

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
	q, err := in.query(time.Now())
	if err != nil {
		return nil, err
	}
	if q.past || !q.follow { // else it waits
		if err := s.Bus.Ready(); err != nil {
			return nil, err
		}
	}
	rights, end, err := s.streamRights(ctx, &s.listens)
	if err != nil {
		return nil, err
	}
	r := eventWriter{rights: rights, eventsQuery: q}
	r.live = s.history.join(r.wanted()) // before the response begins: a client misses no event after that
	leave := func() {
		s.history.leave(r.live)
		end()
	}
	return s.streamed(rights.call, leave, func(ctx context.Context, to *stream) {
		defer rights.begin().Stop()
		r.to = to
		if err := r.run(ctx); err != nil && !errors.Is(err, errGone) && ctx.Err() == nil {
			s.Log.Warn("cannot read the history for a client", "user", rights.call.user.Username, "error", err)
		}
	}), nil
}

// errGone means that the client is gone, has all requested events, or may see nothing any more.
var errGone = errors.New("the client is gone")

// eventWriter writes events to one client.
type eventWriter struct {
	eventsQuery
	rights *rights
	to     *stream
	live   *listener
	read   uint64 // the sequence of the last past event
}

// run writes the past and then new events. It returns errGone, or an error of the bus.
func (r *eventWriter) run(ctx context.Context) error {
	h, live := r.rights.server.history, r.live
	// To other users, a new history after a number that is too high would tell the number of all events.
	if r.rights.access.full() && h.lost(r.After) {
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
			live.missed, live.size, live.queue = 0, 0, make(chan *event, eventQueue)
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
	return r.follows(ctx)
}

func (r *eventWriter) readPast(ctx context.Context) error {
	return r.rights.server.Bus.Events(ctx, r.Query, func(e schemas.Event) error {
		r.read = e.Sequence
		return r.write(ctx, newEvent(e))
	})
}

// wanted returns whether an event matches the query and the client may see it now.
func (r *eventWriter) wanted() func(*event) bool {
	query, a := r.Filter, r.rights.access
	return func(e *event) bool {
		return (a.full() || e.namespace != "" && a.sees(e.namespace)) && query.Matches(e.Event)
	}
}

// changed returns the error of a check of the rights. The client gets other new events if they have changed.
func (r *eventWriter) changed(err error) error {
	if !errors.Is(err, errRights) {
		return err
	}
	r.live.want(r.wanted())
	return nil
}

// write sends an event if the client wants it.
func (r *eventWriter) write(ctx context.Context, e *event) error {
	if err := r.changed(r.rights.refresh(ctx)); err != nil {
		return err
	}
	if !r.wanted()(e) {
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

func (r *eventWriter) follows(ctx context.Context) error {
	pings := time.NewTicker(pingEvery)
	defer pings.Stop()
	for {
		if n := r.live.takeMissed(); n > 0 && r.to.tell("missed", missedEvents{n}) != nil {
			return errGone
		}
		select {
		case <-ctx.Done():
			return errGone
		case e := <-r.live.queue:
			r.live.took(e)
			if e.Sequence <= r.read && e.life == r.live.life { // it is in the past
				continue
			}
			if err := r.write(ctx, e); err != nil {
				return err
			}
		case <-pings.C:
			if r.to.send(ping()) != nil {
				return errGone
			}
		case <-r.rights.due.C:
			if err := r.changed(r.rights.check(ctx)); err != nil {
				return err
			}
		}
	}
}
