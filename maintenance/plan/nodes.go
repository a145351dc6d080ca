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

// MostNodes is the number of nodes that one maintenance can select: as many as fit into one object of the API server,
// and into one message.
const MostNodes = 1000

// Selector reports which nodes the set contains. An empty or invalid selector selects nothing; see [Validate].
func Selector(set v1alpha1.NodeSet) func(*corev1.Node) bool {
	if set.Selector == nil {
		return func(n *corev1.Node) bool { return slices.Contains(set.Names, n.Name) }
	}
	selector, err := metav1.LabelSelectorAsSelector(set.Selector)
	if err != nil || selector.Empty() {
		selector = labels.Nothing()
	}
	return func(n *corev1.Node) bool { return selector.Matches(labels.Set(n.Labels)) }
}

// ControlPlane reports whether the node runs the control plane, by its label.
func ControlPlane(node *corev1.Node) bool {
	_, is := node.Labels["node-role.kubernetes.io/control-plane"]
	_, was := node.Labels["node-role.kubernetes.io/master"] // until Kubernetes 1.24
	return is || was
}

// InService reports whether the node takes pods: it is ready, and not cordoned.
func InService(node *corev1.Node) bool {
	return conditionOf(node, corev1.NodeReady).Status == corev1.ConditionTrue && !node.Spec.Unschedulable
}

func conditionOf(n *corev1.Node, name corev1.NodeConditionType) corev1.NodeCondition {
	for _, c := range n.Status.Conditions {
		if c.Type == name {
			return c
		}
	}
	return corev1.NodeCondition{}
}

// AdminRequested is the reason of the conditions that maintenances set on nodes.
const AdminRequested = "AdminRequested"

// Signature returns the end of the message of a condition that the maintenance of that name has set on a node.
func Signature(name string) string { return " (maintenance " + name + ")" }

// SetByMaintenance reports whether the maintenance of that name has set the condition or, if the name is empty, any
// maintenance.
func SetByMaintenance(c corev1.NodeCondition, name string) bool {
	if name == "" {
		return c.Reason == AdminRequested && strings.Contains(c.Message, " (maintenance ") && strings.HasSuffix(c.Message, ")")
	}
	return c.Reason == AdminRequested && strings.HasSuffix(c.Message, Signature(name))
}

// OnNode reports whether the node has the mark of the maintenance, or a true condition that it has set.
func OnNode(m *v1alpha1.NodeMaintenance, node *corev1.Node, mark *schemas.CordonMark) bool {
	return mark != nil && mark.UID == m.UID || slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Status == corev1.ConditionTrue && SetByMaintenance(c, m.Name)
	})
}

// GateOpen reports whether a gate on a condition or an annotation is open for the node, and why not.
func GateOpen(gate v1alpha1.Gate, node *corev1.Node) (open bool, message string) {
	switch {
	case gate.Condition != nil:
		is := conditionOf(node, corev1.NodeConditionType(gate.Condition.Type)).Status
		switch is {
		case corev1.ConditionStatus(gate.Condition.Status):
			return true, ""
		case "":
			return false, fmt.Sprintf("the node has no condition %s, want %s", gate.Condition.Type, gate.Condition.Status)
		}
		return false, fmt.Sprintf("condition %s is %s, want %s", gate.Condition.Type, is, gate.Condition.Status)
	case gate.Annotation != nil:
		is, has := node.Annotations[gate.Annotation.Key]
		switch {
		case has && is == gate.Annotation.Value:
			return true, ""
		case !has:
			return false, fmt.Sprintf("the node has no annotation %s, want %q", gate.Annotation.Key, gate.Annotation.Value)
		}
		return false, fmt.Sprintf("annotation %s is %.100q, want %q", gate.Annotation.Key, is, gate.Annotation.Value)
	}
	return false, "its query was not sent"
}

// Stages returns the stages of the nodes in a status, by name.
func Stages(s v1alpha1.NodeMaintenanceStatus) map[string]v1alpha1.NodeStage {
	stages := make(map[string]v1alpha1.NodeStage, len(s.Nodes))
	for _, n := range s.Nodes {
		stages[n.Name] = n.Stage
	}
	return stages
}

// InProgress reports whether a node of that stage is in progress: claimed, and not given back yet.
func InProgress(stage v1alpha1.NodeStage) bool { return Holds(stage) || stage == v1alpha1.Returning }

// Holds reports whether a maintenance blocks other maintenances from a node of that stage.
func Holds(stage v1alpha1.NodeStage) bool {
	return slices.Contains([]v1alpha1.NodeStage{
		v1alpha1.Claimed, v1alpha1.Cordoned, v1alpha1.Draining, v1alpha1.IsDrained, v1alpha1.Held,
	}, stage)
}
