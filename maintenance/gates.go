package maintenance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

const (
	// gateInterval is the shortest time between two calls of a query. The query of each node is separate.
	gateInterval = 15 * time.Second
	// gateTimeout bounds one call.
	gateTimeout = 3 * time.Second
	// gateCalls is how long a refresh begins calls. With the timeout of the last one, it takes at most 5 s.
	gateCalls = 2 * time.Second
	// gateMaxAge is how long an answer counts: some refreshes of a slow server.
	gateMaxAge = 4 * gateInterval
)

// gates has the last answers to the queries of gates. Safe for concurrent use.
type gates struct {
	server Prometheus // nil if no query can be sent
	err    error      // the reason why server is nil
	now    func() time.Time

	mu      sync.Mutex
	answers map[string]gateAnswer // by query
	// failure is the error of a call, at the time failed, that did not reach the server, or nil.
	failure error
	failed  time.Time
}

// gateAnswer is the last answer to a query.
type gateAnswer struct {
	plan.Gate           // without its name
	called    time.Time // the start of the call
}

// newGates returns gates without answers. server is nil if the policy names none, or if err is not nil.
func newGates(server Prometheus, err error, now func() time.Time) *gates {
	if server == nil && err == nil {
		err = errors.New("the policy names no Prometheus")
	}
	return &gates{server: server, err: err, now: now, answers: map[string]gateAnswer{}}
}

// gate returns the state of a gate for a node. If it matters, its query is added to queries, with true if the node is in
// progress.
func (s *session) gate(gate v1alpha1.Gate, n *corev1.Node, matters, inProgress bool, queries map[string]bool) plan.Gate {
	if gate.Query == "" {
		open, message := plan.GateOpen(gate, n)
		return plan.Gate{Name: gate.Name, Open: open, Message: message}
	}
	query := strings.ReplaceAll(gate.Query, "$node", n.Name)
	if matters {
		queries[query] = queries[query] || inProgress
	}
	return s.gates.answer(gate.Name, query)
}

// gatesMatter reports whether the next step of a node depends on its gates: the node can be started, or its pods are
// moving.
func gatesMatter(m *v1alpha1.NodeMaintenance, stage v1alpha1.NodeStage, canBegin bool) bool {
	if m.DeletionTimestamp != nil || m.Spec.Stage != v1alpha1.Cordon && m.Spec.Stage != v1alpha1.Drain {
		return false
	}
	switch stage {
	case "", v1alpha1.Waiting:
		return canBegin
	case v1alpha1.Claimed, v1alpha1.Cordoned, v1alpha1.Draining:
		return m.Spec.Stage == v1alpha1.Drain
	default:
		return false
	}
}

// answer returns the last answer to a query. The gate is closed without an answer, and if the last call is too long ago.
func (g *gates) answer(name, query string) plan.Gate {
	if g.server == nil {
		return plan.Gate{Name: name, Message: fmt.Sprintf("its query cannot be sent: %v", g.err)}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.answers[query]
	is := a.Gate
	switch {
	case !is.Open && is.Message == "":
		is.Message = "its query was not sent yet"
	case is.Open && g.now().Sub(a.called) > gateMaxAge:
		is.Open, is.Message = false, fmt.Sprintf("its query was not sent for more than %v: Prometheus answers too slowly", gateMaxAge)
	}
	is.Name = name
	return is
}

// refresh calls the due queries, one at a time, and reports whether there were any. It takes at most 5 s: queries of a
// slow server wait for the next refresh. Nodes in progress, whose queries are true in the map, come first, so that waiting
// nodes do not stop a drain. If the server cannot be reached, that is the answer to all queries for an interval, so that
// maintenances do not wait for one timeout after another.
func (g *gates) refresh(ctx context.Context, queries map[string]bool) (called bool) {
	if g.server == nil {
		return false
	}
	began := g.now()
	for _, query := range g.sorted(queries) {
		if ctx.Err() != nil || g.now().Sub(began) >= gateCalls {
			break
		}
		if !g.due(query) {
			continue
		}
		values, err := g.call(ctx, query)
		g.mu.Lock()
		a := g.answers[query]
		a.Open, a.Message = answered(values, err)
		g.answers[query] = a
		g.mu.Unlock()
		called = true
	}
	return called
}

// sorted returns the queries of nodes in progress, then the others, each with the longest waiting first.
func (g *gates) sorted(queries map[string]bool) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.SortedFunc(maps.Keys(queries), func(a, b string) int {
		if queries[a] != queries[b] {
			if queries[a] {
				return -1
			}
			return 1
		}
		return cmp.Or(g.answers[a].called.Compare(g.answers[b].called), cmp.Compare(a, b))
	})
}

// call sends a query, unless the server could not be reached a moment ago.
func (g *gates) call(ctx context.Context, query string) ([]float64, error) {
	g.mu.Lock()
	failure, since := g.failure, g.now().Sub(g.failed)
	g.mu.Unlock()
	if failure != nil && since < gateInterval {
		return nil, failure
	}
	ctx, cancel := context.WithTimeout(ctx, gateTimeout)
	defer cancel()
	values, err := g.server.Values(ctx, query)
	if _, unreachable := errors.AsType[*url.Error](err); unreachable {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.failure, g.failed = err, g.now()
	}
	return values, err
}

// due reports whether a query may be sent again, and records that it is sent now. It forgets unused queries.
func (g *gates) due(query string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	maps.DeleteFunc(g.answers, func(_ string, a gateAnswer) bool { return now.Sub(a.called) > 10*gateInterval })
	a, known := g.answers[query]
	if known && now.Sub(a.called) < gateInterval {
		return false
	}
	a.called = now
	g.answers[query] = a
	return true
}

func (g *gates) close() {
	if g.server != nil {
		g.server.Close()
	}
}

// answered reports whether an answer opens the gate, and why not. The message contains no values, which would change
// the status all the time.
func answered(values []float64, err error) (open bool, message string) {
	unreachable, is := errors.AsType[*url.Error](err)
	switch {
	case is:
		return false, fmt.Sprintf("Prometheus cannot be reached: %v", unreachable.Err)
	case err != nil:
		return false, fmt.Sprintf("Prometheus cannot answer its query: %v", err)
	case len(values) == 0:
		return false, "the answer to its query has no sample"
	case slices.ContainsFunc(values, func(v float64) bool { return !(v >= 1) }): // also NaN
		return false, "a sample of the answer to its query is below 1"
	}
	return true, ""
}
