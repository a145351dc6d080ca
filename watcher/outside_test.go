package watcher

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/fixtures"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// outsidePolicy declares a strategy for each of three kinds of scopes that subscribes to the deltas. Each has the
// argument of a profile over its defaults.
func outsidePolicy(t *testing.T, wakes string) policy.Policy {
	t.Helper()
	p, err := policy.Parse("policy.yaml", []byte(`
apiVersion: rehome.dev/v1alpha1
kind: DeschedulerPolicy
functions:
- {name: OfNodes, scope: node, wakes: `+wakes+`, args: {a: 1, b: 2}, http: {url: http://a}}
- {name: OfPods, scope: pod, wakes: `+wakes+`, args: {a: 1, b: 2}, nats: {subject: a}}
- {name: OfWorkloads, scope: workload, wakes: `+wakes+`, args: {a: 1, b: 2}, http: {url: http://b}}
profiles:
- name: p
  pluginConfig: [{name: OfNodes, args: {b: 3}}, {name: OfPods, args: {b: 3}}, {name: OfWorkloads, args: {b: 3}}]
  plugins: {deschedule: {enabled: [OfNodes, OfPods, OfWorkloads]}}
`), nil)
	expect.Must(t, err)
	return p
}

func numbered(uid types.UID) func(*corev1.Pod) { return func(p *corev1.Pod) { p.UID = uid } }

// scattered returns two pods of one workload on different nodes, in which no built-in strategy finds a violation.
func scattered() []*corev1.Pod {
	return []*corev1.Pod{placed("a", "n1", numbered("a")), placed("b", "n2", numbered("b"))}
}

func TestDeclaredStrategyDeltas(t *testing.T) {
	relabelled := func(p *corev1.Pod) { p.Labels = map[string]string{"app": "new"} }
	tainted := [2]*corev1.Node{named("n1"), named("n1", fixtures.TaintedBy("a"))}
	const workload = "OfWorkloads web/ReplicaSet/rs"
	for _, c := range []struct {
		name, wakes string
		change      func(*corev1.Pod) // nil means that a node changes
		node        [2]*corev1.Node   // the node before and after
		want        []string
	}{
		{
			name: "labels of a pod", wakes: "[pod.labels]", want: []string{"OfNodes n1", "OfPods web/a", workload, "pod.labels"},
			change: relabelled,
		},
		{
			name:  "a restart of a container, which does not change who belongs to the workload",
			wakes: "[pod.restarted]", want: []string{"OfNodes n1", "OfPods web/a", workload, "pod.restarted"},
			change: restarted(0, 1),
		},
		{
			name: "and not by others, nor are those published", wakes: "[pod.labels]",
			change: restarted(0, 1),
		},
		{
			name: "taints of a node", wakes: "[node.taints]", node: tainted,
			want: []string{"OfNodes n1", "OfPods web/a", workload, "node.taints"},
		},
		{
			name: "and not by taints of a node when it does not look at them", wakes: "[pod.labels]", node: tainted,
			want: []string{"node.taints"},
		},
		{
			name: "a removed node, whose own scope is gone", wakes: "[node.removed]", node: [2]*corev1.Node{named("n3")},
			want: []string{workload, "node.removed"},
		},
		{
			name: "and not by a removed node when it does not look at it", wakes: "[pod.labels]", node: [2]*corev1.Node{named("n3")},
			want: []string{"node.removed"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pods := scattered()
				s := view(t, outsidePolicy(t, c.wakes), []*corev1.Node{named("n1"), named("n2"), named("n3")}, pods)
				leading(t, s, func(w *Watcher, bus *collected) {
					begin := []string{"OfNodes n1", "OfNodes n2", "OfNodes n3", "OfPods web/a", "OfPods web/b", workload}
					expect.Equal(t, "at the beginning", bus.take(t), begin)
					if c.change == nil {
						if c.node[1] == nil {
							expect.Must(t, s.cluster.Remove(c.node[0]))
						}
						w.nodeChanged(c.node[0], c.node[1], false)
					} else {
						after := pods[0].DeepCopy()
						c.change(after)
						put(t, s.cluster, after)
						w.podChanged(pods[0], after, false)
					}
					time.Sleep(10 * time.Millisecond)
					expect.Equal(t, "published", bus.take(t), c.want)
				})
			})
		})
	}
}

func TestDeclaredStrategyScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := scattered()
		s := view(t, outsidePolicy(t, "[pod.labels]"), []*corev1.Node{named("n1"), named("n2")}, pods)
		leading(t, s, func(_ *Watcher, bus *collected) {
			synctest.Wait()
			got := map[string][]string{}
			for _, e := range bus.events {
				head := schematest.Decode[schemas.ScopeHead](t, e)
				got[head.Strategy+" "+head.Key] = append(podsIn(t, e, head.Kind), string(head.Args))
			}
			const args = `{"a":1,"b":3}`
			want := map[string][]string{
				"OfNodes n1": {"a", args}, "OfNodes n2": {"b", args}, "OfPods web/a": {"a", args}, "OfPods web/b": {"b", args},
				"OfWorkloads web/ReplicaSet/rs": {"a", "b", args},
			}
			expect.Equal(t, "result", got, want)
		})
	})
}

// podsIn returns the names of the pods of a scope.
func podsIn(t *testing.T, e schemas.Event, kind schemas.ScopeKind) []string {
	t.Helper()
	var pods []schemas.ScopedPod
	switch kind {
	case schemas.NodeKind:
		pods = schematest.Decode[schemas.NodeScope](t, e).Pods
	case schemas.PodKind:
		pods = []schemas.ScopedPod{schematest.Decode[schemas.PodScope](t, e).Pod}
	case schemas.WorkloadKind:
		pods = schematest.Decode[schemas.WorkloadScope](t, e).Pods
	case schemas.SpreadKind:
		for _, d := range schematest.Decode[schemas.SpreadScope](t, e).Domains {
			for _, p := range d.Pods {
				pods = append(pods, p.ScopedPod)
			}
		}
	case schemas.DomainKind:
		for _, p := range schematest.Decode[schemas.DomainScope](t, e).Pods {
			pods = append(pods, p.ScopedPod)
		}
	case schemas.UsageKind:
		for _, p := range schematest.Decode[schemas.UsageScope](t, e).Pods {
			pods = append(pods, p.ScopedPod)
		}
	}
	var names []string
	for _, p := range pods {
		names = append(names, p.Pod.Name)
	}
	return names
}

func TestDeclaredStrategyGroupGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := scattered()
		s := view(t, outsidePolicy(t, "[node.load]"), []*corev1.Node{named("n1"), named("n2")}, pods)
		leading(t, s, func(w *Watcher, bus *collected) {
			bus.take(t)
			third := placed("c", "n1", func(p *corev1.Pod) { p.UID = "c" })
			put(t, s.cluster, third)
			w.podChanged(nil, third, false)
			time.Sleep(10 * time.Millisecond)
			expect.Equal(t, "published", bus.take(t), []string{"OfWorkloads web/ReplicaSet/rs"})
		})
	})
}

func TestDeclaredStrategyScopeKinds(t *testing.T) {
	const declared = `
apiVersion: rehome.dev/v1alpha1
kind: DeschedulerPolicy
functions: [{name: Own, scope: %s, wakes: [pod.labels], http: {url: http://a}}]
profiles: [{name: p, pluginConfig: [{name: Own}], plugins: {deschedule: {enabled: [Own]}}}]
`
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	spread := func(p *corev1.Pod) {
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{
			{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: selecting("app", "api")},
			{MaxSkew: 1, TopologyKey: "rack", WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: selecting("app", "api")},
		}
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
				{TopologyKey: "zone", LabelSelector: selecting("app", "api")},
			},
		}}
	}
	inZone := func(zone string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Labels = map[string]string{"zone": zone, "rack": zone} }
	}
	for kind, want := range map[schemas.ScopeKind]map[string][]string{
		schemas.NodeKind:     {"n1": {"a", "b", "c"}, "n2": nil},
		schemas.PodKind:      {"web/a": {"a"}, "web/b": {"b"}, "web/c": {"c"}},
		schemas.WorkloadKind: {"web/ReplicaSet/rs": {"a", "b", "c"}},
		schemas.SpreadKind:   {"web/zone": {"a", "b", "c"}},
		schemas.DomainKind:   {"zone=z1": {"a", "b", "c"}},
		schemas.UsageKind:    {"cluster": {"a", "b", "c"}},
	} {
		t.Run(string(kind), func(t *testing.T) {
			p, err := policy.Parse("policy.yaml", fmt.Appendf(nil, declared, kind), nil)
			expect.Must(t, err)
			o, err := NewOffline(p)
			expect.Must(t, err)
			for _, object := range []any{
				named("n1", inZone("z1"), conditioned(corev1.ConditionTrue)), named("n2", inZone("z2"), conditioned(corev1.ConditionTrue)),
				placed("a", "n1", spread, numbered("a")), placed("b", "n1", spread, numbered("b")), placed("c", "n1", spread, numbered("c")),
			} {
				expect.Must(t, o.Set(object))
			}
			payloads, err := o.Payloads("p", "Own", now)
			expect.Must(t, err)
			got := map[string][]string{}
			for _, payload := range payloads {
				e := schematest.Event(t, "/offline", payload, now, schemas.Event{})
				head := schematest.Decode[schemas.ScopeHead](t, e)
				key := head.Key
				if kind == schemas.SpreadKind { // without the hash of the constraint
					key = key[:strings.LastIndex(key, "/")]
				}
				got[key] = podsIn(t, e, kind)
			}
			expect.Equal(t, "result", got, want)
		})
	}
}
