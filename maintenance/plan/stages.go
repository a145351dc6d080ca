package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// advance takes a node one stage further, if possible. [work.begin] claims waiting nodes.
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
		n.is.Stage, n.is.End = v1alpha1.Returned, w.at.DeepCopy()
		if !n.in.Selected {
			n.is.Stage = v1alpha1.Gone
		}
	case n.is.Stage == v1alpha1.Returned && n.mine: // the status was wrong
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

// vanish keeps a begun node that has left the cluster, and a named node that does not exist.
func (w *work) vanish(n *node) {
	n.is.Stage, n.is.Message = v1alpha1.Gone, "there is no node of this name"
	begun := n.was.Stage != "" && n.was.Start != nil
	if !begun && !slices.Contains(w.spec.Nodes.Names, n.is.Name) {
		n.is.Stage = ""
	}
}

// missing reports whether the maintenance waits for a named node that has not existed yet.
func (w *work) missing(n *node) bool {
	return n.in == nil && n.is.Stage == v1alpha1.Gone && n.is.UID == "" && w.stage != v1alpha1.Complete
}

// tooMany reports whether the maintenance selects too many nodes to list those that wait.
func (w *work) tooMany() bool {
	return w.refused != nil && w.refused.Reason == v1alpha1.ReasonTooManyNodes
}

// wait omits a node that is no longer selected, and claims one that has the mark of this maintenance.
func (w *work) wait(n *node) {
	switch {
	case n.mine:
		n.is.Stage, n.is.Start, n.is.CordonedBefore = v1alpha1.Claimed, second(n.in.Mark.At), n.in.Mark.CordonedBefore
	case (!n.in.Selected || w.tooMany()) && !w.onNode(n):
		n.is.Stage = ""
	case n.in.Selected && w.stage == v1alpha1.Complete:
		n.is.Stage = v1alpha1.Returned
	}
}

// claimed waits until the node is seen cordoned. It gives up a claim only after a while, because the node may have been
// cordoned unseen.
func (w *work) claimed(n *node) {
	waited := !w.Now.Before(n.is.Start.Add(Grace))
	switch {
	case n.lost(), !n.mine && waited && (n.contested() != "" || w.yields(n)):
		n.is = v1alpha1.NodeStatus{Name: n.is.Name, UID: n.is.UID, Stage: v1alpha1.Waiting}
		return
	case w.releases(n) && (n.mine || waited):
		n.is.Stage = v1alpha1.Returning
	case n.cordoned():
		n.is.Stage = v1alpha1.Cordoned
		if at := second(n.in.Mark.At); n.is.Start.Before(at) { // the API server may have refused the cordon for long
			n.is.Start = at
		}
	}
	n.is.CordonedBefore = n.before()
}

// before reports whether the node was cordoned before a maintenance did it, and was not uncordoned since.
func (n *node) before() bool {
	return n.in.Node.Spec.Unschedulable && (n.in.Mark == nil || n.in.Mark.CordonedBefore)
}

// releases reports whether the node is given back in any stage.
func (w *work) releases(n *node) bool { return w.stage == v1alpha1.Complete || !n.in.Selected }

// held returns the next stage of a cordoned node.
func (w *work) held(n *node) v1alpha1.NodeStage {
	done := n.is.Stage == v1alpha1.IsDrained || n.is.Stage == v1alpha1.Held
	switch {
	case w.releases(n), done && n.in.Node.Annotations[schemas.AnnotationMaintained] == w.Maintenance.Name:
		return v1alpha1.Returning
	case w.stage != v1alpha1.Drain, !n.cordoned():
		return n.is.Stage
	case n.is.Stage == v1alpha1.Cordoned && closedGate(n) == "":
		return v1alpha1.Draining
	case n.left() > 0 && w.late(n) && w.spec.OnDeadline == v1alpha1.Hold:
		return v1alpha1.Held
	case n.left() > 0 && w.late(n) && w.spec.OnDeadline == v1alpha1.Release:
		return v1alpha1.Returning
	case n.is.Stage == v1alpha1.Cordoned:
		return v1alpha1.Cordoned
	case n.left() == 0:
		return v1alpha1.IsDrained
	}
	return v1alpha1.Draining
}

// late reports whether the node was not drained before its deadline.
func (w *work) late(n *node) bool {
	deadline := Deadline(&w.Maintenance, n.is)
	return n.is.DrainedAt == nil && !deadline.IsZero() && !w.Now.Before(deadline)
}

// closedGate returns the closed gate of the node and the reason, or "".
func closedGate(n *node) string {
	for _, g := range n.in.Gates {
		if !g.Open {
			return "gate " + g.Name + " is closed: " + g.Message
		}
	}
	return ""
}

// message returns the reason why a begun node waits, or another fact about it.
func (w *work) message(n *node) string {
	switch {
	case Holds(n.is.Stage):
		hindrance := w.hindrance(n)
		if n.is.Stage == v1alpha1.Claimed || !w.late(n) {
			return hindrance
		}
		late := "late: its deadline was " + clock(Deadline(&w.Maintenance, n.is))
		if hindrance == "" {
			return late
		}
		return late + "; " + hindrance
	case n.is.Stage == v1alpha1.Returning && n.taker() != "":
		return "maintenance " + n.taker() + " takes it over"
	case n.is.Stage == v1alpha1.Returned && n.is.Start != nil && n.is.DrainedAt == nil:
		return "given back before it was drained"
	case n.is.Stage == v1alpha1.Gone:
		return "it is not selected any more"
	}
	return ""
}

// hindrance returns the reason why a node does not advance, or "".
func (w *work) hindrance(n *node) string {
	switch {
	case n.is.Stage == v1alpha1.Claimed && w.releases(n):
		return "will be released after it is certain that it was not cordoned"
	case n.is.Stage == v1alpha1.Claimed && !n.mine && n.contested() != "":
		return "maintenance " + n.contested() + " has claimed it, too, and is older"
	case n.is.Stage == v1alpha1.Claimed && !n.mine:
		return w.controlPlaneBlocks(n)
	case n.is.Stage == v1alpha1.Claimed:
		return ""
	case n.lost():
		return "maintenance " + n.in.Mark.Name + " has taken it"
	case !n.cordoned():
		return "it was uncordoned, and is cordoned again"
	case n.is.Stage == v1alpha1.Held:
		return fmt.Sprintf("it stays cordoned with %d pods left", n.left())
	case w.stage == v1alpha1.Drain && n.is.Stage != v1alpha1.IsDrained:
		return closedGate(n)
	}
	return ""
}

// mostOfOne and mostOfAll limit the bytes of a message about one pod or node, and about the maintenance. Messages quote
// others, such as admission webhooks, and the status must fit into one object of the API server.
const mostOfOne, mostOfAll = 256, 1024

// short cuts a text to that many bytes, and marks the cut.
func short(text string, most int) string {
	if len(text) <= most {
		return text
	}
	const cut = "…"
	return strings.ToValidUTF8(text[:most-len(cut)], "") + cut
}
