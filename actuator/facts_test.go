package actuator

import (
	"cmp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/fixtures"
)

// offline returns a cache of the kinds of the actuator with these objects.
func offline(t *testing.T, objects ...any) *cluster.Cache {
	t.Helper()
	cache, err := cluster.NewOffline(Kinds()...)
	expect.Must(t, err)
	for _, o := range objects {
		expect.Must(t, cache.Set(o))
	}
	return cache
}

// factPod returns the pod of wish, which has the priority 1000 and requests 2 CPUs.
func factPod() *corev1.Pod {
	return fixtures.Pod("api-0", "worker-1", fixtures.ControlledBy("ReplicaSet", "rs"), fixtures.Requests("2"), func(p *corev1.Pod) {
		p.UID, p.Spec.Priority = "uid-0", new(int32(1000))
	})
}

// Protections that depend on other objects must be checked again right before the eviction.
func TestFactProtections(t *testing.T) {
	node := func(name, cpu string) *corev1.Node {
		return fixtures.Node(name, withCPU(cpu), fixtures.Readiness(corev1.ConditionTrue))
	}
	threshold := policy.EvictorArgs{PriorityThreshold: policy.PriorityThreshold{Name: "high"}}
	for _, c := range []struct {
		name    string
		args    policy.EvictorArgs
		objects []any
		want    []string // rules
		reason  schemas.ReasonCode
	}{
		{"node_fit", policy.EvictorArgs{NodeFit: true}, []any{node("worker-2", "1")}, []string{policy.NodeFitRule}, schemas.ReasonNodeFit},
		{"node_fit_with_room", policy.EvictorArgs{NodeFit: true}, []any{node("worker-2", "4")}, nil, ""},
		{"min_replicas", policy.EvictorArgs{MinReplicas: 2}, nil, []string{policy.MinReplicasRule}, schemas.ReasonProtected},
		{"priority_class", threshold, []any{fixtures.PriorityClass(1000)}, []string{policy.PriorityThresholdRule}, schemas.ReasonProtected},
		{"higher_priority_class", threshold, []any{fixtures.PriorityClass(1001)}, nil, ""},
		{"no_priority_class", threshold, nil, []string{policy.PriorityThresholdRule}, schemas.ReasonProtected},
		{"none_asked_for", policy.EvictorArgs{}, nil, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := factPod()
			cache := offline(t, append(c.objects, node("worker-1", "4"), fixtures.Namespace("web", nil), pod)...)
			evictor, err := policy.NewEvictor(c.args)
			expect.Must(t, err)
			open := wish()
			a := New(Config{Facts: cache, Capacity: cache, Policy: policy.Policy{Profiles: []policy.Profile{{
				Name: "default", Evictor: evictor, Strategies: []policy.Enabled{{Strategy: policy.Strategy{
					Name: open.Strategy, Traits: policy.Traits{MayReturn: true},
				}}},
			}}}})
			o := cmp.Or(a.judge(open, pod, noon), new(move.Refusal))
			expect.Equal(t, "result of the gates", o.Reason, c.reason)
			for _, rule := range c.want {
				if !strings.Contains(o.Message, rule+": ") {
					t.Errorf("message %q, want that it names %s", o.Message, rule)
				}
			}
		})
	}
}

// The rules about the node of a pod must be checked again right before the eviction.
func TestUnusableNode(t *testing.T) {
	node := func(changes ...func(*corev1.Node)) *corev1.Node { return fixtures.Node("worker-1", changes...) }
	pool := func(n *corev1.Node) { n.Labels = map[string]string{"pool": "web"} }
	other := `the policy's nodeSelector "pool=web" does not select node worker-1`
	maintained := wish()
	maintained.Strategy, maintained.Scope.Kind = schemas.MaintenanceStrategy, schemas.MaintenanceKind
	for _, c := range []struct {
		name   string
		intent Intent
		node   *corev1.Node // nil means that there is none
		want   string       // empty means the pod moves
	}{
		{"selected", wish(), node(pool), ""},
		{"not_selected", wish(), node(), other},
		{"not_ready", wish(), node(pool, fixtures.Readiness(corev1.ConditionFalse)), "node worker-1 is not ready"},
		{"disrupted_by_another_program", wish(), node(pool, fixtures.TaintedBy("karpenter.sh/disrupted")),
			"node worker-1 is excluded: its taint karpenter.sh/disrupted is set"},
		{"under_maintenance", wish(), node(pool, func(n *corev1.Node) {
			n.Annotations = map[string]string{schemas.AnnotationMaintenance: string(expect.ToJSON(t, schemas.CordonMark{Name: "kernel", UID: "m1", At: noon}))}
		}), "node worker-1 is excluded: maintenance kernel has cordoned it"},
		{"unknown", wish(), nil, "there is no node worker-1"},
		{"request", requested(schemas.Asked{}), node(), ""},
		{"maintenance", maintained, node(), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			cache := offline(t)
			if c.node != nil {
				expect.Must(t, cache.Set(c.node))
			}
			p := enabledPolicy()
			p.NodeSelector = "pool=web"
			got := New(Config{Facts: cache, Policy: p}).judge(c.intent, factPod(), noon)
			var want *move.Refusal
			if c.want != "" {
				want = &move.Refusal{Outcome: schemas.Rejected, Reason: schemas.ReasonProtected, Message: policy.NodeNotUsableRule + ": " + c.want}
			}
			expect.Equal(t, "rejection", got, want)
		})
	}
}
