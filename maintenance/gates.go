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

	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

const (
	// gateInterval is the shortest time between two calls of a query. With another node name it is another query.
	gateInterval = 15 * time.Second
	// gateTimeout bounds one call.
	gateTimeout = 5 * time.Second
)

// gates calls the queries of gates as long as a maintenance waits for the answers. Its methods may be called from many goroutines;
// run from one.
type gates struct {
	server  Prometheus // nil: the policy names none
	changed func(maintenances []string)
	now     func() time.Time
	kicked  chan struct{} // capacity 1: there is a new query

	mu      sync.Mutex
	queries map[string]*gateQuery
}

// gateQuery is one query and its last answer.
type gateQuery struct {
	by      map[string]bool // the maintenances that wait for it
	asked   time.Time       // zero: it was not
	open    bool
	message string // why it is closed
}

func newGates(server Prometheus, now func() time.Time, changed func([]string)) *gates {
	return &gates{
		server: server, changed: changed, now: now, kicked: make(chan struct{}, 1), queries: map[string]*gateQuery{},
	}
}

// gatesOf are the gates of the maintenance for a node. A query is only called while the answer matters.
func (g *gathering) gatesOf(n *corev1.Node, stage v1alpha1.NodeStage, selected bool) []plan.Gate {
	var list []plan.Gate
	for _, gate := range g.m.Spec.Gates {
		if gate.Query == "" {
			open, message := plan.GateOpen(gate, n)
			list = append(list, plan.Gate{Name: gate.Name, Open: open, Message: message})
			continue
		}
		query := strings.ReplaceAll(gate.Query, "$node", n.Name)
		if g.gatesMatter(stage, selected) {
			g.queries[query] = true
		}
		list = append(list, g.gates.answer(gate.Name, query))
	}
	return list
}

// gatesMatter says whether the next step of a node depends on gates: whether it is begun, or whether its pods move.
func (g *gathering) gatesMatter(stage v1alpha1.NodeStage, selected bool) bool {
	if g.m.DeletionTimestamp != nil || g.m.Spec.Stage != v1alpha1.Cordon && g.m.Spec.Stage != v1alpha1.Drain {
		return false
	}
	switch stage {
	case "", v1alpha1.Waiting:
		return g.facts.InWindow && selected
	case v1alpha1.Claimed, v1alpha1.Cordoned, v1alpha1.Draining:
		return g.m.Spec.Stage == v1alpha1.Drain
	case v1alpha1.IsDrained, v1alpha1.Held, v1alpha1.Returning, v1alpha1.Returned, v1alpha1.Gone:
	}
	return false
}

// answer is the last answer to a query.
func (g *gates) answer(name, query string) plan.Gate {
	f := plan.Gate{Name: name, Message: "its query was not asked yet"}
	if g.server == nil {
		f.Message = "its query cannot be asked: the policy names no Prometheus"
		return f
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if q := g.queries[query]; q != nil && !q.asked.IsZero() {
		f.Open, f.Message = q.open, q.message
	}
	return f
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
			delete(q.by, maintenance)
		}
	}
	for text := range queries {
		if g.queries[text] == nil {
			g.queries[text] = &gateQuery{by: map[string]bool{}}
			select {
			case g.kicked <- struct{}{}:
			default:
			}
		}
		g.queries[text].by[maintenance] = true
	}
}

// run calls queries until ctx ends: one at a time, first the one that was called the longest time ago.
func (g *gates) run(ctx context.Context) {
	if g.server == nil {
		return
	}
	defer g.server.Close()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		due, wait := g.due(g.now())
		for _, query := range due {
			if g.ask(ctx, query) != nil {
				break // the others have the same answer now
			}
		}
		if len(due) > 0 {
			continue
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-g.kicked:
		case <-timer.C:
		}
	}
}

// due are the queries to call now, or how long to wait for the next one.
func (g *gates) due(now time.Time) (list []string, wait time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	wait = time.Hour
	for text, q := range g.queries {
		if left := q.asked.Add(gateInterval).Sub(now); left > 0 {
			wait = min(wait, left)
			continue
		}
		if len(q.by) == 0 { // not earlier, so that a maintenance that waits for it again does not shorten the interval
			delete(g.queries, text)
			continue
		}
		list = append(list, text)
	}
	slices.SortFunc(list, func(a, b string) int {
		if by := g.queries[a].asked.Compare(g.queries[b].asked); by != 0 {
			return by
		}
		return strings.Compare(a, b)
	})
	return list, wait
}

// ask calls one query. An error means that the server cannot be reached; that is the answer to all queries that are due.
func (g *gates) ask(ctx context.Context, query string) error {
	bounded, cancel := context.WithTimeout(ctx, gateTimeout)
	defer cancel()
	values, err := g.server.Values(bounded, query)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	open, message := answered(values, err)
	if _, away := errors.AsType[*url.Error](err); !away {
		g.note([]string{query}, open, message)
		return nil
	}
	due, _ := g.due(g.now())
	g.note(append(due, query), open, message)
	return err
}

// answered says whether an answer opens the gate, and if not why. The message has no values: a figure that goes up and down is not
// worth a new status.
func answered(values []float64, err error) (open bool, message string) {
	var away *url.Error
	switch {
	case errors.As(err, &away):
		return false, fmt.Sprintf("Prometheus cannot be asked: %v", away.Err)
	case err != nil:
		return false, fmt.Sprintf("Prometheus cannot answer its query: %v", err)
	case len(values) == 0:
		return false, "the answer to its query has no sample"
	case slices.ContainsFunc(values, func(v float64) bool { return !(v >= 1) }): // written so that NaN closes it, too
		return false, "a sample of the answer to its query is below 1"
	}
	return true, ""
}

// note keeps the answer to some queries, and tells the maintenances that wait for them if it is a new one.
func (g *gates) note(queries []string, open bool, message string) {
	g.mu.Lock()
	concerned := map[string]bool{}
	for _, text := range queries {
		q := g.queries[text]
		if q == nil {
			continue // no maintenance waits for it any more
		}
		if q.asked.IsZero() || q.open != open || q.message != message {
			maps.Copy(concerned, q.by)
		}
		q.asked, q.open, q.message = g.now(), open, message
	}
	g.mu.Unlock()
	if len(concerned) > 0 {
		g.changed(slices.Sorted(maps.Keys(concerned)))
	}
}
