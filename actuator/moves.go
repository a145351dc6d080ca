package actuator

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator/workload"
	"github.com/rehome-dev/rehome/schemas"
)

// View is what the actuator knows of the cluster without asking the API server: [workload.View], or one given.
type View interface {
	Pod(uid types.UID) (workload.Pod, bool)
	// Pods are those of a workload, in the order in which they were made.
	Pods(workload types.UID) []workload.Pod
	Tally(workload types.UID) workload.Tally
	Nodes() []workload.Node
	// Version is the resource version of a pod as it is known; empty: it is not.
	Version(pod types.UID) string
	// Seen counts the pods in the order in which they became known; Latest is the number given last.
	Seen(pod types.UID) uint64
	Latest() uint64
}

// blank is a view that knows nothing.
type blank struct{}

func (blank) Pod(types.UID) (workload.Pod, bool) { return workload.Pod{}, false }
func (blank) Pods(types.UID) []workload.Pod      { return nil }
func (blank) Tally(types.UID) workload.Tally     { return workload.Tally{} }
func (blank) Nodes() []workload.Node             { return nil }
func (blank) Version(types.UID) string           { return "" }
func (blank) Seen(types.UID) uint64              { return 0 }
func (blank) Latest() uint64                     { return 0 }

// moving is a move in flight.
type moving struct {
	record
	at mark // what it counts against
	// seen is the newest pod that was known when the move began; its replacement is newer. 0: the move is older than this
	// process, and its replacement is told by the time at which it was made.
	seen uint64
	// answer is the intents message that asked for it. nil: it is not known.
	answer *answer
	// recovered is until when the move stays in the ledger because a process before this one began it. Zero: this one did.
	recovered time.Time
	// claimed: the ledger has it.
	claimed bool
	// told: the verdict that began it is stored.
	told bool
	// over is how it ended, as soon as that is seen: the replacement may be gone when it can be said.
	over        *ended
	replacement types.UID
	stepping    bool // its method is at work
}

// mark is what a move in flight counts against. workload is empty for a pod without a controller.
type mark struct {
	node, namespace string
	workload        types.UID
}

// moves are the moves in flight. Not safe for concurrent use. newMoves makes one.
type moves struct {
	all        map[types.UID]*moving
	workloads  map[types.UID]map[types.UID]*moving
	nodes      map[string]int
	namespaces map[string]int
	last       map[types.UID]time.Time // when a move of the workload was accepted last, as long as the pause of the policy lasts
}

func newMoves() *moves {
	return &moves{
		all: map[types.UID]*moving{}, workloads: map[types.UID]map[types.UID]*moving{},
		nodes: map[string]int{}, namespaces: map[string]int{}, last: map[types.UID]time.Time{},
	}
}

func (m *moves) add(x *moving) {
	m.all[x.Open.Intent.Pod.UID] = x
	m.nodes[x.at.node]++
	m.namespaces[x.at.namespace]++
	if w := x.at.workload; w != "" {
		if m.workloads[w] == nil {
			m.workloads[w] = map[types.UID]*moving{}
		}
		m.workloads[w][x.Open.Intent.Pod.UID] = x
	}
}

func (m *moves) remove(x *moving) {
	uid := x.Open.Intent.Pod.UID
	if m.all[uid] != x {
		return
	}
	delete(m.all, uid)
	less(m.nodes, x.at.node)
	less(m.namespaces, x.at.namespace)
	if w := x.at.workload; w != "" {
		delete(m.workloads[w], uid)
		if len(m.workloads[w]) == 0 {
			delete(m.workloads, w)
		}
	}
}

func less[K comparable](counts map[K]int, k K) {
	if counts[k]--; counts[k] == 0 {
		delete(counts, k)
	}
}

// accepted notes when a move of a workload was accepted, for the pause of the policy.
func (m *moves) accepted(x *moving) {
	if w := x.at.workload; w != "" {
		m.last[w] = x.Moved
	}
}

// forgetPauses forgets the pauses that are over.
func (m *moves) forgetPauses(pause time.Duration, now time.Time) {
	maps.DeleteFunc(m.last, func(_ types.UID, last time.Time) bool { return !now.Before(last.Add(pause)) })
}

// of are the moves in flight of a workload, the oldest first.
func (m *moves) of(w types.UID) []*moving {
	list := make([]*moving, 0, len(m.workloads[w]))
	for _, x := range m.workloads[w] {
		list = append(list, x)
	}
	slices.SortFunc(list, func(a, b *moving) int {
		return cmp.Or(a.Begun.Compare(b.Begun), cmp.Compare(a.Open.Intent.ID, b.Open.Intent.ID))
	})
	return list
}

// marked is what a move of the pod counts against.
func marked(o Open, v View) mark {
	p, _ := v.Pod(o.Intent.Pod.UID)
	return mark{node: o.Intent.Node, namespace: o.Intent.Pod.Namespace, workload: p.Workload.UID}
}

// newest is when the newest known pod of a workload was made. Zero: none is known.
func newest(v View, workload types.UID) time.Time {
	var at time.Time
	if workload == "" {
		return at
	}
	for _, p := range v.Pods(workload) {
		if p.Created.After(at) {
			at = p.Created
		}
	}
	return at
}

// workloadOf is the workload of a pod as a verdict names it. nil: it is not known, or there is none.
func workloadOf(v View, pod types.UID) *schemas.ObjectRef {
	if p, ok := v.Pod(pod); ok && p.Workload.UID != "" {
		return &p.Workload
	}
	return nil
}
