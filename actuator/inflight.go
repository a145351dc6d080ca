package actuator

import (
	"cmp"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/schemas"
)

// View is what the actuator knows of the cluster without asking the API server: [cluster.Workloads], or one given.
type View interface {
	Pod(uid types.UID) (cluster.Pod, bool)
	// Pods are those of a workload, in the order in which they were made.
	Pods(workload types.UID) []cluster.Pod
	Tally(workload types.UID) cluster.Tally
	Nodes() []cluster.Node
	// Version is the resource version of a pod as it is known; empty: it is not.
	Version(pod types.UID) string
	// Seen counts the pods in the order in which they became known; Latest is the number given last.
	Seen(pod types.UID) uint64
	Latest() uint64
}

// blank is a view that knows nothing.
type blank struct{}

func (blank) Pod(types.UID) (cluster.Pod, bool) { return cluster.Pod{}, false }
func (blank) Pods(types.UID) []cluster.Pod      { return nil }
func (blank) Tally(types.UID) cluster.Tally     { return cluster.Tally{} }
func (blank) Nodes() []cluster.Node             { return nil }
func (blank) Version(types.UID) string          { return "" }
func (blank) Seen(types.UID) uint64             { return 0 }
func (blank) Latest() uint64                    { return 0 }

// inFlight is a move in flight, from before it is asked for until its replacement is ready.
type inFlight struct {
	record
	at limitKeys
	// seen is the newest pod that was known when the move began; its replacement is newer. 0: the move is older than this
	// process, and its replacement is told by the time at which it was made.
	seen uint64
	// message asked for it. nil: it is not known.
	message *message
	// recovered is until when the move stays in the ledger because a process before this one began it. Zero: this one did.
	recovered time.Time
	// saved: the ledger has it.
	saved bool
	// told: the verdict that began it is stored.
	told bool
	// ending: the verdict that ends it is not stored yet.
	ending bool
	// over is how it ended, as soon as that is seen: the replacement may be gone when it can be said.
	over        *ended
	replacement types.UID
}

func (x *inFlight) uid() types.UID { return x.Open.Intent.Pod.UID }

// scope identifies the messages that may list the pod for the same reason.
func (x *inFlight) scope() scopeKey {
	return scopeKey{x.Open.Profile, x.Open.Strategy, x.Open.Scope.Kind, x.Open.Scope.Key}
}

// limitKeys are what a move in flight counts against. workload is empty for a pod without a controller.
type limitKeys struct {
	node, namespace string
	workload        types.UID
}

// keysOf are what a move of the intent's pod counts against.
func keysOf(o Open, v View) limitKeys {
	p, _ := v.Pod(o.Intent.Pod.UID)
	return limitKeys{node: o.Intent.Node, namespace: o.Intent.Pod.Namespace, workload: p.Workload.UID}
}

// workloadOf is the workload of a pod as a verdict names it. nil: it is not known, or there is none.
func workloadOf(v View, pod types.UID) *schemas.ObjectRef {
	if p, ok := v.Pod(pod); ok && p.Workload.UID != "" {
		return &p.Workload
	}
	return nil
}

// moves are the moves in flight. Not safe for concurrent use. newMoves makes one.
type moves struct {
	all        map[types.UID]*inFlight
	workloads  map[types.UID]*workloadMoves
	stepping   map[types.UID]*inFlight // those whose method has more steps to take
	replacing  map[types.UID]*inFlight // by the pod that replaces
	nodes      map[string]int
	namespaces map[string]int
	last       map[types.UID]time.Time // when a move of the workload was accepted last, as long as its cooldown lasts
}

// workloadMoves are the moves in flight of one workload. What is needed of its pods is kept up to date pod by pod.
type workloadMoves struct {
	moves    map[types.UID]*inFlight
	stepping map[types.UID]*inFlight // those whose method has more steps to take
	asked    int                     // those that are not accepted yet
	going    map[types.UID]bool      // pods that are moved and still count as ready
	waiting  []*inFlight             // those without a replacement, the oldest first
	fresh    []types.UID             // new pods that replace no move yet
	first    uint64                  // the newest pod that was known when the first move began
	newest   time.Time               // when the newest pod was made, by the API server's clock
}

func newMoves() *moves {
	return &moves{
		all: map[types.UID]*inFlight{}, workloads: map[types.UID]*workloadMoves{}, stepping: map[types.UID]*inFlight{},
		replacing: map[types.UID]*inFlight{}, nodes: map[string]int{}, namespaces: map[string]int{}, last: map[types.UID]time.Time{},
	}
}

func (m *moves) add(x *inFlight, v View) {
	m.all[x.uid()] = x
	m.nodes[x.at.node]++
	m.namespaces[x.at.namespace]++
	if x.at.workload == "" {
		m.setState(x, x.State)
		return
	}
	w := m.workloads[x.at.workload]
	if w == nil {
		w = &workloadMoves{
			moves: map[types.UID]*inFlight{}, stepping: map[types.UID]*inFlight{}, going: map[types.UID]bool{}, first: x.seen,
		}
		for _, p := range v.Pods(x.at.workload) {
			if p.Created.After(w.newest) {
				w.newest = p.Created
			}
		}
		m.workloads[x.at.workload] = w
	}
	w.moves[x.uid()] = x
	m.setState(x, x.State)
	if x.Moved.IsZero() {
		w.asked++
	}
	if p, known := v.Pod(x.uid()); known && p.Ready {
		w.going[x.uid()] = true
	}
}

func (m *moves) remove(x *inFlight) {
	uid := x.uid()
	if m.all[uid] != x {
		return
	}
	delete(m.all, uid)
	delete(m.stepping, uid)
	delete(m.replacing, x.replacement)
	less(m.nodes, x.at.node)
	less(m.namespaces, x.at.namespace)
	w := m.workloads[x.at.workload]
	if w == nil {
		return
	}
	delete(w.moves, uid)
	delete(w.stepping, uid)
	delete(w.going, uid)
	if x.Moved.IsZero() {
		w.asked--
	}
	for i, o := range w.waiting {
		if o == x {
			w.waiting = append(w.waiting[:i], w.waiting[i+1:]...)
			break
		}
	}
	if len(w.moves) == 0 {
		delete(m.workloads, x.at.workload)
	}
}

func less[K comparable](counts map[K]int, k K) {
	if counts[k]--; counts[k] == 0 {
		delete(counts, k)
	}
}

// setState sets what the method of a move is told at its next step. nil: it has none.
func (m *moves) setState(x *inFlight, state move.State) {
	x.State = state
	sets := []map[types.UID]*inFlight{m.stepping}
	if w := m.workloads[x.at.workload]; w != nil {
		sets = append(sets, w.stepping)
	}
	for _, set := range sets {
		if state == nil {
			delete(set, x.uid())
		} else {
			set[x.uid()] = x
		}
	}
}

// accepted notes that a move was accepted at a time.
func (m *moves) accepted(x *inFlight, at time.Time) {
	w := m.workloads[x.at.workload]
	if w != nil && x.Moved.IsZero() && w.moves[x.uid()] == x {
		w.asked--
	}
	if x.Moved = at; x.at.workload != "" {
		m.last[x.at.workload] = at
	}
}

// newest is when the newest known pod of a workload with moves was made. Zero: none is known.
func (m *moves) newest(workload types.UID) time.Time {
	if w := m.workloads[workload]; w != nil {
		return w.newest
	}
	return time.Time{}
}

// forgetCooldowns forgets the cooldowns that are over.
func (m *moves) forgetCooldowns(cooldown time.Duration, now time.Time) {
	maps.DeleteFunc(m.last, func(_ types.UID, last time.Time) bool { return !now.Before(last.Add(cooldown)) })
}

// older orders moves by when they began.
func older(a, b *inFlight) int {
	return cmp.Or(a.Begun.Compare(b.Begun), cmp.Compare(a.Open.Intent.ID, b.Open.Intent.ID))
}
