package moves

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/scene"
)

// nodeAffinity returns a policy with RemovePodsViolatingNodeAffinity for both types of affinity.
func nodeAffinity(s *scene.Scene) string {
	s.T.Helper()
	return s.DeschedulePolicy("RemovePodsViolatingNodeAffinity", []string{"{name: RemovePodsViolatingNodeAffinity, args: {nodeAffinityType: " +
		"[requiredDuringSchedulingIgnoredDuringExecution, preferredDuringSchedulingIgnoredDuringExecution]}}"})
}

func requiredNodeAppears(t *testing.T) {
	s := scene.New(t, 2)
	s.LabelNode(s.Nodes[0], "disk", "ssd")
	s.AddDeployment("api", 2, requiring("disk", "ssd"))
	s.WaitPlaced("api", map[string]int{s.Nodes[0]: 2})
	events := follow(s, nodeAffinity(s))

	s.ChangeNode(s.Nodes[0], func(n *corev1.Node) { delete(n.Labels, "disk") })
	waitDelta(events, schemas.NodeLabels, s.Nodes[0])
	s.CheckMoved(0, 0)

	s.LabelNode(s.Nodes[1], "disk", "ssd")
	s.CheckMoved(0, 2)
	s.WaitPlaced("api", map[string]int{s.Nodes[1]: 2})
}

func preferredNodeJoins(t *testing.T) {
	s := scene.New(t, 2)
	s.AddDeployment("api", 3, scene.PreferLabel("disk", "ssd"))
	follow(s, nodeAffinity(s))

	s.AddNodes(1, scene.WithLabel("disk", "ssd"))
	s.CheckMoved(0, 3)
	s.WaitPlaced("api", map[string]int{s.Nodes[2]: 3})
}

// requiring makes the pods run only on nodes that have the label when they are scheduled.
func requiring(key, value string) func(*corev1.PodTemplateSpec) {
	return func(p *corev1.PodTemplateSpec) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{scene.HasLabel(key, value)},
			},
		}}
	}
}

// spreadOverZones makes the scheduler spread the pods over zones with a maximum skew of 1.
func spreadOverZones(p *corev1.PodTemplateSpec) {
	p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{MatchLabels: p.Labels},
	}}
}
