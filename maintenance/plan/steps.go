package plan

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// steps is what is done to the nodes. A node whose stage changes with this answer is not touched by it, and none is touched
// before the finalizer is there, which sees to it that all is taken back.
func (w *work) steps() []NodeStep {
	if !w.hasFinalizer() {
		return nil
	}
	var list []NodeStep
	for _, n := range w.nodes {
		if n.in == nil || !w.known(n) {
			continue
		}
		s := NodeStep{
			Name: n.is.Name, UID: n.is.UID, Unschedulable: n.in.Node.Spec.Unschedulable, Marked: n.in.Mark,
			Conditions: w.conditions(n),
		}
		switch {
		case w.cordons(n):
			s.Action = schemas.NodeCordon
			s.Mark = schemas.CordonMark{
				Name: w.Maintenance.Name, UID: w.Maintenance.UID, CordonedBefore: w.stays(n), At: w.Now.UTC(),
			}
		case n.mine && !Holds(n.is.Stage) && w.taker(n) == "":
			s.Action, s.Mark = schemas.NodeReturn, *n.in.Mark
		case len(s.Conditions) > 0:
			s.Action = schemas.NodeMark
		default:
			continue
		}
		list = append(list, s)
	}
	return list
}

// cordons says whether the node is to be cordoned now. One that somebody uncordoned is cordoned again, once a minute at most.
func (w *work) cordons(n *node) bool {
	switch {
	case !Holds(n.is.Stage), n.cordoned(), w.lost(n):
		return false
	case w.stranger(n) != "":
		return false
	case n.is.Stage == v1alpha1.Claimed && (w.releases(n) || !n.mine && cmp.Or(w.contested(n), w.quorum(n)) != ""):
		return false
	}
	return !n.mine || !w.Now.Before(n.in.Mark.At.Add(Grace))
}

// stays says whether the node is to stay cordoned when it is given back. It is not if somebody uncordoned it since.
func (w *work) stays(n *node) bool {
	if n.is.Stage == v1alpha1.Claimed && !n.mine {
		return n.before()
	}
	return n.is.CordonedBefore && n.in.Node.Spec.Unschedulable
}

// conditions are those of the node that are to change. The maintenance that holds the node, or is to have it next, says how
// it is; the others only take back what they have said.
func (w *work) conditions(n *node) []corev1.NodeCondition {
	leads, want := w.leads(n), said(n.is.Stage)
	var list []corev1.NodeCondition
	for _, name := range []corev1.NodeConditionType{
		corev1.NodeMaintenancePlanned, corev1.NodeMaintenanceInProgress, corev1.NodeDrainInProgress, corev1.NodeDrained,
	} {
		is := conditionOf(&n.in.Node, name)
		set := corev1.NodeCondition{
			Type: name, Status: corev1.ConditionTrue, Reason: AdminRequested, Message: w.told(), LastTransitionTime: w.at,
		}
		switch {
		case leads && slices.Contains(want, name):
			if is.Status == corev1.ConditionTrue && (!Said(is, "") || is.Message == set.Message) {
				continue
			}
		case is.Status == corev1.ConditionTrue && (Said(is, w.Maintenance.Name) || leads && Said(is, "")):
			if n.is.Stage == v1alpha1.Returning && w.taker(n) != "" {
				continue // it goes over as it is
			}
			set.Status = corev1.ConditionFalse
		default:
			continue
		}
		list = append(list, set)
	}
	return list
}

// said are the conditions that are true of a node of that stage. What is given back loses them with the cordon.
func said(stage v1alpha1.NodeStage) []corev1.NodeConditionType {
	switch stage {
	case v1alpha1.Waiting:
		return []corev1.NodeConditionType{corev1.NodeMaintenancePlanned}
	case v1alpha1.Claimed, v1alpha1.Cordoned, v1alpha1.Held:
		return []corev1.NodeConditionType{corev1.NodeMaintenanceInProgress}
	case v1alpha1.Draining:
		return []corev1.NodeConditionType{corev1.NodeMaintenanceInProgress, corev1.NodeDrainInProgress}
	case v1alpha1.IsDrained:
		return []corev1.NodeConditionType{corev1.NodeMaintenanceInProgress, corev1.NodeDrained}
	case v1alpha1.Returning, v1alpha1.Returned, v1alpha1.Gone:
	}
	return nil
}

// leads says whether it is for this maintenance to say how the node is.
func (w *work) leads(n *node) bool {
	if Holds(n.is.Stage) {
		return true
	}
	if n.is.Stage != v1alpha1.Waiting || !n.in.Meant || w.refused != nil || w.stage == v1alpha1.Complete {
		return false
	}
	for _, r := range w.others(n) {
		over := r.stage == v1alpha1.Complete || r.node == v1alpha1.Returned || r.node == v1alpha1.Gone
		if WorkedOn(r.node) || r.older && !r.refused && !over {
			return false
		}
	}
	return true
}

// told is the message of the conditions: why, and by which maintenance.
func (w *work) told() string { return w.spec.Reason + Signature(w.Maintenance.Name) }

func conditionOf(n *corev1.Node, name corev1.NodeConditionType) corev1.NodeCondition {
	for _, c := range n.Status.Conditions {
		if c.Type == name {
			return c
		}
	}
	return corev1.NodeCondition{}
}
