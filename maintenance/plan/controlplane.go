package plan

import (
	"fmt"
	"maps"
	"slices"

	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// The nodes of the control plane are worked on one at a time, by all maintenances together, and only while the others are in
// service. Two maintenances that do not know of each other can claim one each. Then neither cordons its node before the other
// has given up: whoever decides later knows of both claims. The younger one gives up.

const alone = "of the control plane is worked on, which is done one at a time"

// beside is what speaks against taking a node off the control plane beside those of this maintenance that are begun.
func (w *work) beside(n *node, begun []*node) string {
	for _, o := range begun {
		if n.in.ControlPlane && o.in.ControlPlane {
			return "node " + o.is.Name + " " + alone
		}
	}
	return ""
}

// quorum is what speaks against it otherwise: another maintenance has one, or the others are not in service.
func (w *work) quorum(n *node) string {
	if !n.in.ControlPlane {
		return ""
	}
	for _, o := range w.Others {
		for _, name := range slices.Sorted(maps.Keys(o.ControlPlane)) {
			if name != n.is.Name {
				return "node " + name + " " + alone + ", by maintenance " + o.Name
			}
		}
	}
	return w.missing(n)
}

// missing says how many of the others are not in service.
func (w *work) missing(n *node) string {
	others, inService := w.Cluster.ControlPlane-1, w.Cluster.ControlPlaneReady
	if InService(&n.in.Node) {
		inService--
	}
	if inService < others {
		return fmt.Sprintf("%d of the %d other nodes of the control plane are not ready or are cordoned", others-inService, others)
	}
	return ""
}

// yields says whether a node of the control plane that is claimed, and not cordoned, is to be given up for now.
func (w *work) yields(n *node) bool {
	if !n.in.ControlPlane {
		return false
	}
	for _, o := range w.Others {
		for name, stage := range o.ControlPlane {
			if name != n.is.Name && (stage != v1alpha1.Claimed || w.older(o)) {
				return true
			}
		}
	}
	return w.missing(n) != ""
}
