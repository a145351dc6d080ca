package plan

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// BenchmarkDecide decides on a maintenance of 5,000 nodes. It drains 50 nodes at a time, with 30 pods each.
func BenchmarkDecide(b *testing.B) {
	s := scene(func(s *Facts) { s.Cluster.Nodes = 10_000 }, spec(func(s *v1alpha1.NodeMaintenanceSpec) {
		most := intstr.FromInt32(50)
		s.AtOnce, s.Topology = &most, "zone"
	}))
	for i := range 5000 {
		var list []PodFacts
		stage := v1alpha1.Waiting
		if i < 50 {
			stage = v1alpha1.Draining
			for j := range 30 {
				list = append(list, one(fmt.Sprintf("p%d-%d", i, j)))
			}
		}
		with(fmt.Sprintf("n%04d", i), stage, pods(list...), nodeIs(func(n *NodeFacts) { n.Node.Labels["zone"] = "a" }))(&s)
	}
	for b.Loop() {
		Decide(s)
	}
}
