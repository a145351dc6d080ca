package e2e

import (
	"context"
	"fmt"
	"regexp"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas"
)

func TestMovePriorities(t *testing.T) {
	s := newScene(t, 0)
	s.addNodes(1, as("twins"))
	s.addNodes(2, as("others"))
	leave := s.nodes[1]
	s.cordon(s.nodes[2], true)
	s.deployment("twins", 12, being("twins"))
	for i := range 3 { // one pod each, so they are not duplicates
		s.deployment(fmt.Sprintf("high-%d", i), 1, being("others"), s.priority("high", 1000))
		s.deployment(fmt.Sprintf("low-%d", i), 1, being("others"), s.priority("low", 10))
	}
	s.cordon(s.nodes[2], false)
	events := s.follow(s.profiles([]string{
		profile("balance", "balance", "RemoveDuplicates", "{name: RemoveDuplicates}"),
		profile("default", "deschedule", "RemovePodsViolatingNodeTaints", "{name: RemovePodsViolatingNodeTaints}"),
	}, "rate: {evictionsPerSecond: 0.3, burst: 1}"))

	// Half of the twins should move to the new node. They still wait when the other node is tainted.
	s.addNodes(1, as("twins"))
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

// as labels a node for a purpose.
func as(role string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Labels["role"] = role }
}

// being binds the pods of a Deployment to the nodes with a purpose.
func being(role string) func(*corev1.PodTemplateSpec) {
	return func(p *corev1.PodTemplateSpec) { p.Spec.NodeSelector["role"] = role }
}

// priority creates a PriorityClass for the scene, unless it exists, and assigns it to the pods.
func (s *scene) priority(name string, value int32) func(*corev1.PodTemplateSpec) {
	s.t.Helper()
	class := s.namespace + "-" + name
	classes := s.client.SchedulingV1().PriorityClasses()
	if _, err := classes.Get(s.t.Context(), class, metav1.GetOptions{}); err != nil {
		_, err = classes.Create(s.t.Context(), &schedulingv1.PriorityClass{
			ObjectMeta: metav1.ObjectMeta{Name: class}, Value: value, PreemptionPolicy: new(corev1.PreemptNever),
		}, metav1.CreateOptions{})
		s.t.Must(err)
		s.t.Cleanup(func() { s.t.Must(classes.Delete(context.Background(), class, metav1.DeleteOptions{})) })
	}
	return func(p *corev1.PodTemplateSpec) { p.Spec.PriorityClassName = class }
}
