package limit

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

// WorkloadBreaker is the loop breaker of [policy.Loop]. A move is in vain when a replacement comes back to a node that the same
// strategy moved a pod of the same workload off: to the one that its own pod had to leave, or to the one that a pod had
// to leave before it, as in moves from A to B and from B to A. Such a return holds the pods of the workload on that
// node back from the strategy: for Delay after the first one, twice as long with each further one, at most MaxDelay.
// Pods that were moved off together and come back one by one are one return: the next one is counted after another
// move.
//
// A node is forgotten when nothing of the workload was moved off it or landed on it for twice the delay that it has
// reached, and for an hour at least. With a Delay of 0 nothing is held and nothing remembered. [NewWorkloadBreaker] makes one.
type WorkloadBreaker struct {
	policy  policy.Loop
	records map[BreakerKey]BreakerRecord
}

// BreakerKey is what is held together: the pods of a workload on a node, for one strategy.
type BreakerKey struct {
	// Workload is the UID of the pods' workload. Pods without one have no replacement; nothing is remembered of them.
	Workload types.UID `json:"workload"`
	Strategy string    `json:"strategy"`
	Node     string    `json:"node"`
}

// BreakerRecord is what is remembered of a [BreakerKey]. It does not depend on the policy, and can be stored and restored.
type BreakerRecord struct {
	// Returns is how many returns were counted, and Returned is when the latest was. Zero: none.
	Returns  int       `json:"returns,omitempty"`
	Returned time.Time `json:"returned,omitzero"`
	// Away: a pod was moved off the node since the latest return, so that the next landing is one.
	Away bool `json:"away,omitempty"`
	// Last is when a pod was last moved off the node or a replacement landed on it.
	Last time.Time `json:"last,omitzero"`
}

// BreakerEntry is a [BreakerKey] with what is remembered of it.
type BreakerEntry struct {
	BreakerKey
	BreakerRecord
	// Until is when the pods are free again, by the policy as it is now. It may be over. Zero: no return was counted.
	Until time.Time `json:"until,omitzero"`
}

// NewWorkloadBreaker returns a breaker that remembers nothing.
func NewWorkloadBreaker(p policy.Loop) *WorkloadBreaker {
	return &WorkloadBreaker{policy: p, records: map[BreakerKey]BreakerRecord{}}
}

// Set replaces the policy. What is held is held by the new delays from then on, counted from the latest return.
func (l *WorkloadBreaker) Set(p policy.Loop) {
	l.policy = p
	if l.off() {
		clear(l.records)
	}
}

// Holds says until when the strategy leaves the pods of the workload on the node alone. The zero time: it need not.
func (l *WorkloadBreaker) Holds(k BreakerKey, now time.Time) time.Time {
	r, _ := l.recall(k, now)
	if until := l.until(r); until.After(now) {
		return until
	}
	return time.Time{}
}

// Moved notes that the strategy moved a pod of the workload off the node.
func (l *WorkloadBreaker) Moved(k BreakerKey, now time.Time) {
	if l.off() || k.Workload == "" {
		return
	}
	r, _ := l.recall(k, now)
	r.Away, r.Last = true, later(r.Last, now)
	l.records[k] = r
}

// Landed notes that the replacement of a pod that the strategy moved off the node from runs on the node on, and says
// whether that is a return. If so, the record of the workload on that node has changed, see [WorkloadBreaker.Record].
//
// A landing on the node from is a return even if nothing is remembered of the move: another process may have made it.
func (l *WorkloadBreaker) Landed(workload types.UID, strategy, from, on string, now time.Time) (opened bool) {
	k := BreakerKey{workload, strategy, on}
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

// BreakerRecord returns what is remembered of a key, and whether anything is.
func (l *WorkloadBreaker) Record(k BreakerKey) (BreakerRecord, bool) {
	r, ok := l.records[k]
	return r, ok
}

// Restore remembers a record that [WorkloadBreaker.Record] returned, perhaps in another process, in place of what is known.
func (l *WorkloadBreaker) Restore(k BreakerKey, r BreakerRecord) {
	if !l.off() && k.Workload != "" {
		l.records[k] = r
	}
}

// Clear forgets the keys that match says, and how many there were.
func (l *WorkloadBreaker) Clear(match func(BreakerKey) bool) int {
	before := len(l.records)
	maps.DeleteFunc(l.records, func(k BreakerKey, _ BreakerRecord) bool { return match(k) })
	return before - len(l.records)
}

// Forget drops what does not matter any more, and returns the keys in the order of [WorkloadBreaker.All]. What is remembered is
// bounded only if this is called now and then; no answer depends on when.
func (l *WorkloadBreaker) Forget(now time.Time) []BreakerKey {
	var old []BreakerKey
	for k, r := range l.records {
		if l.over(r, now) {
			old = append(old, k)
			delete(l.records, k)
		}
	}
	slices.SortFunc(old, BreakerKey.compare)
	return old
}

// All returns everything that is remembered, by workload, strategy and node.
func (l *WorkloadBreaker) All() []BreakerEntry {
	var all []BreakerEntry
	for _, k := range slices.SortedFunc(maps.Keys(l.records), BreakerKey.compare) {
		r := l.records[k]
		all = append(all, BreakerEntry{k, r, l.until(r)})
	}
	return all
}

func (l *WorkloadBreaker) off() bool { return l.policy.Delay <= 0 }

// recall returns what matters at the time now.
func (l *WorkloadBreaker) recall(k BreakerKey, now time.Time) (BreakerRecord, bool) {
	r, ok := l.records[k]
	if !ok || l.over(r, now) {
		return BreakerRecord{}, false
	}
	return r, true
}

// over says whether a record does not matter any more.
func (l *WorkloadBreaker) over(r BreakerRecord, now time.Time) bool {
	delay := l.delay(r.Returns)
	return now.Sub(r.Last) >= max(leastMemory, delay+min(delay, math.MaxInt64-delay))
}

// until is when the pods are free again. Zero: no return was counted.
func (l *WorkloadBreaker) until(r BreakerRecord) time.Time {
	if r.Returns == 0 {
		return time.Time{}
	}
	return r.Returned.Add(l.delay(r.Returns))
}

// delay is how long so many returns hold.
func (l *WorkloadBreaker) delay(returns int) time.Duration {
	if returns == 0 {
		return 0
	}
	d := max(min(l.policy.Delay, l.policy.MaxDelay), 0)
	for ; returns > 1 && d < l.policy.MaxDelay; returns-- {
		d += min(d, l.policy.MaxDelay-d)
	}
	return d
}

func (k BreakerKey) compare(other BreakerKey) int {
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
