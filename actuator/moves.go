package actuator

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator/limit"
	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/schemas"
)

// View is the cluster without asking the API server, such as [cluster.Workloads].
type View interface {
	Pod(uid types.UID) (cluster.Pod, bool)
	// Pods returns the pods of a workload by creation time.
	Pods(workload types.UID) []cluster.Pod
	Tally(workload types.UID) cluster.Tally
	Nodes() []cluster.Node
	// Version is the resource version of a pod. Empty: it is not known.
	Version(pod types.UID) string
	// Seen numbers the pods as the view learns of them; Latest is the latest number.
	Seen(pod types.UID) uint64
	Latest() uint64
}

// inFlight is a move, from before its first call until its replacement is ready.
type inFlight struct {
	record
	at limitKeys
	// scope is the newest one that listed the pod when the move began.
	scope schemas.ScopeRef
	// seen is the number of the newest pod when the move began; its replacement is newer. 0: a process before this one began the
	// move, and the creation time decides.
	seen uint64
	// message asked for it. nil: it is not known.
	message *message
	// recovered is until when the move stays in the ledger because a process before this one began it. Zero: this one did.
	recovered time.Time
	buckets   [2]*limit.Bucket // that hold its tokens: of the cluster and of its namespace, nil where that has no rate
	reported  bool             // the verdict that began it is stored
	ending    bool             // the verdict that ends it is not stored yet
	// over is how it ended, as soon as that is seen: the replacement may be gone when the verdict is stored.
	over        *ended
	replacement types.UID
}

func (x *inFlight) uid() types.UID { return x.Intent.Pod.UID }

// limitKeys identify the limits of a move. workload is empty for a pod without a controller.
type limitKeys struct {
	node, namespace string
	workload        types.UID
}

func keysOf(i Intent, v View) limitKeys {
	p, _ := v.Pod(i.Pod.UID)
	return limitKeys{node: i.Node, namespace: i.Pod.Namespace, workload: p.Workload.UID}
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
	nodes      map[string]int
	namespaces map[string]int
	last       map[types.UID]time.Time // when a move of the workload was accepted last, as long as its cooldown lasts
}

// workloadMoves are the moves in flight of one workload. They are kept up to date pod by pod.
type workloadMoves struct {
	moves   map[types.UID]*inFlight
	asked   int                // moves that are not accepted yet
	going   map[types.UID]bool // pods that are moved and still count as ready
	waiting []*inFlight        // those without a replacement, the oldest first
	// replacements are the moves by the pods that replace them. A pod ends one move only, so it stays when that is over.
	replacements map[types.UID]*inFlight
	fresh        []types.UID // new pods that replace no move yet
	first        uint64      // the newest pod that was known when the first move began
	newest       time.Time   // when the newest pod was made, by the API server's clock
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

// accepted records that a move was accepted at a time.
func (m *moves) accepted(x *inFlight, at time.Time) {
	if w := m.workloads[x.at.workload]; w != nil && x.Moved.IsZero() && w.moves[x.uid()] == x {
		w.asked--
	}
	if x.Moved = at; x.at.workload != "" {
		m.last[x.at.workload] = at
	}
}

// forgetCooldowns forgets the cooldowns that are over.
func (m *moves) forgetCooldowns(cooldown time.Duration, now time.Time) {
	maps.DeleteFunc(m.last, func(_ types.UID, last time.Time) bool { return !now.Before(last.Add(cooldown)) })
}

// begunMoves are the records of the moves that have begun and have no key of their own in the ledger yet. All of them are the value
// of one key, so pods that move at the same time share one write: the bus syncs each write to the disk, and a drain would else wait
// for one sync for each pod before its first eviction. Not safe for concurrent use. newBegunMoves makes one.
type begunMoves struct {
	records map[types.UID]begunMove
	// due: the ledger may have a record that is not here any more. It does no harm until the pod is deleted by others.
	due bool
}

type begunMove struct {
	intent string          // its ID
	text   json.RawMessage // the record, encoded once and not for each write
}

func newBegunMoves() *begunMoves { return &begunMoves{records: map[types.UID]begunMove{}} }

func (b *begunMoves) add(r record) error {
	text, err := json.Marshal(r)
	if err == nil {
		b.records[r.Intent.Pod.UID] = begunMove{r.Intent.ID, text}
	}
	return err
}

// remove removes the record of a move that has a key of its own now, or was not made.
func (b *begunMoves) remove(r record) {
	if m, ok := b.records[r.Intent.Pod.UID]; ok && m.intent == r.Intent.ID {
		delete(b.records, r.Intent.Pod.UID)
		b.due = true
	}
}

// value is what the ledger stores. nil: there are none.
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

// remember stores the record of a move, or deletes it when nothing follows from it any more. The caller holds mu.
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

// forgottenAt is when the ledger forgets a settled move at the earliest: when no limit counts it, no cooldown follows from it,
// and the intents message that asked for it is out of the table, from which the next leader would else execute it again.
func (s *session) forgottenAt(x *inFlight, now time.Time) time.Time {
	limits := s.policy.Load().Limits
	due := x.Moved.Add(limits.Pause)
	if limits.Any() {
		due = x.Moved.Add(max(limits.Over(), limits.Pause))
	}
	inTable := x.message != nil && !x.message.closed
	others := x.Replacement != "" && s.moves.workloads[x.at.workload] != nil // the replacement must not end them after a restart
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

// forgetSettled deletes the settled moves that nothing follows from any more. The caller holds mu.
func (s *session) forgetSettled(now time.Time) {
	maps.DeleteFunc(s.settled, func(uid types.UID, x *inFlight) bool {
		if now.Before(s.forgottenAt(x, now)) {
			return false
		}
		if s.moves.all[uid] == nil { // else it is moved again, and the record is of that
			s.change(x.key(), nil)
		}
		return true
	})
}

// moveOf returns the move that was begun for an intent. nil: none is remembered.
func (s *session) moveOf(i Intent) *inFlight {
	for _, x := range []*inFlight{s.moves.all[i.Pod.UID], s.settled[i.Pod.UID]} {
		if x != nil && x.Intent.ID == i.ID {
			return x
		}
	}
	return nil
}

// unseen is how long after a move a scope may still be made by a watcher that has not seen it. The cooldown of the watcher for
// the group of the pod is twice as long, so clocks may differ by as much.
const unseen = 500 * time.Millisecond

// departures are the moves by the groups that count their pods: the workload, and the scope that they were moved for. A decision
// made before a pod left counts one too many, unless its message lists that pod itself. Not safe for concurrent use.
type departures map[group][]*inFlight

// group names a workload, or a scope that counts pods together, of whatever strategy.
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
	for _, g := range groupsOf(x.scope, x.at.workload) {
		d[g] = append(d[g], x)
	}
}

// remove removes a move that was not made.
func (d departures) remove(x *inFlight) {
	for _, g := range groupsOf(x.scope, x.at.workload) {
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

// stale returns why the intents of the message for pods of the workload have to be decided again.
func (d departures) stale(m *message, workload types.UID) (Rejection, bool) {
	of := m.scope
	if of.Now.IsZero() || !countsTogether(of.Kind) {
		return Rejection{}, false
	}
	for _, g := range groupsOf(of, workload) {
		for _, x := range d[g] {
			if (x.Moved.IsZero() || x.Moved.Add(unseen).After(of.Now)) && x.scope.Event != of.Event && !m.lists[x.uid()] {
				return Rejection{Outcome: schemas.Deferred, Reason: schemas.ReasonOutdated, Message: fmt.Sprintf(
					"another pod of the group has been moved since the decision, which was made on the state at %s", clock(of.Now))}, true
			}
		}
	}
	return Rejection{}, false
}
