package plan

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// steps returns the changes of nodes. It does not change a node whose stage changes with this decision, nor any node
// before the finalizer is set.
func (w *work) steps() (list []NodeStep) {
	if !w.hasFinalizer() {
		return nil
	}
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
				Name: w.Maintenance.Name, UID: w.Maintenance.UID, CordonedBefore: w.staysCordoned(n), At: w.Now.UTC(),
			}
		case n.mine && !Holds(n.is.Stage) && n.taker() == "":
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

// cordons reports whether to cordon the node now. A node that was uncordoned is cordoned again, at most once a minute.
func (w *work) cordons(n *node) bool {
	claimed := n.is.Stage == v1alpha1.Claimed
	switch {
	case !Holds(n.is.Stage), n.cordoned(), n.lost(), w.unknownOwner(n) != "",
		claimed && w.releases(n), claimed && !n.mine && cmp.Or(n.contested(), w.controlPlaneBlocks(n)) != "":
		return false
	}
	return !n.mine || !w.Now.Before(n.in.Mark.At.Add(Grace))
}

// staysCordoned reports whether the node stays cordoned when it is given back: it was cordoned before, and was not
// uncordoned since.
func (w *work) staysCordoned(n *node) bool {
	if n.is.Stage == v1alpha1.Claimed && !n.mine {
		return n.before()
	}
	return n.is.CordonedBefore && n.in.Node.Spec.Unschedulable
}

// conditions returns the changes of the node's conditions. The maintenance that owns them sets them; others only reset
// their own.
func (w *work) conditions(n *node) (list []corev1.NodeCondition) {
	owns, want := w.ownsConditions(n), stageConditions(n.is.Stage)
	for _, name := range []corev1.NodeConditionType{
		corev1.NodeMaintenancePlanned, corev1.NodeMaintenanceInProgress, corev1.NodeDrainInProgress, corev1.NodeDrained,
	} {
		is := conditionOf(&n.in.Node, name)
		set := corev1.NodeCondition{
			Type: name, Status: corev1.ConditionTrue, Reason: AdminRequested, LastTransitionTime: w.at,
			Message: w.spec.Reason + Signature(w.Maintenance.Name),
		}
		isTrue := is.Status == corev1.ConditionTrue
		switch {
		case owns && slices.Contains(want, name):
			if isTrue && (!SetByMaintenance(is, "") || is.Message == set.Message) {
				continue
			}
		case isTrue && (SetByMaintenance(is, w.Maintenance.Name) || owns && SetByMaintenance(is, "")):
			if n.is.Stage == v1alpha1.Returning && n.taker() != "" {
				continue // the node passes on unchanged
			}
			set.Status = corev1.ConditionFalse
		default:
			continue
		}
		list = append(list, set)
	}
	return list
}

// stageConditions returns the true conditions of a node in that stage.
func stageConditions(stage v1alpha1.NodeStage) []corev1.NodeConditionType {
	switch stage {
	case v1alpha1.Waiting:
		return []corev1.NodeConditionType{corev1.NodeMaintenancePlanned}
	case v1alpha1.Claimed, v1alpha1.Cordoned, v1alpha1.Held:
		return []corev1.NodeConditionType{corev1.NodeMaintenanceInProgress}
	case v1alpha1.Draining:
		return []corev1.NodeConditionType{corev1.NodeMaintenanceInProgress, corev1.NodeDrainInProgress}
	case v1alpha1.IsDrained:
		return []corev1.NodeConditionType{corev1.NodeMaintenanceInProgress, corev1.NodeDrained}
	default:
		return nil
	}
}

// ownsConditions reports whether this maintenance sets the conditions of the node: it holds the node, or is the next
// holder.
func (w *work) ownsConditions(n *node) bool {
	if Holds(n.is.Stage) {
		return true
	}
	next := n.is.Stage == v1alpha1.Waiting && n.in.Selected && w.refused == nil && w.stage != v1alpha1.Complete
	return next && !slices.ContainsFunc(n.others, func(o other) bool {
		over := o.stage == v1alpha1.Complete || o.node == v1alpha1.Returned || o.node == v1alpha1.Gone
		return InProgress(o.node) || o.older && !o.refused && !over
	})
}
