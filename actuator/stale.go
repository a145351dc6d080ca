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

// departures remember which pods left, by what they were counted in: their workload, and the scope that they were moved for.
// An answer that was verdictOn before a pod left counts one too many, unless it lists that pod itself. Not safe for concurrent
// use. newDepartures makes one.
type departures struct {
	workloads map[types.UID][]departure
	groups    map[group][]departure
}

// group names a scope that counts pods together, of whatever strategy.
type group struct {
	kind schemas.ScopeKind
	key  string
}

// departure is a pod that leaves.
type departure struct {
	pod types.UID
	by  string    // the evaluation behind it: the ID of the scope's event
	at  time.Time // when that was accepted; zero: it is being asked for
}

func newDepartures() *departures {
	return &departures{workloads: map[types.UID][]departure{}, groups: map[group][]departure{}}
}

// begin says that a pod of the workload is asked to leave for the scope.
func (d *departures) begin(pod types.UID, of schemas.ScopeRef, workload types.UID) {
	d.change(of, workload, func(list []departure) []departure { return append(list, departure{pod: pod, by: of.Event}) })
}

// end says that what began is over, and that the pod left unless at is zero.
func (d *departures) end(pod types.UID, of schemas.ScopeRef, workload types.UID, at time.Time) {
	d.change(of, workload, func(list []departure) []departure {
		list = slices.DeleteFunc(list, func(x departure) bool { return x.pod == pod && x.at.IsZero() })
		if at.IsZero() {
			return list
		}
		return append(list, departure{pod, of.Event, at})
	})
}

// change changes what is known of all that a pod of the workload is counted in that is moved for the scope.
func (d *departures) change(of schemas.ScopeRef, workload types.UID, change func([]departure) []departure) {
	if workload != "" {
		d.workloads[workload] = change(d.workloads[workload])
	}
	if countsTogether(of.Kind) {
		g := group{of.Kind, of.Key}
		d.groups[g] = change(d.groups[g])
	}
}

// stale says why an intent of the answer, for a pod of the workload, has to be verdictOn about again.
func (d *departures) stale(a *message, workload types.UID) (Objection, bool) {
	of := a.scope
	if of.Now.IsZero() || !countsTogether(of.Kind) {
		return Objection{}, false
	}
	unforeseen := func(x departure) bool {
		return (x.at.IsZero() || x.at.Add(unseen).After(of.Now)) && x.by != of.Event && !a.lists[x.pod]
	}
	together := d.groups[group{of.Kind, of.Key}]
	if !slices.ContainsFunc(d.workloads[workload], unforeseen) && !slices.ContainsFunc(together, unforeseen) {
		return Objection{}, false
	}
	return Objection{schemas.Deferred, schemas.ReasonOutdated, fmt.Sprintf(
		"verdictOn on what was known at %s, and another pod of those that were counted has been moved since", clock(of.Now),
	)}, true
}

// countsTogether says whether what is verdictOn about one pod of such a scope depends on how many others there are. These are
// the groups that a watcher lets rest after a pod left. In a domain each pod is held against those that are to stay.
func countsTogether(k schemas.ScopeKind) bool {
	switch k {
	case schemas.WorkloadKind, schemas.SpreadKind, schemas.UsageKind:
		return true
	case schemas.NodeKind, schemas.PodKind, schemas.DomainKind, schemas.RequestKind, schemas.MaintenanceKind:
	}
	return false
}

// listed are the pods that an answer lists, if what is verdictOn about them depends on each other.
func listed(a schemas.Intents) map[types.UID]bool {
	if !countsTogether(a.Scope.Kind) {
		return nil
	}
	pods := make(map[types.UID]bool, len(a.Intents))
	for _, i := range a.Intents {
		pods[i.Pod.UID] = true
	}
	return pods
}

// departed is when the pod of a verdict left, or began to. Zero: it does not leave.
func departed(v schemas.Verdict, now time.Time) time.Time {
	if !v.Outcome.Moves() || v.DryRun {
		return time.Time{}
	}
	return now
}

// forget forgets what no intent was verdictOn before that can still come.
func (d *departures) forget(now time.Time) {
	forget(d.workloads, now)
	forget(d.groups, now)
}

func forget[K comparable](m map[K][]departure, now time.Time) {
	for k, list := range m {
		list = slices.DeleteFunc(list, func(x departure) bool { return !x.at.IsZero() && !now.Before(x.at.Add(longestIntent)) })
		if m[k] = list; len(list) == 0 {
			delete(m, k)
		}
	}
}
