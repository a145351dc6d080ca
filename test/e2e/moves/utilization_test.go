package moves

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/rehome-dev/rehome/test/kit/scene"
)

func fullNodeIsRelieved(t *testing.T) {
	s := scene.New(t, 1)
	s.AddDeployment("api", 10, asking("3")) // 30 of 32 CPUs
	// With a threshold of 40 %, the new node still counts as under-used with four of the pods. So a second decision, on a slow
	// machine, moves the fifth.
	follow(s, s.BalancePolicy("LowNodeUtilization", "{thresholds: {cpu: 40}, targetThresholds: {cpu: 50}}"))

	// Six pods use 18 CPUs, which is too much. Five use 15, which is below the target.
	s.AddNodes(1)
	s.CheckMoved(0, 5)
	s.WaitPlaced("api", map[string]int{s.Nodes[0]: 5, s.Nodes[1]: 5})
}

func idleNodeIsEmptied(t *testing.T) {
	s := scene.New(t, 1)
	// The scheduler of the scene prefers empty nodes, unless a preference of the pod outweighs that.
	s.AddDeployment("small", 3, asking("1"), scene.PreferLabel("pool", "packed"))
	s.AddNodes(1, scene.WithLabel("pool", "packed"))
	follow(s, s.BalancePolicy("HighNodeUtilization", "{thresholds: {cpu: 20}}"))
	s.CheckMoved(0, 0) // both nodes are hardly used, so neither is better than the other

	s.AddDeployment("big", 1, asking("12"), scene.OnNode(s.Nodes[1]))
	s.CheckMoved(0, 3)
	s.WaitPlaced("small", map[string]int{s.Nodes[1]: 3})
	s.WaitPlaced("big", map[string]int{s.Nodes[1]: 1})
}

func cordonedNodeIsEmptied(t *testing.T) {
	s := scene.New(t, 1)
	s.AddDeployment("small", 3, asking("1"))
	s.Cordon(s.Nodes[0], true)
	s.AddNodes(1)
	follow(s, s.BalancePolicy("HighNodeUtilization", "{thresholds: {cpu: 20}}"))

	s.AddDeployment("big", 1, asking("12"))
	s.CheckMoved(0, 3)
	s.WaitPlaced("small", map[string]int{s.Nodes[1]: 3})
	s.WaitPlaced("big", map[string]int{s.Nodes[1]: 1})
}

// asking sets the CPU request of the pods.
func asking(cpu string) func(*corev1.PodTemplateSpec) {
	return func(p *corev1.PodTemplateSpec) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	}
}
