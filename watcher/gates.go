package watcher

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

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

const (
	// gateInterval is how often a query of a gate is asked at most. The name of a node in it makes it another query.
	gateInterval = 15 * time.Second
	// gateTimeout is how long an answer may take.
	gateTimeout = 5 * time.Second
)

// asker puts queries to Prometheus.
type asker interface {
	// Values are those of the samples that the answer has.
	Values(ctx context.Context, query string) ([]float64, error)
	Close()
}

// gates asks the queries of gates, as long as a maintenance waits for the answers. Its methods may be called from many
// goroutines; run from one.
type gates struct {
	server  asker // nil: the policy has none
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
	message string // why not
}

func newGates(server asker, now func() time.Time, changed func([]string)) *gates {
	return &gates{
		server: server, changed: changed, now: now, kicked: make(chan struct{}, 1), queries: map[string]*gateQuery{},
	}
}

// queryFor is the query of a gate for a node.
func queryFor(g v1alpha1.Gate, node string) string { return strings.ReplaceAll(g.Query, "$node", node) }

// fact is what is known of a gate whose query for the node this is.
func (g *gates) fact(gate v1alpha1.Gate, query string) schemas.GateFact {
	f := schemas.GateFact{Name: gate.Name, Message: "its query was not asked yet"}
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

// want says for which queries a maintenance waits from now on, and for no others.
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

// run asks until ctx ends: one query at a time, the one first that was not asked for longest.
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
				break // so it is with the others, which are due still, and are told so
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

// due are the queries that are to be asked now, or how long to wait for the next.
func (g *gates) due(now time.Time) (list []string, wait time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	wait = time.Hour
	for text, q := range g.queries {
		if rest := q.asked.Add(gateInterval).Sub(now); rest > 0 {
			wait = min(wait, rest)
			continue
		}
		if len(q.by) == 0 { // not before, so that who waits for it again does not have it asked too often
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

// ask asks one query. It fails when there is nobody who answers; then that is the answer to all that are due.
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

// answered says whether the gate is open by an answer, and if not why. The values are not in it: a figure that goes up and down
// is no news.
func answered(values []float64, err error) (open bool, message string) {
	var away *url.Error
	switch {
	case errors.As(err, &away):
		return false, fmt.Sprintf("Prometheus cannot be asked: %v", away.Err)
	case err != nil:
		return false, fmt.Sprintf("Prometheus cannot answer its query: %v", err)
	case len(values) == 0:
		return false, "the answer to its query has no sample"
	case slices.ContainsFunc(values, func(v float64) bool { return !(v >= 1) }): // written so that NaN is closed, too
		return false, "a sample of the answer to its query is below 1"
	}
	return true, ""
}

// note keeps the answer to some queries, and tells whom it concerns if it is another one.
func (g *gates) note(queries []string, open bool, message string) {
	g.mu.Lock()
	concerned := map[string]bool{}
	for _, text := range queries {
		q := g.queries[text]
		if q == nil {
			continue // nobody waits for it any more
		}
		if q.asked.IsZero() || q.open != open || q.message != message {
			for name := range q.by {
				concerned[name] = true
			}
		}
		q.asked, q.open, q.message = g.now(), open, message
	}
	g.mu.Unlock()
	if len(concerned) > 0 {
		g.changed(slices.Sorted(maps.Keys(concerned)))
	}
}
