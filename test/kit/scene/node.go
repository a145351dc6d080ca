package scene

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/test/kit/expect"
)

// AddNodes creates n more nodes that only this scene uses. The functions in change may change them before the creation.
func (s *Scene) AddNodes(n int, change ...func(*corev1.Node)) {
	s.T.Helper()
	added, err := s.Cluster.AddNodes(s.T.Context(), n, append([]func(*corev1.Node){WithLabel("scene", s.Namespace)}, change...)...)
	s.T.Must(err)
	s.Nodes = append(s.Nodes, added...)
}

// WithLabel adds a label to a node.
func WithLabel(key, value string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Labels[key] = value }
}

// WithPodCapacity sets the pod capacity of a node.
func WithPodCapacity(pods int) func(*corev1.Node) {
	return func(n *corev1.Node) {
		room := *resource.NewQuantity(int64(pods), resource.DecimalSI)
		n.Status.Allocatable[corev1.ResourcePods], n.Status.Capacity[corev1.ResourcePods] = room, room
	}
}

// Node returns the current state of a node.
func (s *Scene) Node(name string) *corev1.Node {
	s.T.Helper()
	n, err := s.Client.CoreV1().Nodes().Get(s.T.Context(), name, metav1.GetOptions{})
	s.T.Must(err)
	return n
}

// ChangeNode changes a node.
func (s *Scene) ChangeNode(name string, change func(*corev1.Node)) {
	s.T.Helper()
	s.T.Must(s.Cluster.ChangeNode(s.T.Context(), name, change))
}

// LabelNode adds a label to a node.
func (s *Scene) LabelNode(node, key, value string) {
	s.T.Helper()
	s.ChangeNode(node, WithLabel(key, value))
}

// Taint adds a taint with the effect NoSchedule to a node.
func (s *Scene) Taint(node, key string) {
	s.T.Helper()
	s.ChangeNode(node, func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
	})
}

// Untaint removes all taints from a node.
func (s *Scene) Untaint(node string) {
	s.T.Helper()
	s.ChangeNode(node, func(n *corev1.Node) { n.Spec.Taints = nil })
}

// Cordon cordons or uncordons a node.
func (s *Scene) Cordon(node string, unschedulable bool) {
	s.T.Helper()
	s.ChangeNode(node, func(n *corev1.Node) { n.Spec.Unschedulable = unschedulable })
	expect.EventuallyWithState(s.T, "the node has the taint of a cordoned node, or no longer", func() (bool, string) {
		n := s.Node(node)
		tainted := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnschedulable })
		return tainted == unschedulable, fmt.Sprint(n.Spec.Taints)
	})
}
