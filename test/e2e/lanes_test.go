package e2e

import (
	"fmt"
	"regexp"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/schemas"
)

func TestMovePriorities(t *testing.T) {
	s := newScene(t, 0)
	s.addNodes(1, labeled("role", "twins"))
	s.addNodes(2, labeled("role", "others"))
	leave := s.nodes[1]
	s.cordon(s.nodes[2], true)
	s.deployment("twins", 12, being("twins"))
	s.priorityClass("high", 1000)
	s.priorityClass("low", 10)
	for i := range 3 { // one pod each, so they are not duplicates
		s.deployment(fmt.Sprintf("high-%d", i), 1, being("others"), s.prioritized("high"))
		s.deployment(fmt.Sprintf("low-%d", i), 1, being("others"), s.prioritized("low"))
	}
	s.cordon(s.nodes[2], false)
	events := s.follow(s.profiles([]string{
		profile("balance", "balance", "RemoveDuplicates", "{name: RemoveDuplicates}"),
		profile("default", "deschedule", "RemovePodsViolatingNodeTaints", "{name: RemovePodsViolatingNodeTaints}"),
	}, "rate: {evictionsPerSecond: 0.3, burst: 1}"))

	// Half of the twins should move to the new node. They still wait when the other node is tainted.
	s.addNodes(1, labeled("role", "twins"))
	events.until("the first of the twins is evicted", func(v []schemas.Verdict) bool { return len(of(schemas.Evicted, v)) == 1 })
	s.taint(leave, "dedicated")
	order := ""
	for _, e := range s.moved(0, 12) {
		order += e.pod[:1]
	}
	if !regexp.MustCompile("^t{1,3}l{3}h{3}t{3,5}$").MatchString(order) {
		t.Errorf("evicted in the order %s, want a few twins, then pods of low and of high priority, then the other twins", order)
	}
}

// being binds the pods of a Deployment to the nodes with a purpose.
func being(role string) func(*corev1.PodTemplateSpec) {
	return func(p *corev1.PodTemplateSpec) { p.Spec.NodeSelector["role"] = role }
}
