package actuator

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
)

// unseen is how long after a move a scope may still be made by a watcher that has not heard of it. A watcher that has lets
// the group of the pod rest for twice as long before it makes the next scope, so that clocks may differ by as much.
const unseen = 500 * time.Millisecond

// departures remember when pods left last, by what they were counted in: their workload, and the scope that they were
// moved for. An answer that was decided before a pod left counts one too many; only the one that the move itself came from
// has thought of that. Not safe for concurrent use. newDepartures makes one.
type departures struct {
	workloads map[types.UID]*departure
	groups    map[group]*departure
}

// group names a scope that counts pods together, of whatever strategy.
type group struct {
	kind schemas.ScopeKind
	key  string
}

// departure is when pods left last. Evaluations are told apart by the IDs of their scopes' events.
type departure struct {
	by    string    // the evaluation behind the last one
	at    time.Time // when that was
	other time.Time // when a pod left for any other evaluation last
	calls []string  // the evaluations for which a move is being asked for now
}

func newDepartures() *departures {
	return &departures{workloads: map[types.UID]*departure{}, groups: map[group]*departure{}}
}

// begin says that a pod of the workload is asked to leave for the scope.
func (d *departures) begin(of schemas.ScopeRef, workload types.UID) {
	for _, x := range d.concerned(of, workload) {
		x.calls = append(x.calls, of.Event)
	}
}

// end says that what began is over, and that the pod left unless at is zero.
func (d *departures) end(of schemas.ScopeRef, workload types.UID, at time.Time) {
	for _, x := range d.concerned(of, workload) {
		if i := slices.Index(x.calls, of.Event); i >= 0 {
			x.calls = slices.Delete(x.calls, i, i+1)
		}
		if !at.IsZero() {
			x.note(of.Event, at)
		}
	}
}

// concerned are what a pod of the workload is counted in that is moved for the scope.
func (d *departures) concerned(of schemas.ScopeRef, workload types.UID) []*departure {
	list := make([]*departure, 0, 2)
	if workload != "" {
		list = append(list, known(d.workloads, workload))
	}
	if countsTogether(of.Kind) {
		list = append(list, known(d.groups, group{of.Kind, of.Key}))
	}
	return list
}

func known[K comparable](m map[K]*departure, k K) *departure {
	if m[k] == nil {
		m[k] = &departure{}
	}
	return m[k]
}

func (d *departure) note(by string, at time.Time) {
	if by != d.by {
		d.by, d.other = by, d.at
	}
	if at.After(d.at) {
		d.at = at
	}
}

// outdates says whether a pod left since the scope was made, or may be about to, for another evaluation than this one.
func (d *departure) outdates(of schemas.ScopeRef) bool {
	if d == nil {
		return false
	}
	last := d.at
	if d.by == of.Event {
		last = d.other
	}
	return last.Add(unseen).After(of.Now) || slices.ContainsFunc(d.calls, func(by string) bool { return by != of.Event })
}

// outdated says why an intent for a pod of the workload, which the scope led to, has to be decided about again.
func (d *departures) outdated(of schemas.ScopeRef, workload types.UID) (Objection, bool) {
	if of.Now.IsZero() || !countsTogether(of.Kind) {
		return Objection{}, false
	}
	if !d.workloads[workload].outdates(of) && !d.groups[group{of.Kind, of.Key}].outdates(of) {
		return Objection{}, false
	}
	return Objection{schemas.Deferred, schemas.ReasonOutdated, fmt.Sprintf(
		"decided on what was known at %s, and another pod of those that were counted has been moved since", clock(of.Now),
	)}, true
}

// countsTogether says whether what is decided about one pod of such a scope depends on the others.
func countsTogether(k schemas.ScopeKind) bool {
	switch k {
	case schemas.WorkloadKind, schemas.SpreadKind, schemas.DomainKind, schemas.UsageKind:
		return true
	case schemas.NodeKind, schemas.PodKind, schemas.RequestKind:
	}
	return false
}

// departed is when the pod of a verdict left, or began to. Zero: it does not leave.
func departed(v schemas.Verdict, now time.Time) time.Time {
	if !v.Outcome.Moves() || v.DryRun {
		return time.Time{}
	}
	return now
}

// outdatedFor is how long a departure is remembered: as long as an intent can live that was decided before.
const outdatedFor = time.Hour

// forget forgets what no intent was decided before that can still come.
func (d *departures) forget(now time.Time) {
	forget(d.workloads, now)
	forget(d.groups, now)
}

func forget[K comparable](m map[K]*departure, now time.Time) {
	for k, x := range m {
		if len(x.calls) == 0 && !now.Before(x.at.Add(outdatedFor)) {
			delete(m, k)
		}
	}
}
