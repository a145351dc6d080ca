package maintenance

import (
	"time"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// Grace is how long several things are waited for that take a moment: that a claimed node is seen cordoned before it is given
// up, that a pod is gone after the end of its grace period, and that a node that somebody uncordoned is cordoned again.
const Grace = time.Minute

// Settle is how long a maintenance is kept after it is to be completed: what was done just before has to be seen, so that it
// can be taken back.
const Settle = 10 * time.Second

// Deadline is when the drain of a node is to be over: spec.deadline after it was claimed, or after Drain was wanted if that
// was later. Zero: there is no deadline, or it has not begun.
func Deadline(m *v1alpha1.NodeMaintenance, n v1alpha1.NodeStatus) time.Time {
	if m.Spec.Deadline == nil || n.Start == nil {
		return time.Time{}
	}
	for _, s := range m.Status.Stages {
		if s.Stage != v1alpha1.Drain {
			continue
		}
		from := n.Start.Time
		if s.Start.After(from) {
			from = s.Start.Time
		}
		return from.Add(m.Spec.Deadline.Duration)
	}
	return time.Time{}
}

// Due is the first moment after scope.Now at which the drain function may decide differently though nothing but the time has
// changed. Zero: there is none.
func Due(scope schemas.MaintenanceScope) time.Time {
	d := due{now: scope.Now}
	d.at(scope.NextWindow)
	for _, s := range scope.Maintenance.Status.Stages {
		if s.Stage == v1alpha1.Complete {
			d.at(s.Start.Add(Settle))
		}
	}
	stages := map[string]v1alpha1.NodeStage{}
	for _, n := range scope.Maintenance.Status.Nodes {
		stages[n.Name] = n.Stage
		if n.Stage == v1alpha1.Claimed && n.Start != nil {
			d.at(n.Start.Add(Grace))
		}
		if Holds(n.Stage) && n.DrainedAt == nil {
			d.at(Deadline(&scope.Maintenance, n))
		}
	}
	for _, n := range scope.Nodes {
		if n.Mark != nil {
			d.at(n.Mark.At.Add(Grace))
		}
		if !WorkedOn(stages[n.Node.Name]) {
			continue
		}
		for _, p := range n.Pods {
			if p.Pod.DeletionTimestamp != nil {
				d.at(p.Pod.DeletionTimestamp.Add(Grace))
			}
		}
	}
	return d.first
}

// due finds the first of several moments after now.
type due struct{ now, first time.Time }

func (d *due) at(t time.Time) {
	if t.After(d.now) && (d.first.IsZero() || t.Before(d.first)) {
		d.first = t
	}
}
