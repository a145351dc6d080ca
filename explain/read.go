package explain

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rehome-dev/rehome/schemas"
)

// Query says which pod is meant.
type Query struct {
	Namespace, Name string
	// Since leaves out answers and verdicts of before. Zero: everything that is kept.
	Since time.Time
	// Node is where the pod runs, if that is known.
	Node string
}

// Reader hands over events of the history that were published on any of these channels since then, in the order in which
// they were stored. The zero time is everything. It returns the error of handle as it is.
type Reader func(ctx context.Context, channels []string, since time.Time, handle func(schemas.Event) error) error

// Read reads what is known of the pods of a name, oldest first. There is none of a name that nothing is known of.
func Read(ctx context.Context, read Reader, q Query) ([]Life, error) {
	r := &record{
		query: q, read: read, seen: map[string]bool{}, answers: map[string]answer{}, verdicts: map[string]verdict{},
		deltas: map[string]delta{},
	}
	for _, pass := range []func(context.Context) error{r.readPod, r.readReplaced, r.readAnswers, r.readChanges} {
		if err := pass(ctx); err != nil {
			return nil, err
		}
	}
	return r.lives(), nil
}

// record holds the events that were read, by ID.
type record struct {
	query    Query
	read     Reader
	seen     map[string]bool // IDs of events that were taken in: an event can come again
	answers  map[string]answer
	verdicts map[string]verdict
	deltas   map[string]delta
	replaced []schemas.Verdict // settled ones of other pods, which a pod of the name replaces
}

type answer struct {
	schemas.Event
	of     schemas.Intents // without the intents
	intent schemas.Intent  // about the pod
}

type verdict struct {
	schemas.Event
	schemas.Verdict
}

type delta struct {
	schemas.Event
	schemas.Delta
}

// take keeps an event if it concerns the pod, and ignores unreadable ones.
func (r *record) take(e schemas.Event) error {
	if r.seen[e.ID] {
		return nil
	}
	switch e.Type {
	case schemas.VerdictType:
		v, err := schemas.Decode[schemas.Verdict](e)
		if err == nil && r.means(v.Intent.Pod) {
			r.verdicts[e.ID] = verdict{e, v}
		}
	case schemas.DeltaType:
		if d, err := schemas.Decode[schemas.Delta](e); err == nil {
			r.deltas[e.ID] = delta{e, d}
		}
	case schemas.IntentsType:
		i, err := schemas.Decode[schemas.Intents](e)
		at := slices.IndexFunc(i.Intents, func(i schemas.Intent) bool { return r.means(i.Pod) })
		if err == nil && at >= 0 {
			intent := i.Intents[at]
			i.Intents = nil
			r.answers[e.ID] = answer{e, i, intent}
		}
	}
	r.seen[e.ID] = true
	return nil
}

func (r *record) means(p schemas.PodRef) bool {
	return p.Namespace == r.query.Namespace && p.Name == r.query.Name
}

func (r *record) readPod(ctx context.Context) error {
	pod := schemas.Token(r.query.Namespace) + "." + schemas.Token(r.query.Name)
	return r.read(ctx, []string{
		schemas.Prefix + ".verdict.*.*." + pod, schemas.Prefix + ".delta.pod.*." + pod,
	}, r.query.Since, r.take)
}

// readReplaced reads settled moves in the namespace, some of which name the pod as the replacement.
func (r *record) readReplaced(ctx context.Context) error {
	settled := schemas.Prefix + ".verdict." + string(schemas.Settled) + ".*." + schemas.Token(r.query.Namespace) + ".*"
	return r.read(ctx, []string{settled}, r.query.Since, func(e schemas.Event) error {
		v, err := schemas.Decode[schemas.Verdict](e)
		if err == nil && v.Settlement != nil && v.Settlement.Replacement != nil && r.means(*v.Settlement.Replacement) {
			r.replaced = append(r.replaced, v)
		}
		return nil
	})
}

// readAnswers reads intents that may list the pod.
func (r *record) readAnswers(ctx context.Context) error {
	of := func(kind schemas.ScopeKind, key string) string {
		return schemas.Prefix + ".intents.*.*." + string(kind) + "." + key
	}
	channels := []string{of(schemas.PodKind, schemas.Token(r.query.Namespace+"/"+r.query.Name))}
	nodes := r.nodes()
	for _, node := range nodes {
		channels = append(channels, of(schemas.NodeKind, schemas.Token(node)))
	}
	if len(nodes) == 0 {
		channels = append(channels, of(schemas.NodeKind, "*"))
	}
	for _, kind := range []schemas.ScopeKind{
		schemas.WorkloadKind, schemas.SpreadKind, schemas.DomainKind, schemas.UsageKind, schemas.RequestKind,
		schemas.MaintenanceKind,
	} {
		channels = append(channels, of(kind, "*"))
	}
	return r.read(ctx, channels, r.query.Since, r.take)
}

func (r *record) nodes() []string {
	names := map[string]bool{r.query.Node: true}
	for _, v := range r.verdicts {
		names[v.Intent.Node] = true
	}
	for _, d := range r.deltas {
		if d.Object.Kind == "Pod" {
			names[d.Node] = true
		}
	}
	delete(names, "")
	return slices.Sorted(maps.Keys(names))
}

// errAll ends the read.
var errAll = errors.New("all changes are found")

// readChanges reads the changes with which chains began: first among those of the pod's nodes, whenever they were, and then
// among all since the oldest cause that is known of.
func (r *record) readChanges(ctx context.Context) error {
	var channels []string
	for _, node := range r.nodes() {
		channels = append(channels, schemas.Prefix+".delta.node.*."+schemas.Token(node))
	}
	if err := r.find(ctx, channels, time.Time{}); err != nil {
		return err
	}
	_, since := r.wanted()
	return r.find(ctx, []string{schemas.Prefix + ".delta.>"}, since)
}

// find reads changes until all wanted ones are found.
func (r *record) find(ctx context.Context, channels []string, since time.Time) error {
	wanted, _ := r.wanted()
	if len(wanted) == 0 || len(channels) == 0 {
		return nil
	}
	err := r.read(ctx, channels, since, func(e schemas.Event) error {
		if !wanted[e.ID] {
			return nil
		}
		delete(wanted, e.ID)
		if err := r.take(e); err != nil {
			return err
		}
		if len(wanted) == 0 {
			return errAll
		}
		return nil
	})
	if err != nil && !errors.Is(err, errAll) {
		return fmt.Errorf("changes that chains began with: %w", err)
	}
	return nil
}

// margin is for clocks that differ.
const margin = time.Minute

// wanted returns the IDs of unknown changes, and the earliest time at which they can be.
func (r *record) wanted() (ids map[string]bool, since time.Time) {
	ids = map[string]bool{}
	want := func(e schemas.Event, scope schemas.ScopeRef) {
		_, known := r.deltas[e.CorrelationID]
		if known || e.CorrelationID == scope.Event || e.CorrelationID == "" || scope.Kind == schemas.RequestKind {
			return
		}
		ids[e.CorrelationID] = true
		if oldest := scope.Since.Add(-margin); since.IsZero() || oldest.Before(since) {
			since = oldest
		}
	}
	for _, v := range r.verdicts {
		want(v.Event, v.Scope)
	}
	for _, a := range r.answers {
		want(a.Event, a.of.Scope)
	}
	return ids, since
}
