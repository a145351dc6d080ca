package actuator

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/expect"
)

// Protections that depend on other objects must be checked again right before the eviction.
func TestFactProtections(t *testing.T) {
	node := func(name, cpu string) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
			Status: corev1.NodeStatus{
				Allocatable: corev1.ResourceList{"cpu": resource.MustParse(cpu), "pods": resource.MustParse("10")},
				Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			},
		}
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "web", Name: "api-0", UID: "uid-0",
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "api", UID: "rs", Controller: new(true)}},
		},
		Spec: corev1.PodSpec{NodeName: "worker-1", Containers: []corev1.Container{{
			Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("2")}},
		}}},
	}
	for _, c := range []struct {
		name   string
		args   policy.EvictorArgs
		nodes  []*corev1.Node
		want   []string // rules
		reason schemas.ReasonCode
	}{
		{"node_fit", policy.EvictorArgs{NodeFit: true}, []*corev1.Node{node("worker-1", "4"), node("worker-2", "1")}, []string{policy.NodeFitRule}, schemas.ReasonNodeFit},
		{"node_fit_with_room", policy.EvictorArgs{NodeFit: true}, []*corev1.Node{node("worker-1", "4"), node("worker-2", "4")}, nil, ""},
		{"min_replicas", policy.EvictorArgs{MinReplicas: 2}, nil, []string{policy.MinReplicasRule}, schemas.ReasonProtected},
		{"none_asked_for", policy.EvictorArgs{}, nil, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			cache, err := cluster.NewOffline(slices.Concat(cluster.WorkloadKinds(), cluster.PlacementKinds())...)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range c.nodes {
				if err := cache.Set(n); err != nil {
					t.Fatal(err)
				}
			}
			for _, o := range []any{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, pod} {
				if err := cache.Set(o); err != nil {
					t.Fatal(err)
				}
			}
			evictor, err := policy.NewEvictor(c.args)
			if err != nil {
				t.Fatal(err)
			}
			open := wish()
			a := New(Config{Facts: cache, Capacity: cache, Policy: policy.Policy{Profiles: []policy.Profile{{
				Name: "default", Evictor: evictor, Strategies: []policy.Enabled{{Strategy: policy.Strategy{
					Name: open.Strategy, Traits: policy.Traits{MayReturn: true},
				}}},
			}}}})
			o, _ := a.judge(open, pod, noon)
			expect.Equal(t, "result of the gates", o.Reason, c.reason)
			for _, rule := range c.want {
				if !strings.Contains(o.Message, rule+": ") {
					t.Errorf("message %q, want that it names %s", o.Message, rule)
				}
			}
		})
	}
}
