package plan

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// begin claims as many nodes as may be in progress at a time, and records why the others wait.
func (w *work) begin() {
	if w.refused != nil || w.stage != v1alpha1.Cordon && w.stage != v1alpha1.Drain {
		return
	}
	most := w.atOnce()
	waiting, begun := w.queue()
	for _, n := range waiting {
		message := w.holdsUp(n, begun)
		if message == "" && len(begun) >= most {
			message = fmt.Sprintf(turn+": %d at a time", most)
		}
		if message != "" {
			n.is = v1alpha1.NodeStatus{Name: n.is.Name, UID: n.is.UID, Stage: v1alpha1.Waiting, Message: message}
			continue
		}
		if begun = append(begun, n); n.is.Stage == v1alpha1.Waiting {
			n.is.Stage, n.is.Start, n.is.CordonedBefore, n.is.Message = v1alpha1.Claimed, w.at.DeepCopy(), n.before(), ""
		}
	}
}

// queue returns the nodes that wait to be begun, in their order, and the nodes in progress. Nodes with the first value of
// the topology come first, then nodes with the first name: [read] sorted them, and the order of spec.nodes.names does not
// count. A node whose cordon the API server refuses comes last: after a while it keeps its claim only if no other node can
// begin.
func (w *work) queue() (waiting, begun []*node) {
	for _, n := range w.nodes {
		waited := n.is.Start != nil && !w.Now.Before(n.is.Start.Add(Grace))
		switch {
		case n.is.Stage == v1alpha1.Waiting && n.in.Selected,
			n.is.Stage == v1alpha1.Claimed && n.in.CordonRefused && !n.mine && waited:
			waiting = append(waiting, n)
		case InProgress(n.is.Stage):
			begun = append(begun, n)
		}
	}
	domain := func(n *node) string { return n.in.Node.Labels[w.spec.Topology] }
	slices.SortStableFunc(waiting, func(a, b *node) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(domain(a), domain(b)))
	})
	return waiting, begun
}

// rank puts nodes whose cordon was refused last, and of these the nodes with a claim first.
func rank(n *node) int {
	switch {
	case !n.in.CordonRefused:
		return 0
	case n.is.Stage == v1alpha1.Claimed:
		return 1
	default:
		return 2
	}
}

// turn begins the message of a node that waits only for other nodes of its maintenance.
const turn = "waits for its turn"

// atOnce returns the number of nodes that may be in progress at a time.
func (w *work) atOnce() int {
	if w.spec.AtOnce == nil {
		return 1
	}
	most, err := intstr.GetScaledValueFromIntOrPercent(w.spec.AtOnce, len(w.selected()), false)
	if err != nil {
		return 1
	}
	return max(1, most)
}

// holdsUp returns the reason why a node cannot be begun, apart from the number of nodes in progress, or "".
func (w *work) holdsUp(n *node, begun []*node) string {
	switch {
	case !w.InWindow && w.NextWindow.IsZero():
		return "the window is over"
	case !w.InWindow:
		return "outside of the window, which opens at " + clock(w.NextWindow)
	case len(n.in.Locks) > 0:
		return n.in.Locks[0].Tool + " works on it: " + n.in.Locks[0].Sign
	}
	for _, o := range n.others {
		if Holds(o.node) {
			return "maintenance " + o.name + " works on it"
		}
		if o.older && o.begins() && o.node != v1alpha1.Returned && o.node != v1alpha1.Gone {
			return "maintenance " + o.name + " is older and works on it first"
		}
	}
	if name := w.unknownOwner(n); name != "" {
		return "maintenance " + name + " has cordoned it"
	}
	return cmp.Or(closedGate(n), w.controlPlaneBlocks(n), w.beside(n, begun))
}

// beside returns the reason why a node cannot be begun beside the nodes in progress: the control plane, or another
// value of the topology. A node without the label shares its value with no other.
func (w *work) beside(n *node, begun []*node) string {
	value, has := n.in.Node.Labels[w.spec.Topology]
	for _, o := range begun {
		if ControlPlane(&n.in.Node) && ControlPlane(&o.in.Node) {
			return "node " + o.is.Name + " " + alone
		}
	}
	for _, o := range begun {
		other, hasToo := o.in.Node.Labels[w.spec.Topology]
		if w.spec.Topology != "" && (!has || !hasToo || other != value) {
			return fmt.Sprintf("node %s of another %s is in progress", o.is.Name, w.spec.Topology)
		}
	}
	return ""
}

// Control plane nodes are in progress one at a time, over all maintenances, and only while the others are in service.
// Two maintenances that do not see each other's status yet can claim one each. Then neither cordons its node, and the
// younger maintenance gives up its claim.

const alone = "of the control plane is in progress, which are maintained one at a time"

// controlPlaneBlocks returns the reason why the control plane cannot spare the node, or "" if it can or the node is not
// part of it.
func (w *work) controlPlaneBlocks(n *node) string {
	if !ControlPlane(&n.in.Node) {
		return ""
	}
	if name, by := w.heldOfControlPlane(n, func(v1alpha1.NodeMaintenance, v1alpha1.NodeStage) bool { return true }); name != "" {
		return "node " + name + " " + alone + ", by maintenance " + by
	}
	return w.outOfService(n)
}

// heldOfControlPlane returns another control plane node and the maintenance that holds it, or "".
func (w *work) heldOfControlPlane(n *node, counts func(v1alpha1.NodeMaintenance, v1alpha1.NodeStage) bool) (name, by string) {
	for _, m := range w.Others {
		for _, o := range m.Status.Nodes {
			if w.Cluster.ControlPlane[o.Name] && Holds(o.Stage) && o.Name != n.is.Name && counts(m, o.Stage) {
				return o.Name, m.Name
			}
		}
	}
	return "", ""
}

// outOfService describes how many of the other control plane nodes are not in service. It is empty if all are.
func (w *work) outOfService(n *node) string {
	others, inService := len(w.Cluster.ControlPlane)-1, w.Cluster.ControlPlaneReady
	if InService(&n.in.Node) {
		inService--
	}
	if inService < others {
		return fmt.Sprintf("%d of the %d other nodes of the control plane are not ready or are cordoned", others-inService, others)
	}
	return ""
}

// yields reports whether to give up a claim on a control plane node that is not cordoned yet.
func (w *work) yields(n *node) bool {
	if !ControlPlane(&n.in.Node) {
		return false
	}
	held, _ := w.heldOfControlPlane(n, func(m v1alpha1.NodeMaintenance, stage v1alpha1.NodeStage) bool {
		return stage != v1alpha1.Claimed || w.older(&m)
	})
	return held != "" || w.outOfService(n) != ""
}

// other is another maintenance that selects or holds a node.
type other struct {
	name    string
	uid     types.UID
	stage   v1alpha1.Stage // the desired one
	refused bool           // it begins no node
	older   bool
	node    v1alpha1.NodeStage // the stage of the node for it
}

// begins reports whether the other maintenance begins nodes.
func (o other) begins() bool {
	return !o.refused && (o.stage == v1alpha1.Cordon || o.stage == v1alpha1.Drain)
}

// addOthers adds to each node the other maintenances that select or hold it, oldest first.
func (w *work) addOthers(nodes map[string]*node) {
	byAge := slices.SortedFunc(slices.Values(w.Others), func(a, b v1alpha1.NodeMaintenance) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for _, m := range byAge {
		o := w.readOther(&m)
		stages, selects := Stages(m.Status), Selector(m.Spec.Nodes)
		for name, n := range nodes {
			stored := false
			if o.node, stored = stages[name]; n.in == nil || !stored && !selects(&n.in.Node) {
				continue
			}
			over := o.node == v1alpha1.Returning || o.node == v1alpha1.Returned || o.node == v1alpha1.Gone
			if n.in.Mark != nil && n.in.Mark.UID == o.uid && !Holds(o.node) && !over {
				o.node = v1alpha1.Claimed // the mark is seen before the status
			}
			n.others = append(n.others, o)
		}
	}
}

// readOther reads another maintenance, apart from its nodes.
func (w *work) readOther(m *v1alpha1.NodeMaintenance) other {
	o := other{
		name: m.Name, uid: m.UID, stage: m.Spec.Stage, older: w.older(m),
		refused: meta.IsStatusConditionFalse(m.Status.Conditions, v1alpha1.Accepted),
	}
	if m.DeletionTimestamp != nil {
		o.stage = v1alpha1.Complete
	}
	if open, next, err := Open(m.Spec.Window, m.CreationTimestamp.Time, w.Now); err == nil && !open && next.IsZero() {
		o.refused = true // its window is over
	}
	return o
}

// older reports whether another maintenance was made before this one.
func (w *work) older(m *v1alpha1.NodeMaintenance) bool {
	return cmp.Or(m.CreationTimestamp.Compare(w.Maintenance.CreationTimestamp.Time), cmp.Compare(m.Name, w.Maintenance.Name)) < 0
}

// unknownOwner returns the name of a maintenance that marked the node a moment ago and is not in the cache yet. If it
// is missing for longer, it no longer exists.
func (w *work) unknownOwner(n *node) string {
	m := n.in.Mark
	if m == nil || n.mine || !w.Now.Before(m.At.Add(Grace)) ||
		slices.ContainsFunc(n.others, func(o other) bool { return o.uid == m.UID }) {
		return ""
	}
	return m.Name
}

// lost reports whether another maintenance has marked the node and holds it.
func (n *node) lost() bool {
	return n.in.Mark != nil && !n.mine && n.holder(func(o other) bool { return o.uid == n.in.Mark.UID }) != ""
}

// contested returns the name of an older maintenance that also holds the node.
func (n *node) contested() string { return n.holder(func(o other) bool { return o.older }) }

// taker returns the name of another maintenance that has claimed the node to take it over without a change.
func (n *node) taker() string { return n.holder(func(other) bool { return true }) }

// holder returns the name of the first of some maintenances that holds the node, or "".
func (n *node) holder(of func(other) bool) string {
	for _, o := range n.others {
		if Holds(o.node) && of(o) {
			return o.name
		}
	}
	return ""
}
