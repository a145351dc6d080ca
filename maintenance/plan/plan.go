// Package plan decides the next steps of one maintenance: which nodes to claim, cordon, drain, and give back, and which
// pods to move now. It is pure: all facts, and the time, are arguments.
//
//	Facts (facts.go) ──▶ Decide (plan.go) ──▶ Decision, intents
//	                       ├─ refusal      accept.go    validation and guards
//	                       ├─ advance      stages.go    each node one stage further, or why it waits
//	                       ├─ begin        begin.go     claims nodes, beside other maintenances and the control plane
//	                       ├─ status       status.go    conditions and summary
//	                       ├─ steps        steps.go     cordon, return, conditions of nodes
//	                       └─ intents      pods.go      pods in the order of the plan and of drain rules; rules.go
//	Open (window.go)                       when nodes may be begun
//	Selector, ControlPlane (nodes.go)      facts about one node
//
// # The stages of a node
//
//	Waiting ──▶ Claimed ──▶ Cordoned ──▶ Draining ──▶ Drained ──▶ Returning ──▶ Returned
//	                                         └──▶ Held ─────────────▲
//
// A node is Held if its deadline passes while it has pods left and spec.onDeadline is Hold. A node in any stage is Gone when
// it leaves the cluster, and a node that is no longer selected is Gone instead of Returned.
//
// Each decision contains the whole status. A change of a node depends on the stored status: the decision that changes
// the stage of a node does not change the node; the next one does, after the status was written. So a claim is visible
// before the node is cordoned, and two concurrent decisions cannot claim too many nodes.
//
// The mark on a node identifies the maintenance that cordoned it, and takes precedence over the status. A node with a
// mark of this maintenance that the status does not contain is claimed again; one that was given back and still has the
// mark is given back again.
//
// # Limits
//
//   - Moved pods are counted between two statuses. Pods that come and go in between are not counted.
//   - A node that passes from one maintenance to the next stays cordoned if the next one claims it before it is given back.
//     Otherwise it takes pods for a moment.
package plan

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// Decide returns the pods to move now, by node, namespace, and name, and everything else to do.
func Decide(facts Facts) ([]schemas.Intent, Decision) {
	w := read(&facts)
	for _, n := range w.nodes {
		w.advance(n)
	}
	w.begin()
	return w.intents(), Decision{
		Name: facts.Maintenance.Name, UID: facts.Maintenance.UID, ResourceVersion: facts.Maintenance.ResourceVersion,
		Status: w.status(), Nodes: w.steps(), Moving: w.moving(), Finalizer: w.finalizer(),
	}
}

// work is one decision.
type work struct {
	*Facts
	spec *v1alpha1.NodeMaintenanceSpec
	at   metav1.Time // Now in whole seconds, as a status holds it
	// stage is the desired stage, from the spec and the status.
	stage   v1alpha1.Stage
	refused *Problem // the reason why it is not accepted
	rules   Rules
	plan    []drainStep
	nodes   []*node // by name
}

// node is a node that is selected or in the status.
type node struct {
	in *NodeFacts // nil if it does not exist
	// was is the stored status, and is the next one. A node without a stage is omitted.
	was, is v1alpha1.NodeStatus
	mine    bool    // this maintenance has marked it
	others  []other // the other maintenances that select or hold it
	pods    []pod
}

func read(facts *Facts) *work {
	w := &work{
		Facts: facts, spec: &facts.Maintenance.Spec, at: *second(facts.Now),
		rules: NewRules(facts.Rules), plan: readPlan(facts.Maintenance.Spec.Plan),
	}
	w.stage = w.desired()
	nodes := map[string]*node{}
	of := func(name string) *node {
		if nodes[name] == nil {
			nodes[name] = &node{}
		}
		return nodes[name]
	}
	for i, n := range facts.Nodes {
		of(n.Node.Name).in = &facts.Nodes[i]
	}
	for _, n := range facts.Maintenance.Status.Nodes {
		of(n.Name).was = n
	}
	for _, name := range w.spec.Nodes.Names {
		of(name)
	}
	w.addOthers(nodes)
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		w.take(nodes[name], name)
		w.nodes = append(w.nodes, nodes[name])
	}
	w.refused = w.refusal()
	return w
}

// take determines the current stage of the node.
func (w *work) take(n *node, name string) {
	n.is = n.was
	n.is.Name, n.is.Pods, n.is.Blocked, n.is.More, n.is.Message = name, nil, nil, 0, ""
	if n.in == nil {
		return
	}
	n.mine = n.in.Mark != nil && n.in.Mark.UID == w.Maintenance.UID
	switch same := n.was.UID == n.in.Node.UID; {
	case same && (InProgress(n.was.Stage) || n.was.Stage == v1alpha1.Waiting || n.was.Stage == v1alpha1.Returned):
	case !same && n.was.DrainedAt != nil: // a machine that was drained before its replacement
		n.is.UID, n.is.Stage = n.in.Node.UID, v1alpha1.Returned
		if n.is.End == nil {
			n.is.End = w.at.DeepCopy()
		}
	default:
		n.is = v1alpha1.NodeStatus{Name: name, UID: n.in.Node.UID, Stage: v1alpha1.Waiting}
	}
	if n.is.Start == nil && InProgress(n.is.Stage) { // the status was changed by hand
		n.is.Start = w.at.DeepCopy()
	}
	if w.known(n) && InProgress(n.is.Stage) {
		n.pods = w.sort(n)
	}
}

// known reports whether the stored stage of the node is still the next one.
func (w *work) known(n *node) bool { return n.was.Stage == n.is.Stage && n.was.UID == n.is.UID }

// stages returns all stages of a maintenance, in their order.
func stages() []v1alpha1.Stage {
	return []v1alpha1.Stage{v1alpha1.Idle, v1alpha1.Cordon, v1alpha1.Drain, v1alpha1.Complete}
}

// desired returns the furthest stage that the spec ever requested. Deletion requests Complete.
func (w *work) desired() v1alpha1.Stage {
	if w.Maintenance.DeletionTimestamp != nil {
		return v1alpha1.Complete
	}
	furthest := max(0, slices.Index(stages(), w.spec.Stage))
	for _, s := range w.Maintenance.Status.Stages {
		furthest = max(furthest, slices.Index(stages(), s.Stage))
	}
	return stages()[furthest]
}

// some reports whether a node is in one of these stages.
func (w *work) some(in func(v1alpha1.NodeStage) bool) bool {
	return slices.ContainsFunc(w.nodes, func(n *node) bool { return in(n.is.Stage) })
}

// begun reports whether a node was ever claimed.
func (w *work) begun() bool {
	return slices.ContainsFunc(w.nodes, func(n *node) bool { return n.is.Start != nil || n.mine })
}

// selected returns the selected nodes that exist.
func (w *work) selected() (list []*node) {
	for _, n := range w.nodes {
		if n.in != nil && n.in.Selected {
			list = append(list, n)
		}
	}
	return list
}

// finalizer reports whether the maintenance must be kept, because a node has its mark or conditions, or may get them.
func (w *work) finalizer() bool {
	for _, n := range w.nodes {
		if InProgress(n.is.Stage) || n.in != nil && w.onNode(n) {
			return true
		}
	}
	if w.stage != v1alpha1.Complete {
		return w.hasFinalizer() || w.refused == nil && len(w.selected()) > 0
	}
	start := w.at.Time
	for _, s := range w.Maintenance.Status.Stages {
		if s.Stage == v1alpha1.Complete {
			start = s.Start.Time
		}
	}
	return w.hasFinalizer() && w.Now.Before(start.Add(Settle))
}

// onNode reports whether the node has the mark of this maintenance, or a condition that it can still reset.
func (w *work) onNode(n *node) bool {
	return n.mine || !n.in.ConditionsRefused && OnNode(&w.Maintenance, &n.in.Node, nil)
}

func (w *work) hasFinalizer() bool {
	return slices.Contains(w.Maintenance.Finalizers, schemas.MaintenanceFinalizer)
}

// cordoned reports whether the node is cordoned with the mark of this maintenance.
func (n *node) cordoned() bool { return n.mine && n.in.Node.Spec.Unschedulable }

// unreachable reports whether the control plane has not heard from the kubelet for so long that no pod can end on the
// node.
func (n *node) unreachable() bool {
	return slices.ContainsFunc(n.in.Node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnreachable })
}

// second returns a time as in a status.
func second(t time.Time) *metav1.Time { return &metav1.Time{Time: t.UTC().Truncate(time.Second)} }
