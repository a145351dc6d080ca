package functionstest

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas"
)

// Selecting adds a label to the pod's node selector.
func Selecting(key, value string) PodOption {
	return func(p *schemas.ScopedPod) { p.Pod.Spec.NodeSelector = with(p.Pod.Spec.NodeSelector, key, value) }
}

// Requiring adds a required node affinity with alternative terms. Without terms no node matches.
func Requiring(terms ...corev1.NodeSelectorTerm) PodOption {
	return func(p *schemas.ScopedPod) {
		nodeAffinity(p).RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: terms}
	}
}

// Preferring adds a preferred node affinity term.
func Preferring(weight int32, term corev1.NodeSelectorTerm) PodOption {
	return func(p *schemas.ScopedPod) {
		a := nodeAffinity(p)
		a.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PreferredDuringSchedulingIgnoredDuringExecution,
			corev1.PreferredSchedulingTerm{Weight: weight, Preference: term})
	}
}

func nodeAffinity(p *schemas.ScopedPod) *corev1.NodeAffinity {
	if p.Pod.Spec.Affinity == nil {
		p.Pod.Spec.Affinity = &corev1.Affinity{}
	}
	if p.Pod.Spec.Affinity.NodeAffinity == nil {
		p.Pod.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	return p.Pod.Spec.Affinity.NodeAffinity
}

// Named returns a node selector term that matches only the node with this name.
func Named(node string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{
		{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
	}}
}

// NodeOption changes a node under construction.
type NodeOption = func(*corev1.Node)

// Node returns a node without a Ready condition, after applying the options.
func Node(name string, options ...NodeOption) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, option := range options {
		option(&n)
	}
	return n
}

// NodeLabel adds a label to the node.
func NodeLabel(key, value string) NodeOption {
	return func(n *corev1.Node) { n.Labels = with(n.Labels, key, value) }
}

// Ready gives the node the condition Ready, after another condition.
func Ready(status corev1.ConditionStatus) NodeOption {
	return func(n *corev1.Node) {
		n.Status.Conditions = append(n.Status.Conditions,
			corev1.NodeCondition{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse},
			corev1.NodeCondition{Type: corev1.NodeReady, Status: status})
	}
}
