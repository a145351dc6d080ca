package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas"
)

// nodeAffinity returns a policy with RemovePodsViolatingNodeAffinity for both types of affinity.
func (s *scene) nodeAffinity() string {
	s.t.Helper()
	return s.enable("RemovePodsViolatingNodeAffinity", []string{"{name: RemovePodsViolatingNodeAffinity, args: {nodeAffinityType: " +
		"[requiredDuringSchedulingIgnoredDuringExecution, preferredDuringSchedulingIgnoredDuringExecution]}}"})
}

func requiredNodeAppears(t *testing.T) {
	s := newScene(t, 2)
	s.label(s.nodes[0], "disk", "ssd")
	s.deployment("api", 2, requiring("disk", "ssd"))
	s.placed("api", map[string]int{s.nodes[0]: 2})
	events := s.follow(s.nodeAffinity())

	s.changeNode(s.nodes[0], func(n *corev1.Node) { delete(n.Labels, "disk") })
	events.delta(schemas.NodeLabels, s.nodes[0])
	s.moved(0, 0)

	s.label(s.nodes[1], "disk", "ssd")
	s.moved(0, 2)
	s.placed("api", map[string]int{s.nodes[1]: 2})
}

func preferredNodeJoins(t *testing.T) {
	s := newScene(t, 2)
	s.deployment("api", 3, preferringLabel("disk", "ssd"))
	s.follow(s.nodeAffinity())

	s.addNodes(1, labeled("disk", "ssd"))
	s.moved(0, 3)
	s.placed("api", map[string]int{s.nodes[2]: 3})
}

// requiring makes the pods run only on nodes that have the label when they are scheduled.
func requiring(key, value string) func(*corev1.PodTemplateSpec) {
	return func(p *corev1.PodTemplateSpec) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{hasLabel(key, value)},
			},
		}}
	}
}

// preferringLabel is [preferring] for all nodes with a label.
func preferringLabel(key, value string) func(*corev1.PodTemplateSpec) {
	return func(p *corev1.PodTemplateSpec) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{
				{Weight: 100, Preference: hasLabel(key, value)},
			},
		}}
	}
}

func hasLabel(key, value string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}},
	}}
}

// notBeside prevents the scheduler from placing the pods on a node with a pod that has the label. Call it after [preferring].
func notBeside(key, value string) func(*corev1.PodTemplateSpec) {
	return func(p *corev1.PodTemplateSpec) {
		p.Spec.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey:   corev1.LabelHostname,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{key: value}},
			}},
		}
	}
}

// spreadOverZones makes the scheduler spread the pods over zones with a maximum skew of 1.
func spreadOverZones(p *corev1.PodTemplateSpec) {
	p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{MatchLabels: p.Labels},
	}}
}
