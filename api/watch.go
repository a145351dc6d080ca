package api

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/rehome-dev/rehome/actuator"
	"github.com/rehome-dev/rehome/api/feed"
	"github.com/rehome-dev/rehome/schemas/cloudevent/serve"
	"github.com/rehome-dev/rehome/status"
)

const (
	// mostStreams limits the clients of a stream, and mostUserStreams the clients of one user.
	mostStreams, mostUserStreams = 64, 8
	// activityEvery is the shortest time between two activities, and quietEvery the time between them without events.
	activityEvery, quietEvery = time.Second, 10 * time.Second
)

// Activity is the activity of Rehome, as a message of a watch.
type Activity struct {
	Time          time.Time                 `json:"time"`
	Moves         []actuator.Move           `json:"moves"`
	Deferred      []status.DeferredPod      `json:"deferred"`
	Breakers      []status.WorkloadBreaker  `json:"breakers"`
	Storm         []actuator.StormCondition `json:"storm"`
	Maintenances  []status.Maintenance      `json:"maintenances"`
	Requests      []status.OpenRequest      `json:"requests"`
	LimitsReached []string                  `json:"limitsReached"`
	Warnings      []string                  `json:"warnings"`
}

// Missed tells a client to drop its state. Reset and a new snapshot follow.
type Missed struct {
	Reason string `json:"reason"`
}

// Reasons for a new snapshot.
var (
	errSlow   = errors.New("the client was too slow")
	errRights = errors.New("the rights of the user have changed")
)

// The other messages of a watch, for the API document. Package feed writes them.
type (
	nodeChanges struct {
		Rows []feed.NodeRow `json:"rows"`
		Gone []string       `json:"gone" doc:"names"`
	}
	podChanges struct {
		Rows []feed.PodRow `json:"rows"`
		Gone []string      `json:"gone" doc:"UIDs"`
	}
	endOfSnapshot struct{}
)

func (s *Server) registerWatch(a huma.API) {
	huma.Register(a, streamOperation(a, huma.Operation{
		OperationID: "watch", Path: "/v1/watch", Summary: "Nodes, pods, the activity of Rehome, and all changes",
		Description: "Server-sent events: reset, all nodes and pods, ready, then changes, and activity at most once a second. " +
			"After missed, reset follows again.",
	}, map[string]any{
		"reset": Identity{}, "nodes": nodeChanges{}, "pods": podChanges{}, "ready": endOfSnapshot{},
		"activity": Activity{}, "missed": Missed{},
	}), answer(s, s.watch))
}

// streamOperation describes a stream of messages.
func streamOperation(a huma.API, o huma.Operation, messages map[string]any) huma.Operation {
	o.Method = http.MethodGet
	schema := &huma.Schema{
		Type: huma.TypeObject, Description: "one property for each event, with the data of it", Properties: map[string]*huma.Schema{},
	}
	for event, data := range messages {
		schema.Properties[event] = a.OpenAPI().Components.Schemas.Schema(reflect.TypeOf(data), true, event)
	}
	o.Responses = map[string]*huma.Response{"200": {
		Description: "server-sent events", Content: map[string]*huma.MediaType{"text/event-stream": {Schema: schema}},
	}}
	return o
}

// streams counts the clients of a stream.
type streams struct {
	what string

	mu    sync.Mutex
	users map[string]int // by [user.requester]
	all   int
}

// begin counts a client, or returns a *[serve.Refusal].
func (s *streams) begin(u user) (end func(), err error) {
	name := u.requester()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.all >= mostStreams:
		err = serve.Refuse(http.StatusTooManyRequests, "%d clients %s, which is the limit", mostStreams, s.what).After(retryAfter)
	case s.users[name] >= mostUserStreams:
		err = serve.Refuse(http.StatusTooManyRequests, "%d clients of user %.200s %s, which is the limit",
			mostUserStreams, u.Username, s.what).After(retryAfter)
	}
	if err != nil {
		return nil, err
	}
	if s.users == nil {
		s.users = map[string]int{}
	}
	s.users[name]++
	s.all++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all--
		if s.users[name]--; s.users[name] == 0 {
			delete(s.users, name)
		}
	}, nil
}

// streamed makes the response of a stream, which ends with the client or the server.
func (s *Server) streamed(c call, end func(), run func(context.Context, *stream)) *huma.StreamResponse {
	return &huma.StreamResponse{Body: func(h huma.Context) {
		defer end()
		r, w := humago.Unwrap(h)
		if r.Method == http.MethodHead { // which a route for GET takes, too
			return
		}
		ctx, cancel := context.WithCancel(h.Context())
		defer cancel()
		defer context.AfterFunc(s.running, cancel)()
		if to, err := newStream(w, c.header); err == nil {
			run(ctx, to)
			to.end()
		}
	}}
}

func (s *Server) watch(ctx context.Context, _ *struct{}) (*huma.StreamResponse, error) {
	r, end, err := s.streamRights(ctx, &s.watches)
	if err != nil {
		return nil, err
	}
	return s.streamed(r.call, end, func(ctx context.Context, to *stream) {
		defer r.begin().Stop()
		for {
			err := s.watchAs(ctx, to, r)
			if !errors.Is(err, errSlow) && !errors.Is(err, errRights) || to.tell("missed", Missed{err.Error()}) != nil {
				return
			}
		}
	}), nil
}

// watchAs writes a snapshot and the changes after it. It returns errSlow or errRights if another snapshot is necessary, and
// another error at the end of the stream.
func (s *Server) watchAs(ctx context.Context, to *stream, r *rights) error {
	if err := r.refresh(ctx); err != nil && !errors.Is(err, errRights) {
		return err
	}
	client, err := s.feed.Join(ctx, feed.Rights{All: r.access.All, Nodes: r.access.Nodes, Namespaces: r.access.namespaces})
	if err != nil {
		return err
	}
	defer s.feed.Leave(client)
	err = s.sendSnapshot(ctx, to, r, client)
	pings := time.NewTicker(pingEvery)
	defer pings.Stop()
	for activity := s.activity.latest(); ; {
		if err == nil {
			err = r.refresh(ctx)
		}
		if err != nil {
			return err
		}
		if activity.at != nil {
			if m := s.activityFor(activity, r.call.user, r.access); m != nil {
				err = to.send(m)
			}
			activity.at = nil
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case m, ok := <-client.Changes:
			if !ok {
				return errSlow
			}
			err = to.send(m)
		case <-activity.next:
			activity = s.activity.latest()
		case <-pings.C:
			err = to.send(ping())
		case <-r.due.C:
			err = r.check(ctx)
		}
	}
}

// sendSnapshot begins a watch with all nodes and pods.
func (s *Server) sendSnapshot(ctx context.Context, to *stream, r *rights, client *feed.Client) error {
	if err := to.tell("reset", s.identity(r.call.user, r.access)); err != nil {
		return err
	}
	for _, m := range client.Snapshot {
		if err := r.refresh(ctx); err != nil {
			return err
		}
		if err := to.send(m); err != nil {
			return err
		}
	}
	client.Snapshot = nil
	return nil
}

// activities have the latest activity.
type activities struct {
	mu  sync.Mutex
	now latest
}

// latest is an activity and the signal for the next one.
type latest struct {
	at   *snapshot     // nil: none yet
	all  *feed.Message // for users who may see everything
	next chan struct{}
}

func (a *activities) latest() latest {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.now
}

func (a *activities) set(now snapshot, all *feed.Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.now.next)
	a.now = latest{&now, all, make(chan struct{})}
}

func (a *activities) clear() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.now.at, a.now.all = nil, nil
}

func (s *Server) activityFor(of latest, u user, a access) *feed.Message {
	if a.full() {
		return of.all
	}
	m, err := message("activity", activityOf(a.status(of.at.status, u), of.at.cluster))
	if err != nil {
		s.Log.Error("cannot encode an activity", "error", err)
	}
	return m
}

func activityOf(st status.Status, clusterWarning string) Activity {
	a := Activity{
		Time: st.Time, Moves: st.MovesInFlight, Deferred: st.Deferred, Breakers: st.WorkloadBreakers, Storm: st.Storm,
		Maintenances: st.Maintenances, Requests: st.Requests, LimitsReached: append([]string{}, st.LimitsReached...),
		Warnings: []string{},
	}
	for _, w := range append([]string{clusterWarning, st.BusWarning, st.ClockWarning}, st.Unreadable...) {
		if w != "" {
			a.Warnings = append(a.Warnings, w)
		}
	}
	return a
}

// act creates activities while a watch has clients: after events at most once per second, otherwise every quietEvery.
func (s *Server) act(ctx context.Context) error {
	tick := time.NewTicker(activityEvery)
	defer tick.Stop()
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if !s.watches.any() {
			s.activity.clear() // the next client must not get an old one
			continue
		}
		if !s.history.changedSince(last) && time.Since(last) < quietEvery {
			continue
		}
		began := time.Now()
		now, err := s.snapshot(ctx)
		if err != nil {
			now.status = status.Of(actuator.Remembered{}, nil, time.Now())
			now.status.BusWarning, now.cluster = publicError(err).Error(), s.clusterWarning(ctx)
		}
		m, err := message("activity", activityOf(now.status, now.cluster))
		if err != nil {
			return err
		}
		last = began
		s.activity.set(now, m)
	}
}

func (s *streams) any() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all > 0
}
