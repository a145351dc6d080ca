// Package brake knows when moving pods does not help, and says so: [Loop] for one workload on one node, [Storm] for the
// whole cluster. Both are state machines without a clock and without calls: they are told what happened and when, and
// answer what is asked of them. Neither is safe for concurrent use.
package brake

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/policy"
)

// leastMemory is how long a move is remembered at least. A replacement that finds its way back later than that, or
// needs no brake more often than that, is not a loop.
const leastMemory = time.Hour

// Loop is the loop breaker of [policy.Loop]. A move is in vain when a replacement comes back to a node that the same
// strategy moved a pod of the same workload off: to the one that its own pod had to leave, or to the one that a pod had
// to leave before it, as in moves from A to B and from B to A. Such a return holds the pods of the workload on that
// node back from the strategy: for Delay after the first one, twice as long with each further one, at most MaxDelay.
// Pods that were moved off together and come back one by one are one return: the next one is counted after another
// move.
//
// A node is forgotten when nothing of the workload was moved off it or landed on it for twice the delay that it has
// reached, and for an hour at least. With a Delay of 0 nothing is held and nothing remembered. [NewLoop] makes one.
type Loop struct {
	policy  policy.Loop
	records map[Key]Record
}

// Key is what is held together: the pods of a workload on a node, for one strategy.
type Key struct {
	// Workload is the UID of the pods' workload. Pods without one have no replacement; nothing is remembered of them.
	Workload types.UID `json:"workload"`
	Strategy string    `json:"strategy"`
	Node     string    `json:"node"`
}

// Record is what is remembered of a [Key]. It does not depend on the policy, and can be stored and restored.
type Record struct {
	// Returns is how many returns were counted, and Returned is when the latest was. Zero: none.
	Returns  int       `json:"returns,omitempty"`
	Returned time.Time `json:"returned,omitzero"`
	// Away: a pod was moved off the node since the latest return, so that the next landing is one.
	Away bool `json:"away,omitempty"`
	// Last is when a pod was last moved off the node or a replacement landed on it.
	Last time.Time `json:"last,omitzero"`
}

// Entry is a [Key] with what is remembered of it.
type Entry struct {
	Key
	Record
	// Until is when the pods are free again, by the policy as it is now. It may be over. Zero: no return was counted.
	Until time.Time `json:"until,omitzero"`
}

// NewLoop returns a breaker that remembers nothing.
func NewLoop(p policy.Loop) *Loop { return &Loop{policy: p, records: map[Key]Record{}} }

// Set replaces the policy. What is held is held by the new delays from then on, counted from the latest return.
func (l *Loop) Set(p policy.Loop) {
	l.policy = p
	if l.off() {
		clear(l.records)
	}
}

// Holds says until when the strategy leaves the pods of the workload on the node alone. The zero time: it need not.
func (l *Loop) Holds(k Key, now time.Time) time.Time {
	r, _ := l.recall(k, now)
	if until := l.until(r); until.After(now) {
		return until
	}
	return time.Time{}
}

// Moved notes that the strategy moved a pod of the workload off the node.
func (l *Loop) Moved(k Key, now time.Time) {
	if l.off() || k.Workload == "" {
		return
	}
	r, _ := l.recall(k, now)
	r.Away, r.Last = true, later(r.Last, now)
	l.records[k] = r
}

// Landed notes that the replacement of a pod that the strategy moved off the node from runs on the node on, and says
// whether that is a return. If so, the record of the workload on that node has changed, see [Loop.Record].
//
// A landing on the node from is a return even if nothing is remembered of the move: another process may have made it.
func (l *Loop) Landed(workload types.UID, strategy, from, on string, now time.Time) (opened bool) {
	k := Key{workload, strategy, on}
	r, known := l.recall(k, now)
	if l.off() || workload == "" || (!known && on != from) {
		return false
	}
	opened = r.Away || !known
	if opened {
		r.Returns, r.Returned, r.Away = r.Returns+1, later(r.Returned, now), false
	}
	r.Last = later(r.Last, now)
	l.records[k] = r
	return opened
}

// Record returns what is remembered of a key, and whether anything is.
func (l *Loop) Record(k Key) (Record, bool) {
	r, ok := l.records[k]
	return r, ok
}

// Restore remembers a record that [Loop.Record] returned, perhaps in another process, in place of what is known.
func (l *Loop) Restore(k Key, r Record) {
	if !l.off() && k.Workload != "" {
		l.records[k] = r
	}
}

// Clear forgets the keys that match says, and how many there were.
func (l *Loop) Clear(match func(Key) bool) int {
	before := len(l.records)
	maps.DeleteFunc(l.records, func(k Key, _ Record) bool { return match(k) })
	return before - len(l.records)
}

// Forget drops what does not matter any more, and returns the keys in the order of [Loop.All]. What is remembered is
// bounded only if this is called now and then; no answer depends on when.
func (l *Loop) Forget(now time.Time) []Key {
	var old []Key
	for k, r := range l.records {
		if l.over(r, now) {
			old = append(old, k)
			delete(l.records, k)
		}
	}
	slices.SortFunc(old, Key.compare)
	return old
}

// All returns everything that is remembered, by workload, strategy and node.
func (l *Loop) All() []Entry {
	var all []Entry
	for _, k := range slices.SortedFunc(maps.Keys(l.records), Key.compare) {
		r := l.records[k]
		all = append(all, Entry{k, r, l.until(r)})
	}
	return all
}

func (l *Loop) off() bool { return l.policy.Delay <= 0 }

// recall returns what matters at the time now.
func (l *Loop) recall(k Key, now time.Time) (Record, bool) {
	r, ok := l.records[k]
	if !ok || l.over(r, now) {
		return Record{}, false
	}
	return r, true
}

// over says whether a record does not matter any more.
func (l *Loop) over(r Record, now time.Time) bool {
	delay := l.delay(r.Returns)
	return now.Sub(r.Last) >= max(leastMemory, delay+min(delay, math.MaxInt64-delay))
}

// until is when the pods are free again. Zero: no return was counted.
func (l *Loop) until(r Record) time.Time {
	if r.Returns == 0 {
		return time.Time{}
	}
	return r.Returned.Add(l.delay(r.Returns))
}

// delay is how long so many returns hold.
func (l *Loop) delay(returns int) time.Duration {
	if returns == 0 {
		return 0
	}
	d := max(min(l.policy.Delay, l.policy.MaxDelay), 0)
	for ; returns > 1 && d < l.policy.MaxDelay; returns-- {
		d += min(d, l.policy.MaxDelay-d)
	}
	return d
}

func (k Key) compare(other Key) int {
	return cmp.Or(cmp.Compare(k.Workload, other.Workload), cmp.Compare(k.Strategy, other.Strategy),
		cmp.Compare(k.Node, other.Node))
}

// later is the later of two times: the clock of another process may be ahead.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
