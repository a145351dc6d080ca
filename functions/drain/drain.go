// Package drain decides the next steps of a maintenance: which nodes are claimed, cordoned, drained and given back, and which
// pods move now.
//
// # The way of a node
//
//	Waiting ──▶ Claimed ──▶ Cordoned ──▶ Draining ──▶ Drained ──▶ Returning ──▶ Returned
//
// Each answer holds the whole status. What is done to a node rests on the status as it is stored: a node whose stage changes
// with an answer is touched by the next one, after the change was written. So a claim is known to everybody before the node
// is cordoned, and two decisions that do not know of each other cannot claim too many.
//
// # The truth about a node
//
// Whether a node is cordoned by this maintenance is on the node: the mark. It is trusted over the status. A node with a mark
// of this maintenance that the status does not know is claimed anew; one that was given back and still has it is given back
// again.
//
// # What is not promised
//
//   - How many pods have moved is counted from one status to the next. Pods that come and go between the two are not seen.
//   - A node that goes over from one maintenance to the next stays cordoned if the next one claims it before it is given back.
//     If not, it takes pods for a moment.
package drain

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/maintenance"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// Args has no fields: everything is in the maintenance.
type Args struct{}

// Validate finds nothing wrong.
func (Args) Validate() error { return nil }

// Decide answers with the pods that are to move now, by node and then by namespace and name, and with what else is to be done.
func (Args) Decide(scope schemas.MaintenanceScope) ([]schemas.Intent, schemas.MaintenanceSteps) {
	w := read(&scope)
	for _, n := range w.nodes {
		w.advance(n)
	}
	w.begin()
	return w.intents(), schemas.MaintenanceSteps{
		Name: scope.Maintenance.Name, UID: scope.Maintenance.UID, ResourceVersion: scope.Maintenance.ResourceVersion,
		Status: w.status(), Nodes: w.steps(), Finalizer: w.finalizer(),
	}
}

// work is one decision.
type work struct {
	*schemas.MaintenanceScope
	spec *v1alpha1.NodeMaintenanceSpec
	// at is when it is decided, in whole seconds, as a status holds it.
	at metav1.Time
	// stage is what is wanted.
	stage v1alpha1.Stage
	// refused is why it is not accepted. nil: it is.
	refused *maintenance.Problem
	rules   maintenance.Rules
	plan    []step
	nodes   []*node // by name
}

// node is one node that is meant, or that the status knows.
type node struct {
	in *schemas.MaintainedNode // nil: it is not there
	// was is what is stored about it, and is what is to be stored. A node without a stage is left out.
	was, is v1alpha1.NodeStatus
	// mine: this maintenance has marked it.
	mine bool
	pods []pod
}

func read(scope *schemas.MaintenanceScope) *work {
	w := &work{
		MaintenanceScope: scope, spec: &scope.Maintenance.Spec, at: metav1.NewTime(scope.Now.UTC().Truncate(time.Second)),
		rules: maintenance.NewRules(scope.Rules), plan: readPlan(scope.Maintenance.Spec.Plan),
	}
	w.stage = w.wanted()
	nodes := map[string]*node{}
	of := func(name string) *node {
		if nodes[name] == nil {
			nodes[name] = &node{}
		}
		return nodes[name]
	}
	for i, n := range scope.Nodes {
		of(n.Node.Name).in = &scope.Nodes[i]
	}
	for _, n := range scope.Maintenance.Status.Nodes {
		of(n.Name).was = n
	}
	for _, name := range w.spec.Nodes.Names {
		of(name)
	}
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		n := nodes[name]
		w.take(n, name)
		w.nodes = append(w.nodes, n)
	}
	w.refused = w.refusal()
	return w
}

// take finds out where the node is.
func (w *work) take(n *node, name string) {
	n.is = n.was
	n.is.Name, n.is.Pods, n.is.Blocked, n.is.More, n.is.Message = name, nil, nil, 0, ""
	if n.in == nil {
		return
	}
	n.mine = n.in.Mark != nil && n.in.Mark.UID == w.Maintenance.UID
	switch same := n.was.UID == n.in.Node.UID; {
	case same && (maintenance.WorkedOn(n.was.Stage) || n.was.Stage == v1alpha1.Waiting || n.was.Stage == v1alpha1.Returned):
	case !same && n.was.DrainedAt != nil: // a machine that was drained to be made anew
		n.is.UID, n.is.Stage = n.in.Node.UID, v1alpha1.Returned
		if n.is.End == nil {
			n.is.End = w.at.DeepCopy()
		}
	default:
		n.is = v1alpha1.NodeStatus{Name: name, UID: n.in.Node.UID, Stage: v1alpha1.Waiting}
	}
	if n.is.Start == nil && maintenance.WorkedOn(n.is.Stage) { // somebody has changed the status by hand
		n.is.Start = w.at.DeepCopy()
	}
	if w.known(n) && maintenance.WorkedOn(n.is.Stage) {
		n.pods = w.sort(n)
	}
}

// known says whether the node is stored as it is about to be looked at, so that its pods are in the scope.
func (w *work) known(n *node) bool { return n.was.Stage == n.is.Stage && n.was.UID == n.is.UID }

// stages are all stages of a maintenance, in order.
func stages() []v1alpha1.Stage {
	return []v1alpha1.Stage{v1alpha1.Idle, v1alpha1.Cordon, v1alpha1.Drain, v1alpha1.Complete}
}

// wanted is the furthest stage that was ever wanted. Deletion wants all nodes back.
func (w *work) wanted() v1alpha1.Stage {
	if w.Maintenance.DeletionTimestamp != nil {
		return v1alpha1.Complete
	}
	furthest := max(0, slices.Index(stages(), w.spec.Stage))
	for _, s := range w.Maintenance.Status.Stages {
		furthest = max(furthest, slices.Index(stages(), s.Stage))
	}
	return stages()[furthest]
}

// begun says whether a node was ever claimed.
func (w *work) begun() bool {
	return slices.ContainsFunc(w.nodes, func(n *node) bool { return n.is.Start != nil || n.mine })
}

// meant are the nodes that are there and meant.
func (w *work) meant() []*node {
	var list []*node
	for _, n := range w.nodes {
		if n.in != nil && n.in.Meant {
			list = append(list, n)
		}
	}
	return list
}

// finalizer says whether the maintenance is to be kept: as long as something of it is on a node, or may be put there.
func (w *work) finalizer() bool {
	for _, n := range w.nodes {
		if maintenance.WorkedOn(n.is.Stage) || n.in != nil && maintenance.Bears(&w.Maintenance, &n.in.Node, n.in.Mark) {
			return true
		}
	}
	if w.stage == v1alpha1.Complete {
		return w.hasFinalizer() && w.Now.Before(w.start(v1alpha1.Complete).Add(maintenance.Settle))
	}
	return w.hasFinalizer() || w.refused == nil && len(w.meant()) > 0
}

// start is when a stage began; now if it has not.
func (w *work) start(stage v1alpha1.Stage) time.Time {
	for _, s := range w.Maintenance.Status.Stages {
		if s.Stage == stage {
			return s.Start.Time
		}
	}
	return w.at.Time
}

func (w *work) hasFinalizer() bool {
	return slices.Contains(w.Maintenance.Finalizers, schemas.MaintenanceFinalizer)
}

// cordoned says whether the node is as it is to be while it is worked on.
func (n *node) cordoned() bool { return n.mine && n.in.Node.Spec.Unschedulable }

// unreachable says whether the kubelet of the node has not been heard of for so long that nothing can end on it.
func (n *node) unreachable() bool {
	return slices.ContainsFunc(n.in.Node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnreachable })
}
