package plan

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// MostNodes is how many nodes one maintenance can be about: so many fit into one object of the API server, which are 1.5 MiB
// at most, and into one message. As many names can be listed.
const MostNodes = 1000

// Selects says whether the set has the node. A selector that is empty or cannot be read selects nothing; [Validate] tells.
func Selects(set v1alpha1.NodeSet, node *corev1.Node) bool { return Selector(set)(node) }

// Selector is [Selects] for many nodes.
func Selector(set v1alpha1.NodeSet) func(*corev1.Node) bool {
	if set.Selector == nil {
		return func(n *corev1.Node) bool { return slices.Contains(set.Names, n.Name) }
	}
	selector, err := metav1.LabelSelectorAsSelector(set.Selector)
	if err != nil || selector.Empty() {
		return func(*corev1.Node) bool { return false }
	}
	return func(n *corev1.Node) bool { return selector.Matches(labels.Set(n.Labels)) }
}

// ControlPlane says whether the node runs the control plane, by its label.
func ControlPlane(node *corev1.Node) bool {
	_, is := node.Labels["node-role.kubernetes.io/control-plane"]
	_, was := node.Labels["node-role.kubernetes.io/master"] // what it was called until Kubernetes 1.24
	return is || was
}

// InService says whether the node takes pods: its kubelet says that it is ready, and it is not cordoned.
func InService(node *corev1.Node) bool {
	return condition(node, corev1.NodeReady) == corev1.ConditionTrue && !node.Spec.Unschedulable
}

// condition is the status of a condition of the node. Empty: it has none.
func condition(node *corev1.Node, name corev1.NodeConditionType) corev1.ConditionStatus {
	for _, c := range node.Status.Conditions {
		if c.Type == name {
			return c.Status
		}
	}
	return ""
}

// Signature is how the message of a condition ends that the maintenance of that name has set on a node.
func Signature(name string) string { return " (maintenance " + name + ")" }

// Said says whether a maintenance has set the condition: the one of that name, or if it is empty any.
func Said(c corev1.NodeCondition, name string) bool {
	if name == "" {
		return c.Reason == AdminRequested && strings.Contains(c.Message, " (maintenance ") && strings.HasSuffix(c.Message, ")")
	}
	return c.Reason == AdminRequested && strings.HasSuffix(c.Message, Signature(name))
}

// AdminRequested is the reason of the conditions that maintenances set on nodes.
const AdminRequested = "AdminRequested"

// Bears says whether something of the maintenance is on the node: its mark, or a condition that it has set and that is true.
// The scope has such a node though the maintenance does not mean it any more, so that it can be taken back. mark is that of
// the node.
func Bears(m *v1alpha1.NodeMaintenance, node *corev1.Node, mark *schemas.CordonMark) bool {
	return mark != nil && mark.UID == m.UID || slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Status == corev1.ConditionTrue && Said(c, m.Name)
	})
}

// GateOpen says whether a gate is open for the node, and if not why. It knows the gates that look at the node; a gate with a
// query is asked elsewhere, and closed here.
func GateOpen(gate v1alpha1.Gate, node *corev1.Node) (open bool, message string) {
	switch {
	case gate.Condition != nil:
		is := condition(node, corev1.NodeConditionType(gate.Condition.Type))
		if is == corev1.ConditionStatus(gate.Condition.Status) {
			return true, ""
		}
		if is == "" {
			return false, fmt.Sprintf("the node has no condition %s, want %s", gate.Condition.Type, gate.Condition.Status)
		}
		return false, fmt.Sprintf("condition %s is %s, want %s", gate.Condition.Type, is, gate.Condition.Status)
	case gate.Annotation != nil:
		is, has := node.Annotations[gate.Annotation.Key]
		if has && is == gate.Annotation.Value {
			return true, ""
		}
		if !has {
			return false, fmt.Sprintf("the node has no annotation %s, want %q", gate.Annotation.Key, gate.Annotation.Value)
		}
		return false, fmt.Sprintf("annotation %s is %.100q, want %q", gate.Annotation.Key, is, gate.Annotation.Value)
	}
	return false, "its query was not asked"
}

// WorkedOn says whether a node of that stage is one of those that are worked on at a time: it is claimed, and not given back
// yet.
func WorkedOn(stage v1alpha1.NodeStage) bool { return Holds(stage) || stage == v1alpha1.Returning }

// Holds says whether a maintenance holds a node of that stage, so that no other may claim it.
func Holds(stage v1alpha1.NodeStage) bool {
	switch stage {
	case v1alpha1.Claimed, v1alpha1.Cordoned, v1alpha1.Draining, v1alpha1.IsDrained, v1alpha1.Held:
		return true
	case v1alpha1.Waiting, v1alpha1.Returning, v1alpha1.Returned, v1alpha1.Gone:
	}
	return false
}
