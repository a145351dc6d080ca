package limit

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// leastMemory is the shortest time that a move is remembered.
const leastMemory = time.Hour

// WorkloadBreaker is the circuit breaker of [policy.WorkloadBreaker]. A move is in vain if a replacement returns to a
// node from which the same strategy moved a pod of the same workload. After a return, the strategy may not move the
// pods of the workload off that node: for Delay after the first return, twice as long after each further one, at most
// MaxDelay. Pods that were moved together and return one by one count as one return.
//
// A node is forgotten when no pod of the workload was moved off it or landed on it for twice its delay, and for at
// least an hour. A Delay of 0 disables the breaker. Use [NewWorkloadBreaker] to make one.
type WorkloadBreaker struct {
	policy  policy.WorkloadBreaker
	records map[BreakerKey]BreakerRecord
}

// BreakerKey names the pods of a workload on a node, for one strategy.
type BreakerKey struct {
	// Workload is the UID of the pods' workload. Pods without one have no replacement and no record.
	Workload types.UID `json:"workload"`
	Strategy string    `json:"strategy"`
	Node     string    `json:"node"`
}

// BreakerRecord is the state of a [BreakerKey]. It does not depend on the policy, and can be stored and restored.
type BreakerRecord struct {
	// Returns is the number of returns, and Returned the time of the latest one, or zero.
	Returns  int       `json:"returns,omitempty"`
	Returned time.Time `json:"returned,omitzero"`
	// Away means that a pod was moved off the node since the latest return, so that the next landing is a return.
	Away bool `json:"away,omitempty"`
	// Last is the time of the last move off the node or landing on it.
	Last time.Time `json:"last,omitzero"`
	// Name is the workload of the UID, or nil if unknown.
	Name *schemas.ObjectRef `json:"name,omitempty"`
	// Seen is the newest known pod at the last move off the node.
	Seen uint64 `json:"-"`
}

// BreakerEntry is a [BreakerKey] with its record.
type BreakerEntry struct {
	BreakerKey
	BreakerRecord
	// Until is the end of the wait under the current policy. It may be in the past. It is zero without a return.
	Until time.Time `json:"until,omitzero"`
}

// NewWorkloadBreaker returns a breaker without records.
func NewWorkloadBreaker(p policy.WorkloadBreaker) *WorkloadBreaker {
	return &WorkloadBreaker{policy: p, records: map[BreakerKey]BreakerRecord{}}
}

// Set replaces the policy. New delays count from the latest return.
func (b *WorkloadBreaker) Set(p policy.WorkloadBreaker) {
	b.policy = p
	if b.off() {
		clear(b.records)
	}
}

// Holds returns the time until which the strategy may not move the pods of the workload off the node, or zero if it
// may.
func (b *WorkloadBreaker) Holds(k BreakerKey, now time.Time) time.Time {
	r, _ := b.recall(k, now)
	if until := b.until(r); until.After(now) {
		return until
	}
	return time.Time{}
}

// Moved records that the strategy moved a pod of the workload off the node. name is the workload, if known, and seen
// the newest known pod.
func (b *WorkloadBreaker) Moved(k BreakerKey, name *schemas.ObjectRef, seen uint64, now time.Time) {
	if b.off() || k.Workload == "" {
		return
	}
	r, _ := b.recall(k, now)
	r.Away, r.Last, r.Name, r.Seen = true, later(r.Last, now), cmp.Or(name, r.Name), seen
	b.records[k] = r
}

// Landed records that the replacement of a pod that the strategy moved off the node from runs on the node of the key,
// and reports whether that is a return. A landing on the node from is a return even without a record, because another
// process may have made the move.
func (b *WorkloadBreaker) Landed(k BreakerKey, from string, name *schemas.ObjectRef, now time.Time) (opened bool) {
	r, known := b.recall(k, now)
	if b.off() || k.Workload == "" || (!known && k.Node != from) {
		return false
	}
	opened = r.Away || !known
	if opened {
		r.Returns, r.Returned, r.Away = r.Returns+1, later(r.Returned, now), false
	}
	r.Last, r.Name = later(r.Last, now), cmp.Or(name, r.Name)
	b.records[k] = r
	return opened
}

// Entry returns the record of a key, and whether there is one.
func (b *WorkloadBreaker) Entry(k BreakerKey) (e BreakerEntry, ok bool) {
	r, ok := b.records[k]
	return BreakerEntry{k, r, b.until(r)}, ok
}

// Restore adds a stored record.
func (b *WorkloadBreaker) Restore(k BreakerKey, r BreakerRecord) {
	if !b.off() && k.Workload != "" {
		b.records[k] = r
	}
}

// Clear deletes the records of a workload, or all records for the empty UID, and returns their keys.
func (b *WorkloadBreaker) Clear(workload types.UID) []BreakerKey {
	return b.remove(func(k BreakerKey, _ BreakerRecord) bool { return workload == "" || k.Workload == workload })
}

// Forget deletes the records that no longer matter, and returns their keys. It only bounds the memory; no answer
// depends on when it is called.
func (b *WorkloadBreaker) Forget(now time.Time) []BreakerKey {
	return b.remove(func(_ BreakerKey, r BreakerRecord) bool { return b.over(r, now) })
}

func (b *WorkloadBreaker) remove(match func(BreakerKey, BreakerRecord) bool) []BreakerKey {
	var keys []BreakerKey
	maps.DeleteFunc(b.records, func(k BreakerKey, r BreakerRecord) bool {
		if !match(k, r) {
			return false
		}
		keys = append(keys, k)
		return true
	})
	slices.SortFunc(keys, BreakerKey.compare)
	return keys
}

// All returns all records, by workload, strategy, and node.
func (b *WorkloadBreaker) All() []BreakerEntry {
	var all []BreakerEntry
	for _, k := range slices.SortedFunc(maps.Keys(b.records), BreakerKey.compare) {
		e, _ := b.Entry(k)
		all = append(all, e)
	}
	return all
}

// Open returns the number of keys whose pods may not move at the time now.
func (b *WorkloadBreaker) Open(now time.Time) (open int) {
	for _, r := range b.records {
		if b.until(r).After(now) {
			open++
		}
	}
	return open
}

func (b *WorkloadBreaker) off() bool { return b.policy.Delay <= 0 }

// recall returns a record unless it no longer matters.
func (b *WorkloadBreaker) recall(k BreakerKey, now time.Time) (BreakerRecord, bool) {
	r, ok := b.records[k]
	if !ok || b.over(r, now) {
		return BreakerRecord{}, false
	}
	return r, true
}

func (b *WorkloadBreaker) over(r BreakerRecord, now time.Time) bool {
	delay := b.delay(r.Returns)
	return now.Sub(r.Last) >= max(leastMemory, delay+min(delay, math.MaxInt64-delay))
}

func (b *WorkloadBreaker) until(r BreakerRecord) time.Time {
	if r.Returns == 0 {
		return time.Time{}
	}
	return r.Returned.Add(b.delay(r.Returns))
}

// delay returns the delay after that many returns.
func (b *WorkloadBreaker) delay(returns int) time.Duration {
	if returns == 0 {
		return 0
	}
	d := max(min(b.policy.Delay, b.policy.MaxDelay), 0)
	for ; returns > 1 && d < b.policy.MaxDelay; returns-- {
		d += min(d, b.policy.MaxDelay-d)
	}
	return d
}

// Compare orders entries by workload, strategy and node.
func (e BreakerEntry) Compare(other BreakerEntry) int { return e.compare(other.BreakerKey) }

func (k BreakerKey) compare(other BreakerKey) int {
	return cmp.Or(cmp.Compare(k.Workload, other.Workload), cmp.Compare(k.Strategy, other.Strategy), cmp.Compare(k.Node, other.Node))
}

// later returns the later of two times, because the clock of another process may be ahead.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
