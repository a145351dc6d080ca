package cluster

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	nodeutil "k8s.io/component-helpers/node/util"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// Node is the health of a node.
type Node struct {
	Name string
	// Ready is the status of its condition. A node without the condition is not ready.
	Ready bool
	// Tainted is the time when it got the newest of its taints with the effect NoSchedule or NoExecute. A cordon counts
	// as a taint. A taint that existed when the watch began counts from its timeAdded. It is zero if the node has no
	// such taint, or only taints without that time, taints that a new node came with, or the cordon of a maintenance.
	Tainted time.Time
	// Maintained means that a maintenance holds the node, so that a cordon or a shutdown is intended.
	Maintained bool
}

// NotReady reports whether the node has a Ready condition that is not True. A node without one counts as ready, as in
// kubernetes-sigs/descheduler.
func NotReady(n *corev1.Node) bool {
	_, ready := nodeutil.GetNodeCondition(&n.Status, corev1.NodeReady)
	return ready != nil && ready.Status != corev1.ConditionTrue
}

// IsReady is the opposite of [NotReady]. Predictions of the scheduler consider only such nodes.
func IsReady(n *corev1.Node) bool { return !NotReady(n) }

// Unusable returns the reason why no pod of the node may move, or "". selected is [policy.Policy.Selector].
func Unusable(n *corev1.Node, selected labels.Selector, signals policy.Signals) string {
	switch {
	case !selected.Matches(labels.Set(n.Labels)):
		return fmt.Sprintf("the policy's nodeSelector %q does not select node %s", selected, n.Name)
	case NotReady(n):
		return fmt.Sprintf("node %s is not ready", n.Name)
	}
	if why := Excluded(n, signals); why != "" {
		return fmt.Sprintf("node %s is excluded: %s", n.Name, why)
	}
	return ""
}

// Excluded returns the reason why a maintenance or another program is draining the node, or "". The annotation of a
// maintenance is set with its cordon, before the conditions of the node.
func Excluded(n *corev1.Node, signals policy.Signals) string {
	if mark := schemas.MarkOn(n); mark != nil {
		return "maintenance " + mark.Name + " has cordoned it"
	}
	return signals.IgnoresNode(n)
}

// Closed returns the reason why no pod should move to the node, or "": the reasons of Excluded, except signals of taints
// with the effect PreferNoSchedule.
func Closed(n *corev1.Node, signals policy.Signals) string {
	if mark := schemas.MarkOn(n); mark != nil {
		return Excluded(n, signals)
	}
	return signals.ClosesNode(n)
}

// taint identifies a taint of a node, as in the API server. The zero value is the cordon.
type taint struct {
	key    string
	effect corev1.TaintEffect
}

// cordons reports whether the taint is the cordon, or the taint that comes with it.
func (t taint) cordons() bool { return t == taint{} || t.key == corev1.TaintNodeUnschedulable }

// taintsOf returns the taints of a node that keep pods away, with the times when they were added, or zero.
func taintsOf(n *corev1.Node) map[taint]time.Time {
	taints := map[taint]time.Time{}
	if n.Spec.Unschedulable {
		taints[taint{}] = time.Time{}
	}
	for _, t := range n.Spec.Taints {
		if t.Effect != corev1.TaintEffectNoSchedule && t.Effect != corev1.TaintEffectNoExecute {
			continue
		}
		var added time.Time
		if t.TimeAdded != nil {
			added = t.TimeAdded.Time
		}
		taints[taint{t.Key, t.Effect}] = added
	}
	return taints
}

// nodes are the known nodes by name.
type nodes map[string]knownNode

// knownNode is a node with the time of each of its taints. The time is zero if the taint came before the watch, with
// the node, or by a maintenance.
type knownNode struct {
	Node
	came map[taint]time.Time
}

// change handles a change, and returns the name of the node if its [Node] changed. old or new may be nil. The taints of
// a new node do not affect its health, because its setup removes them. A maintenance intends its cordon and the taint
// of the cordon, which is set and removed later than the cordon.
func (all nodes) change(old, new *corev1.Node, initial bool, now time.Time) string {
	if new == nil {
		delete(all, old.Name)
		return old.Name
	}
	if old != nil && old.UID != new.UID { // replaced unseen
		delete(all, old.Name)
	}
	before, known := all[new.Name]
	_, maintained := new.Annotations[schemas.AnnotationMaintenance]
	taints := taintsOf(new)
	_, ready := nodeutil.GetNodeCondition(&new.Status, corev1.NodeReady)
	after := knownNode{
		Node: Node{Name: new.Name, Ready: ready != nil && ready.Status == corev1.ConditionTrue, Maintained: maintained},
		came: make(map[taint]time.Time, len(taints)),
	}
	for t, added := range taints {
		at, had := before.came[t]
		switch {
		case had, maintained && t.cordons():
		case initial:
			at = added
		case known:
			at = now
		}
		after.came[t] = at
		if at.After(after.Tainted) {
			after.Tainted = at
		}
	}
	all[new.Name] = after
	if known && before.Node == after.Node {
		return ""
	}
	return new.Name
}
