package actuator

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator/limit"
	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/schemas"
)

// View is a cached view of the cluster. [cluster.Workloads] implements it.
type View interface {
	Pod(uid types.UID) (cluster.Pod, bool)
	// Pods returns the pods of a workload by creation time.
	Pods(workload types.UID) []cluster.Pod
	Tally(workload types.UID) cluster.Tally
	Nodes() []cluster.Node
	// Object returns a pod without the fields that no decision reads, or nil if unknown. It must not be changed.
	Object(pod types.UID) *corev1.Pod
	// Seen returns the number that a pod got when the view first saw it. Latest returns the latest number.
	Seen(pod types.UID) uint64
	Latest() uint64
}

// inFlight is a move, from before its first call until its replacement is ready.
type inFlight struct {
	record
	at limitKeys
	// seen is the number of the newest pod when the move began; its replacement has a higher number. It is 0 if a
	// previous process began the move; then creation times decide.
	seen uint64
	// message is the message that requested it, or nil if unknown.
	message *message
	// unanswered is the time until which the API server may still carry out the eviction call of an earlier session,
	// whose answer is unknown, or zero.
	unanswered time.Time
	// recovered is the time until which the move stays in the ledger because a previous process began it, or zero.
	recovered time.Time
	buckets   [2]*limit.Bucket // the buckets that hold its tokens: of the cluster, and of its namespace or nil
	reported  bool             // the verdict that began it is stored
	ending    bool             // the verdict that ends it is not stored yet
	// failed is the time of the last step if it failed with a permanent error, or zero. failing is how long steps have
	// failed in this way since the last one that did not fail. See stepFailed.
	failed  time.Time
	failing time.Duration
	// over is the end of the move. It is set as soon as it is seen, because the replacement may be gone when the
	// verdict is stored.
	over        *ended
	replacement types.UID
	looked      time.Time // the last read of the pod because it was still in the cache, see staysOn
}

func (x *inFlight) uid() types.UID { return x.Intent.Pod.UID }

// isUnanswered reports whether it is unknown if an earlier session evicted the pod.
func (x *inFlight) isUnanswered() bool { return !x.unanswered.IsZero() && x.Moved.IsZero() }

// limitKeys identify the limits of a move. workload is empty for a pod without a controller.
type limitKeys struct {
	node, namespace string
	workload        types.UID
}

func keysOf(i Intent, v View) limitKeys {
	p, _ := v.Pod(i.Pod.UID)
	return limitKeys{node: i.Node, namespace: i.Pod.Namespace, workload: p.Workload.UID}
}

// workloadOf returns the workload of a pod for a verdict, or nil if it is unknown or there is none.
func workloadOf(v View, pod types.UID) *schemas.ObjectRef {
	if p, ok := v.Pod(pod); ok && p.Workload.UID != "" {
		return &p.Workload
	}
	return nil
}

// moves are the moves in flight. Not safe for concurrent use. Use newMoves to make one.
type moves struct {
	all        map[types.UID]*inFlight
	workloads  map[types.UID]*workloadMoves
	nodes      map[string]int
	namespaces map[string]int
	last       map[types.UID]time.Time // the last acceptance of a move of each workload during its cooldown
}

// workloadMoves are the moves in flight of one workload. They are updated with each pod.
type workloadMoves struct {
	moves   map[types.UID]*inFlight
	asked   int                // moves that are not accepted yet
	going   map[types.UID]bool // moved pods that still count as ready
	waiting []*inFlight        // moves without a replacement, oldest first
	// replacements maps replacement pods to their moves. A pod completes only one move, so it stays here after that.
	replacements map[types.UID]*inFlight
	fresh        []types.UID // new pods that replace no move yet
	first        uint64      // the newest known pod when the first move began
	newest       time.Time   // the creation time of the newest pod, by the API server's clock
}

func newMoves() *moves {
	return &moves{
		all: map[types.UID]*inFlight{}, workloads: map[types.UID]*workloadMoves{}, nodes: map[string]int{},
		namespaces: map[string]int{}, last: map[types.UID]time.Time{},
	}
}

func (m *moves) add(x *inFlight, v View) {
	m.all[x.uid()] = x
	m.nodes[x.at.node]++
	m.namespaces[x.at.namespace]++
	if x.at.workload == "" {
		return
	}
	w := m.workloads[x.at.workload]
	if w == nil {
		w = &workloadMoves{
			moves: map[types.UID]*inFlight{}, going: map[types.UID]bool{}, replacements: map[types.UID]*inFlight{}, first: x.seen,
		}
		for _, p := range v.Pods(x.at.workload) {
			w.sawPod(p)
		}
		m.workloads[x.at.workload] = w
	}
	w.moves[x.uid()] = x
	if x.Moved.IsZero() {
		w.asked++
	}
	if p, known := v.Pod(x.uid()); known && p.Ready {
		w.going[x.uid()] = true
	}
}

func (w *workloadMoves) sawPod(p cluster.Pod) {
	if p.Created.After(w.newest) {
		w.newest = p.Created
	}
}

func (m *moves) remove(x *inFlight) {
	uid := x.uid()
	if m.all[uid] != x {
		return
	}
	delete(m.all, uid)
	decrement(m.nodes, x.at.node)
	decrement(m.namespaces, x.at.namespace)
	w := m.workloads[x.at.workload]
	if w == nil {
		return
	}
	delete(w.moves, uid)
	delete(w.going, uid)
	if x.Moved.IsZero() {
		w.asked--
	}
	w.waiting = slices.DeleteFunc(w.waiting, func(o *inFlight) bool { return o == x })
	if len(w.moves) == 0 {
		delete(m.workloads, x.at.workload)
	}
}

func decrement(counts map[string]int, k string) {
	if counts[k]--; counts[k] == 0 {
		delete(counts, k)
	}
}

// accepted records the acceptance of a move in flight.
func (m *moves) accepted(x *inFlight, at time.Time) {
	if w := m.workloads[x.at.workload]; w != nil {
		w.asked--
	}
	if x.Moved = at; x.at.workload != "" {
		m.last[x.at.workload] = at
	}
}

// forgetCooldowns deletes expired cooldowns.
func (m *moves) forgetCooldowns(cooldown time.Duration, now time.Time) {
	maps.DeleteFunc(m.last, func(_ types.UID, last time.Time) bool { return !now.Before(last.Add(cooldown)) })
}

// begunMoves are the records of moves that have begun and have no ledger key of their own yet. They are the value of
// one key, so pods that move at the same time share one write. The bus syncs each write to disk, so without this a
// drain would wait for one sync per pod before its first eviction. Not safe for concurrent use. Use newBegunMoves to
// make one.
type begunMoves struct {
	records map[types.UID]begunMove
	// due means that the ledger may have a record that is no longer here. This is harmless until another client deletes
	// the pod.
	due bool
}

type begunMove struct {
	intent string          // its ID
	text   json.RawMessage // the record, encoded once
}

func newBegunMoves() *begunMoves { return &begunMoves{records: map[types.UID]begunMove{}} }

func (b *begunMoves) add(r record) error {
	text, err := json.Marshal(r)
	if err == nil {
		b.records[r.Intent.Pod.UID] = begunMove{r.Intent.ID, text}
	}
	return err
}

// has reports whether there is a record of the move.
func (b *begunMoves) has(r record) bool {
	m, ok := b.records[r.Intent.Pod.UID]
	return ok && m.intent == r.Intent.ID
}

// remove removes the record of a move that now has its own key, or was not made.
func (b *begunMoves) remove(r record) {
	if b.has(r) {
		delete(b.records, r.Intent.Pod.UID)
		b.due = true
	}
}

// value returns the value for the ledger, or nil if there are no records.
func (b *begunMoves) value() any {
	if b.due = false; len(b.records) == 0 {
		return nil
	}
	all := make(map[types.UID]json.RawMessage, len(b.records))
	for uid, m := range b.records {
		all[uid] = m.text
	}
	return all
}

// remember stores the record of a move, or deletes it if it is no longer needed. The caller holds mu.
func (s *session) remember(x *inFlight, now time.Time) {
	if x.Settled {
		if !now.Before(s.forgottenAt(x, now)) {
			s.begun.remove(x.record)
			s.change(x.key(), nil)
			return
		}
		s.settled[x.uid()] = x
	}
	s.change(x.key(), x.record)
}

// forgottenAt returns the earliest time at which the ledger may forget a settled move: no limit counts it, no cooldown
// depends on it, and its intents message is out of the table, so the next leader cannot execute it again.
func (s *session) forgottenAt(x *inFlight, now time.Time) time.Time {
	limits := s.policy.Load().Limits
	due := x.Moved.Add(limits.Pause)
	if limits.Any() {
		due = x.Moved.Add(max(limits.Over(), limits.Pause))
	}
	inTable := x.message != nil && !x.message.closed
	// After a restart the replacement must not complete another move.
	others := x.Replacement != "" && s.moves.workloads[x.at.workload] != nil
	if (inTable || others || x.Pending || x.ending) && due.Before(now.Add(sweepEvery)) {
		due = now.Add(sweepEvery)
	}
	if due.Before(x.recovered) {
		due = x.recovered
	}
	return due
}

// counted yields the moves that count against the limits over a window. The caller holds mu.
func (s *session) counted(yield func(limit.Move) bool) {
	for _, moves := range []map[types.UID]*inFlight{s.moves.all, s.settled} {
		for _, x := range moves {
			if !yield(limit.Move{Node: x.at.node, Namespace: x.at.namespace, Accepted: x.Moved}) {
				return
			}
		}
	}
}

// forgetSettled deletes settled moves that are no longer needed. The caller holds mu.
func (s *session) forgetSettled(now time.Time) {
	maps.DeleteFunc(s.settled, func(uid types.UID, x *inFlight) bool {
		if now.Before(s.forgottenAt(x, now)) {
			return false
		}
		if s.moves.all[uid] == nil { // else the pod is moved again, and the record belongs to that move
			s.change(x.key(), nil)
		}
		return true
	})
}

// moveOf returns the move that was begun for an intent, or nil.
func (s *session) moveOf(i Intent) *inFlight {
	for _, x := range []*inFlight{s.moves.all[i.Pod.UID], s.settled[i.Pod.UID]} {
		if x != nil && x.Intent.ID == i.ID {
			return x
		}
	}
	return nil
}

// unseen is how long after a move a watcher may still build a scope without having seen the move. The watcher's
// cooldown for the group is twice as long, which tolerates the same difference of clocks.
const unseen = 500 * time.Millisecond

// departures are the moves by the groups that count their pods: the workload, and the scope that the pod was moved for.
// A decision made before a pod left counts one pod too many, unless its message lists that pod itself. Not safe for
// concurrent use.
type departures map[group][]*inFlight

// group names a workload, or a scope that counts pods together, for any strategy.
type group struct{ kind, key string }

func groupsOf(scope schemas.ScopeRef, workload types.UID) (groups []group) {
	if workload != "" {
		groups = append(groups, group{"", string(workload)})
	}
	if countsTogether(scope.Kind) {
		groups = append(groups, group{string(scope.Kind), scope.Key})
	}
	return groups
}

func (d departures) add(x *inFlight) {
	for _, g := range groupsOf(x.Intent.Scope, x.at.workload) {
		d[g] = append(d[g], x)
	}
}

// remove removes a move that was not made.
func (d departures) remove(x *inFlight) {
	for _, g := range groupsOf(x.Intent.Scope, x.at.workload) {
		d.filter(g, func(o *inFlight) bool { return o == x })
	}
}

// forget removes old moves: later intents were decided after them.
func (d departures) forget(now time.Time) {
	for g := range d {
		d.filter(g, func(x *inFlight) bool { return !x.Moved.IsZero() && !now.Before(x.Moved.Add(longestIntent)) })
	}
}

func (d departures) filter(g group, remove func(*inFlight) bool) {
	if d[g] = slices.DeleteFunc(d[g], remove); len(d[g]) == 0 {
		delete(d, g)
	}
}

// stale returns the reason why the intents of the message for pods of the workload must be decided again, or nil.
func (d departures) stale(m *message, workload types.UID) *move.Refusal {
	of := m.scope
	if of.Now.IsZero() || !countsTogether(of.Kind) {
		return nil
	}
	for _, g := range groupsOf(of, workload) {
		for _, x := range d[g] {
			if (x.Moved.IsZero() || x.Moved.Add(unseen).After(of.Now)) && x.Intent.Scope.Event != of.Event && !m.lists[x.uid()] {
				return move.Deferred(schemas.ReasonOutdated,
					"another pod of the group has been moved since the decision, which was made on the state at %s", clock(of.Now))
			}
		}
	}
	return nil
}
