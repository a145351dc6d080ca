package plan

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// advance leads a node one stage further, if it may go there. Nodes that wait stay where they are.
func (w *work) advance(n *node) {
	switch {
	case n.in == nil:
		w.vanish(n)
		return
	case n.is.Stage == v1alpha1.Waiting:
		w.wait(n)
	case n.is.Stage == v1alpha1.Claimed:
		w.claimed(n)
	case Holds(n.is.Stage):
		if n.mine {
			n.is.CordonedBefore = n.in.Mark.CordonedBefore
		}
		n.is.Stage = w.held(n)
	case n.is.Stage == v1alpha1.Returning && !n.mine:
		w.returned(n)
	case n.is.Stage == v1alpha1.Returned && n.mine: // it was given back on what was known, and was not
		n.is.Stage, n.is.End = v1alpha1.Returning, nil
	}
	if n.is.Stage == v1alpha1.IsDrained && n.is.DrainedAt == nil {
		n.is.DrainedAt = w.at.DeepCopy()
	}
	if Holds(n.is.Stage) {
		w.count(n)
	}
	n.is.Message = w.message(n)
}

// vanish keeps in mind a node that was begun and has left the cluster, and one that is named and does not exist.
func (w *work) vanish(n *node) {
	n.is.Stage = v1alpha1.Gone
	n.is.Message = "there is no node of this name"
	named := n.was.Stage == "" || n.was.Start == nil
	if named && !slices.Contains(w.spec.Nodes.Names, n.is.Name) {
		n.is.Stage = ""
	}
}

// wait leaves out a node that is not meant any more, and makes one that has a mark of this maintenance one that is worked on.
func (w *work) wait(n *node) {
	switch {
	case n.mine:
		n.is.Stage, n.is.CordonedBefore = v1alpha1.Claimed, n.in.Mark.CordonedBefore
		n.is.Start = second(n.in.Mark.At)
	case (!n.in.Meant || w.tooMany()) && !Bears(&w.Maintenance, &n.in.Node, nil):
		n.is.Stage = ""
	case n.in.Meant && w.stage == v1alpha1.Complete:
		n.is.Stage = v1alpha1.Returned
	}
}

// claimed waits until the node is seen cordoned. If it is not to be any more, that takes a while: the cordon may have been
// done and not be seen yet.
func (w *work) claimed(n *node) {
	waited := !w.Now.Before(n.is.Start.Add(Grace))
	switch {
	case w.lost(n), !n.mine && waited && (w.contested(n) != "" || w.yields(n)):
		n.is = v1alpha1.NodeStatus{Name: n.is.Name, UID: n.is.UID, Stage: v1alpha1.Waiting}
		return
	case w.releases(n) && (n.mine || waited):
		n.is.Stage = v1alpha1.Returning
	case n.cordoned():
		n.is.Stage = v1alpha1.Cordoned
	}
	n.is.CordonedBefore = n.before()
}

// before says whether the node was cordoned before a maintenance did. One that somebody has uncordoned since was not.
func (n *node) before() bool {
	return n.in.Node.Spec.Unschedulable && (n.in.Mark == nil || n.in.Mark.CordonedBefore)
}

// releases says whether the node is to be given back, whatever was reached.
func (w *work) releases(n *node) bool { return w.stage == v1alpha1.Complete || !n.in.Meant }

// maintained says whether somebody has said that the work on the node is done.
func (w *work) maintained(n *node) bool {
	done := n.is.Stage == v1alpha1.IsDrained || n.is.Stage == v1alpha1.Held
	return done && n.in.Node.Annotations[schemas.AnnotationMaintained] == w.Maintenance.Name
}

// held is where a node goes that was cordoned.
func (w *work) held(n *node) v1alpha1.NodeStage {
	switch {
	case w.releases(n), w.maintained(n):
		return v1alpha1.Returning
	case w.stage != v1alpha1.Drain, !n.cordoned():
		return n.is.Stage
	case n.is.Stage == v1alpha1.Cordoned && closedGate(n) != "":
		return v1alpha1.Cordoned
	case n.is.Stage == v1alpha1.Cordoned:
		return v1alpha1.Draining
	case n.left() == 0:
		return v1alpha1.IsDrained
	case w.late(n) && w.spec.OnDeadline == v1alpha1.Hold:
		return v1alpha1.Held
	case w.late(n) && w.spec.OnDeadline == v1alpha1.Release:
		return v1alpha1.Returning
	}
	return v1alpha1.Draining
}

// late says whether the deadline of the node has passed. One that was drained in time is not late, whatever comes after.
func (w *work) late(n *node) bool {
	deadline := Deadline(&w.Maintenance, n.is)
	return n.is.DrainedAt == nil && !deadline.IsZero() && !w.Now.Before(deadline)
}

// returned ends the way of a node whose mark is gone.
func (w *work) returned(n *node) {
	n.is.Stage, n.is.End = v1alpha1.Returned, w.at.DeepCopy()
	if !n.in.Meant {
		n.is.Stage = v1alpha1.Gone
	}
}

// closedGate says which gate is closed for the node, and why. Empty: all are open.
func closedGate(n *node) string {
	for _, g := range n.in.Gates {
		if !g.Open {
			return "gate " + g.Name + " is closed: " + g.Message
		}
	}
	return ""
}

// second is a time as a status holds it.
func second(t time.Time) *metav1.Time {
	return &metav1.Time{Time: t.UTC().Truncate(time.Second)}
}
