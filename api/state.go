package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/rehome-dev/rehome/actuator"
	"github.com/rehome-dev/rehome/api/feed"
	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/schemas/cloudevent/serve"
	"github.com/rehome-dev/rehome/status"
)

const (
	// stateTTL is how long a state is reused.
	stateTTL = time.Second
	// stateTimeout limits the work for a state.
	stateTimeout = 10 * time.Second
	// mostUserReads limits the reads of one user that are in progress, with the delivery of their answers, and mostWaitingReads the
	// reads that wait.
	mostUserReads, mostWaitingReads = 4, 16
	// turnTimeout limits the wait of a read. The wait and stateTimeout together are shorter than the write timeout of the server.
	turnTimeout = 25 * time.Second
)

// Identity identifies the installation and the user of a client.
type Identity struct {
	Cluster      string `json:"cluster"`
	Installation string `json:"installation"`
	Version      string `json:"version"`
	DryRun       bool   `json:"dryRun"`
	User         User   `json:"user"`
}

// User is the caller.
type User struct {
	Name  string `json:"name"`
	All   bool   `json:"all"`   // may get pods in all namespaces
	Nodes bool   `json:"nodes"` // may get nodes
}

// State is the state of Rehome and of the nodes.
type State struct {
	status.Status
	Identity
	Nodes []feed.NodeRow `json:"nodes"`
	// ClusterWarning is the reason why the API server is unreachable. Nodes and pods may be outdated then.
	ClusterWarning string `json:"clusterWarning,omitempty"`
}

// snapshot is a state for all users.
type snapshot struct {
	status status.Status
	nodes  []feed.NodeRow
	// cluster is the reason why the API server is unreachable.
	cluster string
	at      time.Time
}

type stateOutput struct{ Body State }

// inTurn is a middleware for reads. It answers a read in the turn of its user.
func (s *Server) inTurn(c huma.Context, next func(huma.Context)) {
	end, err := s.readTurn(c.Context())
	if err != nil {
		_, w := humago.Unwrap(c)
		s.refuse(w, callOf(c.Context()), err)
		return
	}
	defer end()
	next(c)
}

// readTurn waits until the user has a turn to read, which ends with end. It returns a *[serve.Refusal] when too many reads of the
// user wait already.
func (s *Server) readTurn(ctx context.Context) (end func(), err error) {
	u := callOf(ctx).user
	ctx, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	end, ok := s.userReads.Take(ctx, u.requester())
	if !ok {
		return nil, serve.Refuse(http.StatusTooManyRequests, "other reads of user %.200s are in progress, "+
			"and %d at a time are the limit; try again later", u.Username, mostUserReads).After(time.Second)
	}
	return end, nil
}

func (s *Server) getState(ctx context.Context, _ *struct{}) (*stateOutput, error) {
	u := callOf(ctx).user
	a, err := s.access(ctx, u)
	if err != nil {
		return nil, err
	}
	now, err := s.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	nodes := now.nodes
	if !a.Nodes {
		nodes = feed.Names(s.Cluster, feed.Rights{All: a.All, Namespaces: a.namespaces})
	}
	return &stateOutput{State{a.status(now.status, u), s.identity(u, a), nodes, now.cluster}}, nil
}

func (s *Server) identity(u user, a access) Identity {
	return Identity{
		s.Settings.Cluster, s.Settings.Installation, settings.Version, s.Settings.DryRun, User{u.Username, a.All, a.Nodes},
	}
}

// snapshot returns a state that is at most a second old. Concurrent calls share one read, also its error.
func (s *Server) snapshot(ctx context.Context) (snapshot, error) {
	read := s.reading.DoChan("", func() (any, error) { return s.readSnapshot() })
	select {
	case got := <-read:
		now, _ := got.Val.(snapshot)
		return now, got.Err
	case <-ctx.Done():
		return snapshot{}, ctx.Err()
	}
}

func (s *Server) readSnapshot() (snapshot, error) {
	if time.Since(s.state.at) < stateTTL {
		return s.state, nil
	}
	ctx, cancel := context.WithTimeout(s.running, stateTimeout)
	defer cancel()
	limits := s.Policy().Limits
	st, err := status.Read(ctx, status.Source{
		Settings: s.Settings, Client: s.Client, Bus: s.Bus, Deferred: s.history.deferredPods, Limits: &limits,
	})
	if err != nil {
		return snapshot{}, err
	}
	s.state = snapshot{st, feed.Nodes(s.Cluster), s.clusterWarning(ctx), time.Now()}
	return s.state, nil
}

func (s *Server) clusterWarning(ctx context.Context) string {
	err := errors.Join(s.Cluster.Ready(), settings.APIServerReady(ctx, s.Client))
	if err == nil {
		return ""
	}
	s.Log.Debug("the cluster is unreachable", "error", err)
	return "the API server is unreachable; nodes and pods may have changed"
}

// status returns the part of a status that a user may see.
func (a access) status(st status.Status, u user) status.Status {
	if a.full() {
		return st
	}
	seen := status.Of(actuator.Remembered{}, nil, st.Time)
	seen.BusWarning, seen.ClockWarning = st.BusWarning, st.ClockWarning
	for _, m := range st.MovesInFlight {
		if a.sees(m.Pod.Namespace) {
			seen.MovesInFlight = append(seen.MovesInFlight, m)
		}
	}
	for _, d := range st.Deferred {
		if a.sees(d.Pod.Namespace) {
			seen.Deferred = append(seen.Deferred, d)
		}
	}
	for _, r := range st.Requests {
		if u.made(r.Sender, r.Requester) {
			seen.Requests = append(seen.Requests, r)
		}
	}
	return seen
}
