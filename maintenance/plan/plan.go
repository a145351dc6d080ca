// Package plan decides the next steps of one maintenance: which nodes are claimed, cordoned, drained, and given back, and which
// pods move now. It is pure: all facts, and the time, are arguments.
//
//	Facts (facts.go) ──▶ Decide (plan.go) ──▶ Decision, intents
//	                       ├─ refusal      accept.go        validation and guards
//	                       ├─ advance      stages.go        each node one stage further
//	                       ├─ begin        order.go         claims nodes, beside other maintenances; controlplane.go
//	                       ├─ status       status.go        conditions and summary; message.go, blocked.go
//	                       ├─ steps        steps.go         cordon, return, conditions of nodes
//	                       └─ intents      waves.go         pods in the order of the plan and of drain rules; rules.go
//	Due, Open (window.go, cron.go)         when to decide again, and when nodes may be begun
//
// # The stages of a node
//
//	Waiting ──▶ Claimed ──▶ Cordoned ──▶ Draining ──▶ Drained ──▶ Returning ──▶ Returned
//
// Each decision holds the whole status. A change of a node rests on the status as it is stored: a node whose stage changes with
// a decision is touched by the next one, after the change was written. So everyone knows of a claim before the node is
// cordoned, and two concurrent decisions cannot claim too many nodes.
//
// The mark on a node says which maintenance cordoned it, and counts more than the status. A node with a mark of this maintenance
// that the status does not have is claimed again; one that was given back and still has the mark is given back again.
//
// # Limits
//
//   - Moved pods are counted from one status to the next. Pods that come and go in between are not counted.
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

// Decide returns the pods to move now, by node and then by namespace and name, and everything else to do.
func Decide(facts Facts) ([]schemas.Intent, Decision) {
	w := read(&facts)
	for _, n := range w.nodes {
		w.advance(n)
	}
	w.begin()
	return w.intents(), Decision{
		Name: facts.Maintenance.Name, UID: facts.Maintenance.UID, ResourceVersion: facts.Maintenance.ResourceVersion,
		Status: w.status(), Nodes: w.steps(), Finalizer: w.finalizer(),
	}
}

// work is one decision.
type work struct {
	*Facts
	spec *v1alpha1.NodeMaintenanceSpec
	// at is when it is decided, in whole seconds, as a status holds it.
	at metav1.Time
	// stage is what is wanted.
	stage v1alpha1.Stage
	// refused is why it is not accepted. nil: it is.
	refused *Problem
	rules   Rules
	plan    []step
	nodes   []*node // by name
}

// node is one node that is meant, or that the status knows.
type node struct {
	in *NodeFacts // nil: it is not there
	// was is what is stored about it, and is what is to be stored. A node without a stage is left out.
	was, is v1alpha1.NodeStatus
	// mine: this maintenance has marked it.
	mine bool
	pods []pod
}

func read(facts *Facts) *work {
	w := &work{
		Facts: facts, spec: &facts.Maintenance.Spec, at: metav1.NewTime(facts.Now.UTC().Truncate(time.Second)),
		rules: NewRules(facts.Rules), plan: readPlan(facts.Maintenance.Spec.Plan),
	}
	w.stage = w.wanted()
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
	case same && (WorkedOn(n.was.Stage) || n.was.Stage == v1alpha1.Waiting || n.was.Stage == v1alpha1.Returned):
	case !same && n.was.DrainedAt != nil: // a machine that was drained to be made anew
		n.is.UID, n.is.Stage = n.in.Node.UID, v1alpha1.Returned
		if n.is.End == nil {
			n.is.End = w.at.DeepCopy()
		}
	default:
		n.is = v1alpha1.NodeStatus{Name: name, UID: n.in.Node.UID, Stage: v1alpha1.Waiting}
	}
	if n.is.Start == nil && WorkedOn(n.is.Stage) { // somebody has changed the status by hand
		n.is.Start = w.at.DeepCopy()
	}
	if w.known(n) && WorkedOn(n.is.Stage) {
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
		if WorkedOn(n.is.Stage) || n.in != nil && Bears(&w.Maintenance, &n.in.Node, n.in.Mark) {
			return true
		}
	}
	if w.stage == v1alpha1.Complete {
		return w.hasFinalizer() && w.Now.Before(w.start(v1alpha1.Complete).Add(Settle))
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
