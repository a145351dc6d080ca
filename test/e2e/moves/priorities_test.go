package moves

import (
	"fmt"
	"regexp"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/scene"
)

func TestMovePriorities(t *testing.T) {
	s := scene.New(t, 0)
	s.AddNodes(1, scene.WithLabel("role", "twins"))
	s.AddNodes(2, scene.WithLabel("role", "others"))
	leave := s.Nodes[1]
	s.Cordon(s.Nodes[2], true)
	s.AddDeployment("twins", 12, being("twins"))
	priorityClass(s, "high", 1000)
	priorityClass(s, "low", 10)
	for i := range 3 { // one pod each, so they are not duplicates
		s.AddDeployment(fmt.Sprintf("high-%d", i), 1, being("others"), prioritized(s, "high"))
		s.AddDeployment(fmt.Sprintf("low-%d", i), 1, being("others"), prioritized(s, "low"))
	}
	s.Cordon(s.Nodes[2], false)
	events := follow(s, s.ProfilesPolicy([]string{
		scene.Profile("balance", "balance", "RemoveDuplicates", "{name: RemoveDuplicates}"),
		scene.Profile("default", "deschedule", "RemovePodsViolatingNodeTaints", "{name: RemovePodsViolatingNodeTaints}"),
	}, "rate: {evictionsPerSecond: 0.3, burst: 1}"))

	// Half of the twins should move to the new node. They still wait when the other node is tainted.
	s.AddNodes(1, scene.WithLabel("role", "twins"))
	events.WaitVerdicts("the first of the twins is evicted", func(v []schemas.Verdict) bool { return len(scene.WithOutcome(schemas.Evicted, v)) == 1 })
	s.Taint(leave, "dedicated")
	order := ""
	for _, e := range s.CheckMoved(0, 12) {
		order += e.Pod[:1]
	}
	if !regexp.MustCompile("^t{1,3}l{3}h{3}t{3,5}$").MatchString(order) {
		t.Errorf("evicted in the order %s, want a few twins, then pods of low and of high priority, then the other twins", order)
	}
}

// being binds the pods of a Deployment to the nodes with a purpose.
func being(role string) func(*corev1.PodTemplateSpec) {
	return func(p *corev1.PodTemplateSpec) { p.Spec.NodeSelector["role"] = role }
}
