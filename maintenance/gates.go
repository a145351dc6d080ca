package maintenance

import (
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
	"k8s.io/client-go/util/workqueue"

	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

const (
	// gateInterval is the shortest time between two calls of a query. With another node name it is another query.
	gateInterval = 15 * time.Second
	// gateTimeout bounds one call.
	gateTimeout = 5 * time.Second
)

// gates call the queries of gates as long as a maintenance waits for the answers. Methods may be called from many goroutines; run
// from one.
type gates struct {
	server  Prometheus // nil: the policy names none
	changed func(maintenances []string)
	now     func() time.Time
	queue   workqueue.TypedDelayingInterface[string] // of queries

	mu      sync.Mutex
	queries map[string]*gateQuery
}

// gateQuery is one query and its last answer.
type gateQuery struct {
	maintenances map[string]bool // that wait for it
	called       time.Time       // zero: never
	open         bool
	message      string // why it is closed
}

func newGates(server Prometheus, now func() time.Time, changed func([]string)) *gates {
	return &gates{
		server: server, changed: changed, now: now, queries: map[string]*gateQuery{},
		queue: workqueue.NewTypedDelayingQueue[string](),
	}
}

// gate is the state of a gate for a node. If it matters, its query is added to queries.
func (s *session) gate(gate v1alpha1.Gate, n *corev1.Node, matters bool, queries map[string]bool) plan.Gate {
	if gate.Query == "" {
		open, message := plan.GateOpen(gate, n)
		return plan.Gate{Name: gate.Name, Open: open, Message: message}
	}
	query := strings.ReplaceAll(gate.Query, "$node", n.Name)
	if matters {
		queries[query] = true
	}
	return s.gates.answer(gate.Name, query)
}

// gatesMatter says whether the next step of a node depends on its gates: it can be begun, or its pods move.
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

// answer is the last answer to a query.
func (g *gates) answer(name, query string) plan.Gate {
	if g.server == nil {
		return plan.Gate{Name: name, Message: "its query cannot be sent: the policy names no Prometheus"}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if q := g.queries[query]; q != nil && !q.called.IsZero() {
		return plan.Gate{Name: name, Open: q.open, Message: q.message}
	}
	return plan.Gate{Name: name, Message: "its query was not sent yet"}
}

// want replaces the queries that a maintenance waits for.
func (g *gates) want(maintenance string, queries map[string]bool) {
	if g.server == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for text, q := range g.queries {
		if !queries[text] {
			delete(q.maintenances, maintenance)
		}
	}
	for text := range queries {
		if g.queries[text] == nil {
			g.queries[text] = &gateQuery{maintenances: map[string]bool{}}
			g.queue.Add(text)
		}
		g.queries[text].maintenances[maintenance] = true
	}
}

// run calls queries, one at a time, until ctx ends.
func (g *gates) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, g.queue.ShutDown)
	defer stop()
	if g.server != nil {
		defer g.server.Close()
	}
	for {
		query, down := g.queue.Get()
		if down {
			return
		}
		if again := g.reconcile(ctx, query); again > 0 {
			g.queue.AddAfter(query, again)
		}
		g.queue.Done(query)
	}
}

// reconcile calls a query that is due. again is when to do so next; zero: never. If the server cannot be reached, that is the
// answer to all queries that are due.
func (g *gates) reconcile(ctx context.Context, query string) (again time.Duration) {
	if left, exists := g.due(query); !exists || left > 0 {
		return left
	}
	bounded, cancel := context.WithTimeout(ctx, gateTimeout)
	defer cancel()
	values, err := g.server.Values(bounded, query)
	if ctx.Err() != nil {
		return 0
	}
	_, unreachable := errors.AsType[*url.Error](err)
	open, message := answered(values, err)
	now, affected := g.now(), map[string]bool{}
	g.mu.Lock()
	for text, q := range g.queries {
		if text != query && !(unreachable && now.Sub(q.called) >= gateInterval) {
			continue
		}
		if q.called.IsZero() || q.open != open || q.message != message {
			maps.Copy(affected, q.maintenances)
		}
		q.called, q.open, q.message = now, open, message
	}
	g.mu.Unlock()
	if len(affected) > 0 {
		g.changed(slices.Sorted(maps.Keys(affected)))
	}
	return gateInterval
}

// due says how long to wait before the next call of a query. One that no maintenance waits for is removed then, not earlier: a
// maintenance that waits again does not shorten the interval.
func (g *gates) due(query string) (left time.Duration, exists bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	q := g.queries[query]
	if q == nil {
		return 0, false
	}
	if left = q.called.Add(gateInterval).Sub(g.now()); left <= 0 && len(q.maintenances) == 0 {
		delete(g.queries, query)
		return 0, false
	}
	return left, true
}

// answered says whether an answer opens the gate, and why not. The message has no values, which would change the status all the
// time.
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
