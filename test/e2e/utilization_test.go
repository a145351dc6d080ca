package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func fullNodeIsRelieved(t *testing.T) {
	s := newScene(t, 1)
	s.deployment("api", 10, asking("3")) // 30 of 32 CPUs
	// With a threshold of 40 %, the new node still counts as under-used with four of the pods. So a second decision, on a slow
	// machine, moves the fifth.
	s.follow(s.balance("LowNodeUtilization", "{thresholds: {cpu: 40}, targetThresholds: {cpu: 50}}"))

	// Six pods use 18 CPUs, which is too much. Five use 15, which is below the target.
	s.addNodes(1)
	s.moved(0, 5)
	s.placed("api", map[string]int{s.nodes[0]: 5, s.nodes[1]: 5})
}

func idleNodeIsEmptied(t *testing.T) {
	s := newScene(t, 1)
	// The scheduler of the scene prefers empty nodes, unless a preference of the pod outweighs that.
	s.deployment("small", 3, asking("1"), preferringLabel("pool", "packed"))
	s.addNodes(1, labeled("pool", "packed"))
	s.follow(s.balance("HighNodeUtilization", "{thresholds: {cpu: 20}}"))
	s.moved(0, 0) // both nodes are hardly used, so neither is better than the other

	s.deployment("big", 1, asking("12"), on(s.nodes[1]))
	s.moved(0, 3)
	s.placed("small", map[string]int{s.nodes[1]: 3})
	s.placed("big", map[string]int{s.nodes[1]: 1})
}

func cordonedNodeIsEmptied(t *testing.T) {
	s := newScene(t, 1)
	s.deployment("small", 3, asking("1"))
	s.cordon(s.nodes[0], true)
	s.addNodes(1)
	s.follow(s.balance("HighNodeUtilization", "{thresholds: {cpu: 20}}"))

	s.deployment("big", 1, asking("12"))
	s.moved(0, 3)
	s.placed("small", map[string]int{s.nodes[1]: 3})
	s.placed("big", map[string]int{s.nodes[1]: 1})
}

// asking sets the CPU request of the pods.
func asking(cpu string) func(*corev1.PodTemplateSpec) {
	return func(p *corev1.PodTemplateSpec) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	}
}
