package actuator

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// threeForOneSlot is an actuator of a cluster in which three pods are on worker-1, and worker-2 has capacity for one.
func threeForOneSlot(t *testing.T, args policy.EvictorArgs, facts ...policy.Fact) (*Actuator, *cluster.Cache, []*corev1.Pod) {
	t.Helper()
	cache, err := cluster.NewOffline(slices.Concat(cluster.WorkloadKinds(), cluster.PlacementKinds())...)
	if err != nil {
		t.Fatal(err)
	}
	set := func(o any) {
		if err := cache.Set(o); err != nil {
			t.Fatal(err)
		}
	}
	for name, cpu := range map[string]string{"worker-1": "4", "worker-2": "1"} {
		set(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{"cpu": resource.MustParse(cpu), "pods": resource.MustParse("10")},
		}})
	}
	var pods []*corev1.Pod
	for i := range 3 {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "web", Name: fmt.Sprint("api-", i), UID: types.UID(fmt.Sprint("uid-", i)),
				OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "api", UID: "rs", Controller: new(true)}},
			},
			Spec: corev1.PodSpec{NodeName: "worker-1", Containers: []corev1.Container{{
				Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}},
			}}},
		}
		set(p)
		pods = append(pods, p)
	}
	evictor, err := policy.NewEvictor(args)
	if err != nil {
		t.Fatal(err)
	}
	strategy := policy.Strategy{Name: wish().Strategy, Traits: policy.Traits{Facts: facts}}
	a := New(Config{Facts: cache, Capacity: cache, Policy: policy.Policy{Profiles: []policy.Profile{{
		Name: "default", Evictor: evictor, Strategies: []policy.Enabled{{Strategy: strategy}},
	}}}})
	return a, cache, pods
}

func TestNodeFitGate(t *testing.T) {
	ask := func(a *Actuator, p *corev1.Pod) (Rejection, bool) {
		i := wish()
		i.Pod = schemas.PodRef{Namespace: p.Namespace, Name: p.Name, UID: p.UID}
		return a.judge(i, p, noon)
	}
	outcomes := func(a *Actuator, pods []*corev1.Pod) (got []schemas.ReasonCode) {
		for _, p := range pods {
			r, _ := ask(a, p)
			got = append(got, r.Reason)
		}
		return got
	}
	one := []schemas.ReasonCode{"", schemas.ReasonNodeFit, schemas.ReasonNodeFit}
	t.Run("three_pods_for_one_slot", func(t *testing.T) {
		a, cache, pods := threeForOneSlot(t, policy.EvictorArgs{NodeFit: true})
		check(t, "outcomes", outcomes(a, pods), one)
		r, _ := ask(a, pods[1])
		check(t, "rejection", r, Rejection{
			Outcome: schemas.Deferred, Reason: schemas.ReasonNodeFit,
			Message:  "NodeFit: does not fit on the only other node: resource, while capacity is reserved for the replacements of web/api-0",
			Blockers: []schemas.ObjectRef{{Kind: "Pod", Namespace: "web", Name: "api-0", UID: "uid-0"}},
		})
		cache.Release("uid-0")
		check(t, "outcomes after the first move has ended", outcomes(a, pods[1:]), one[:2])
	})
	t.Run("a_strategy_needs_it_without_nodeFit", func(t *testing.T) {
		a, _, pods := threeForOneSlot(t, policy.EvictorArgs{}, policy.FactFit)
		check(t, "outcomes", outcomes(a, pods), one)
	})
	t.Run("nothing_asks_for_it", func(t *testing.T) {
		a, _, pods := threeForOneSlot(t, policy.EvictorArgs{})
		check(t, "outcomes", outcomes(a, pods), []schemas.ReasonCode{"", "", ""})
	})
	t.Run("pods_that_cannot_be_judged", func(t *testing.T) {
		for _, c := range []struct {
			args policy.EvictorArgs
			want schemas.ReasonCode
		}{{policy.EvictorArgs{NodeFit: true}, schemas.ReasonNodeFit}, {policy.EvictorArgs{}, ""}} {
			a, _, pods := threeForOneSlot(t, c.args, policy.FactFit)
			pods[0].Spec.SchedulerName = "other"
			r, _ := ask(a, pods[0])
			check(t, "outcome", r.Reason, c.want)
		}
	})
	t.Run("a_request_overrides_it", func(t *testing.T) {
		a, _, pods := threeForOneSlot(t, policy.EvictorArgs{NodeFit: true})
		i := wish()
		i.Strategy, i.Asked = schemas.RequestStrategy, &schemas.Asked{Override: []string{policy.NodeFitRule}}
		for _, p := range pods {
			i.Pod = schemas.PodRef{Namespace: p.Namespace, Name: p.Name, UID: p.UID}
			r, _ := a.judge(i, p, noon)
			check(t, "outcome", r.Reason, schemas.ReasonCode(""))
		}
	})
}
