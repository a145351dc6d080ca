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

// Query selects a pod.
type Query struct {
	Namespace, Name string
	// Since excludes earlier answers and verdicts. The zero time excludes none.
	Since time.Time
	// Node is the node of the pod. It is empty if the node is not known.
	Node string
}

// Reader passes the events on these channels since that time to handle, oldest first. The zero time
// means all events. It returns an error of handle unchanged.
type Reader func(ctx context.Context, channels []string, since time.Time, handle func(schemas.Event) error) error

// Read returns the history of each pod with this name, oldest first. It is empty if there are no events.
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
	seen     map[string]bool // IDs of events that were read, since an event can come twice
	answers  map[string]answer
	verdicts map[string]verdict
	deltas   map[string]delta
	replaced []schemas.Verdict // settled verdicts of moves whose replacement has this name
}

type answer struct {
	schemas.Event
	of     schemas.Intents // without its intents
	intent schemas.Intent  // for the pod
}

type verdict struct {
	schemas.Event
	schemas.Verdict
}

type delta struct {
	schemas.Event
	schemas.Delta
}

// take stores an event if it concerns the pod. It ignores unreadable events.
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

// readReplaced reads settled moves in the namespace, because one of them can name the pod as its replacement.
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

// readAnswers reads intents that can list the pod.
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

// errAll stops the read.
var errAll = errors.New("all changes are found")

// readChanges reads the changes that began chains: first the changes of the pod's nodes, at any time, and then all changes since
// the oldest known cause.
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

// find reads changes until it has all wanted ones.
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
		return fmt.Errorf("read the first changes of chains: %w", err)
	}
	return nil
}

// margin allows for differences between clocks.
const margin = time.Minute

// wanted returns the IDs of missing changes and their earliest possible time.
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
