package watcher

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/fixtures"
	"github.com/rehome-dev/rehome/test/kit/scopetest"
	"github.com/rehome-dev/rehome/watcher/scope"
)

// The scheduler counts the pods on nodes that are not ready, that the policy does not select, or that another program
// drains. These pods do not move. No pod moves to a node that is not ready or drained.
func TestPodsOnUnusableNodes(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	in := func(name, zone string, change ...func(*corev1.Node)) *corev1.Node {
		return roomy(name, append(change, func(n *corev1.Node) { n.Labels["zone"] = zone })...)
	}
	web := selecting("app", "web")
	spread := func(p *corev1.Pod) {
		p.Labels = web.MatchLabels
		fixtures.Spread("zone")(p)
	}
	alone := func(p *corev1.Pod) {
		p.Labels = web.MatchLabels
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: "zone", LabelSelector: web}},
		}}
	}
	for _, c := range []struct {
		name   string
		change func(*corev1.Node) // of the node gone
		why    string
		room   int // for pods of a fuller zone
	}{
		{"not_ready", conditioned(corev1.ConditionFalse), "node gone is not ready", 0},
		{"not_selected", func(n *corev1.Node) { n.Labels["pool"] = "off" },
			`the policy's nodeSelector "pool!=off" does not select node gone`, 2},
		{"drained_by_another_program", fixtures.RestartedByKured,
			"node gone is excluded: its annotation weave.works/kured-reboot-in-progress is \"since noon\"", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := scopetest.GroupPolicy()
			p.Profiles[0].Strategies[1].Args = json.RawMessage(`{"needsRoom":true}`)
			built := func(kind schemas.ScopeKind, nodes []*corev1.Node, pods ...*corev1.Pod) schemas.Payload {
				t.Helper()
				s := view(t, p, nodes, pods)
				st := s.policy.Find(scope.Key{Profile: "p", Strategy: string(kind), Kind: kind})
				keys := s.scopes.Keys(st)
				if len(keys) == 0 {
					return nil
				}
				result, err := s.scopes.Build(st.Key(keys[0]), []schemas.Cause{{}}, now)
				expect.Must(t, err)
				return result.Scope
			}
			gone := in("gone", "b", c.change)

			even := built(schemas.SpreadKind, []*corev1.Node{in("n1", "a"), in("n2", "a"), gone},
				guest("a1", "n1", spread), guest("a2", "n2", spread), guest("b1", "gone", spread), guest("b2", "gone", spread))
			if even != nil {
				t.Errorf("two pods in each of two zones: got %+v, want no scope", even)
			}
			uneven := built(schemas.SpreadKind, []*corev1.Node{in("n1", "a"), in("n2", "a"), gone, in("n3", "c")},
				guest("a1", "n1", spread), guest("b1", "gone", spread), guest("b2", "gone", spread), guest("b3", "gone", spread))
			got := uneven.(schemas.SpreadScope)
			protected := []schemas.Protection{{Rule: policy.NodeNotUsableRule, Detail: c.why}}
			var counts []int
			for _, d := range got.Domains {
				counts = append(counts, d.Count)
				for _, p := range d.Pods {
					expect.Equal(t, "protections of "+p.Pod.Name, p.Protected, protected)
				}
			}
			expect.Equal(t, "counts of the zones a, b, c", counts, []int{1, 3, 0})

			full := built(schemas.SpreadKind, []*corev1.Node{in("n1", "a"), in("n2", "a"), gone},
				guest("a1", "n1", spread), guest("a2", "n1", spread), guest("a3", "n1", spread))
			expect.Equal(t, "room in the zones a, b", full.(schemas.SpreadScope).Room, [][]int{{0, c.room}})

			// The scheduler does not compare with a zone where it can place nothing, if it may place pods anyway.
			anyway := func(p *corev1.Pod) {
				spread(p)
				p.Spec.TopologySpreadConstraints[0].WhenUnsatisfiable = corev1.ScheduleAnyway
			}
			loose := built(schemas.SpreadKind, []*corev1.Node{in("n1", "a"), in("n2", "c"), gone},
				guest("a1", "n1", anyway), guest("a2", "n1", anyway), guest("c1", "n2", anyway))
			expect.Equal(t, "the empty zone counts", loose != nil, c.room > 0)

			neighbors := built(schemas.DomainKind, []*corev1.Node{in("n1", "b"), in("n2", "a"), gone},
				guest("p1", "n1", alone), guest("p2", "gone", func(p *corev1.Pod) { p.Labels = web.MatchLabels }))
			type contending struct {
				pod       string
				protected []schemas.Protection
				repels    int
			}
			var contenders []contending
			for _, p := range neighbors.(schemas.DomainScope).Pods {
				contenders = append(contenders, contending{p.Pod.Name, p.Protected, len(p.Repels)})
			}
			want := []contending{{"p1", nil, 1}, {"p2", protected, 0}}
			expect.Equal(t, "pods in conflict", contenders, want)
		})
	}
}
