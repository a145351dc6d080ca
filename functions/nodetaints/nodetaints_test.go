package nodetaints

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/functions/candidate"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	test "github.com/rehome-dev/rehome/test/kit/functionstest"
	"github.com/rehome-dev/rehome/test/kit/randtest"
)

func node(taints ...string) corev1.Node {
	n := test.Node("worker-1")
	for _, text := range taints {
		n.Spec.Taints = append(n.Spec.Taints, test.Taint(text))
	}
	return n
}

func withReady(n corev1.Node, status corev1.ConditionStatus) corev1.Node {
	test.Ready(status)(&n)
	return n
}

func withCordon(n corev1.Node) corev1.Node {
	n.Spec.Unschedulable = true
	return n
}

func pod(name string, options ...test.PodOption) schemas.ScopedPod {
	return test.Pod(name, append([]test.PodOption{test.On("worker-1")}, options...)...)
}

func protected() test.PodOption { return test.Protected(policy.DaemonSetPods) }

// intent returns an intent to move web/NAME because of these taints.
func intent(name string, violated ...string) schemas.Intent {
	return intentIn("web", name, violated...)
}

func intentIn(namespace, name string, violated ...string) schemas.Intent {
	return test.IntentIn(namespace, name, "worker-1", "does not tolerate "+strings.Join(violated, ", "))
}

func TestDecide(t *testing.T) {
	const gpu, spot, soft, kill = "dedicated=gpu:NoSchedule", "spot:NoSchedule", "busy=yes:PreferNoSchedule", "gone:NoExecute"
	const cordoned = "node.kubernetes.io/unschedulable:NoSchedule"
	type pods = []schemas.ScopedPod
	type list = []schemas.Intent
	a := pod("a")
	for _, c := range []struct {
		name string
		args Args
		node corev1.Node
		pods pods
		want list
	}{
		{"no taints", Args{}, node(), pods{a}, nil},
		{"no pods", Args{}, node(gpu), nil, nil},
		{"a pod without tolerations", Args{}, node(gpu), pods{a}, list{intent("a", gpu)}},
		{"several taints in the node's order", Args{}, node(spot, gpu),
			pods{a, pod("b", test.ToleratingKeys("spot"))}, list{intent("a", spot, gpu), intent("b", gpu)}},
		{"cordoned node", Args{}, withCordon(node(cordoned)), pods{a}, list{intent("a", cordoned)}},
		{"taint left after a cordon", Args{}, node(cordoned), pods{a}, nil},

		{"an equal value tolerates", Args{}, node(gpu),
			pods{pod("a", test.Tolerating(corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpEqual, Value: "gpu"}))}, nil},
		{"no operator means equal", Args{}, node(gpu), pods{pod("a", test.Tolerating(corev1.Toleration{Key: "dedicated", Value: "gpu"}))}, nil},
		{"another value does not tolerate", Args{}, node(gpu),
			pods{pod("a", test.Tolerating(corev1.Toleration{Key: "dedicated", Value: "web"}))}, list{intent("a", gpu)}},
		{"another key does not tolerate", Args{}, node(gpu), pods{pod("a", test.ToleratingKeys("spot"))}, list{intent("a", gpu)}},
		{"another effect does not tolerate", Args{}, node(gpu),
			pods{pod("a", test.Tolerating(corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpExists,
				Effect: corev1.TaintEffectNoExecute}))}, list{intent("a", gpu)}},
		{"the same effect tolerates", Args{}, node(gpu),
			pods{pod("a", test.Tolerating(corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpExists,
				Effect: corev1.TaintEffectNoSchedule}))}, nil},
		{"one wildcard tolerates two taints", Args{}, node(gpu, spot),
			pods{pod("a", test.ToleratingKeys(""))}, nil},
		{"two taints of one key differ by value", Args{}, node(gpu, "dedicated=web:NoSchedule"),
			pods{pod("a", test.Tolerating(corev1.Toleration{Key: "dedicated", Value: "gpu"}))},
			list{intent("a", "dedicated=web:NoSchedule")}},
		{"greater than compares numbers", Args{}, node("level=9:NoSchedule"), pods{
			pod("low", test.Tolerating(corev1.Toleration{Key: "level", Operator: corev1.TolerationOpGt, Value: "5"})),
			pod("same", test.Tolerating(corev1.Toleration{Key: "level", Operator: corev1.TolerationOpGt, Value: "9"})),
			pod("high", test.Tolerating(corev1.Toleration{Key: "level", Operator: corev1.TolerationOpGt, Value: "10"})),
		}, list{intent("high", "level=9:NoSchedule"), intent("same", "level=9:NoSchedule")}},
		{"less than compares numbers", Args{}, node("level=9:NoSchedule"), pods{
			pod("high", test.Tolerating(corev1.Toleration{Key: "level", Operator: corev1.TolerationOpLt, Value: "10"})),
			pod("low", test.Tolerating(corev1.Toleration{Key: "level", Operator: corev1.TolerationOpLt, Value: "9"})),
		}, list{intent("low", "level=9:NoSchedule")}},
		{"a comparison of text tolerates nothing", Args{}, node("level=high:NoSchedule"), pods{
			pod("a", test.Tolerating(corev1.Toleration{Key: "level", Operator: corev1.TolerationOpLt, Value: "10"})),
		}, list{intent("a", "level=high:NoSchedule")}},

		{"NoExecute and PreferNoSchedule do not count by default", Args{}, node(kill, soft), pods{a}, nil},
		{"PreferNoSchedule enabled", Args{IncludePreferNoSchedule: true}, node(kill, soft, gpu),
			pods{a}, list{intent("a", soft, gpu)}},

		{"excluded by key", Args{ExcludedTaints: []string{"dedicated"}}, node(gpu, spot), pods{a}, list{intent("a", spot)}},
		{"excluded by key and value", Args{ExcludedTaints: []string{"dedicated=gpu"}}, node(gpu), pods{a}, nil},
		{"another value is not excluded", Args{ExcludedTaints: []string{"dedicated=web"}}, node(gpu), pods{a}, list{intent("a", gpu)}},
		{"a key is not excluded by its beginning", Args{ExcludedTaints: []string{"ded"}}, node(gpu), pods{a}, list{intent("a", gpu)}},
		{"an empty exclusion excludes nothing", Args{ExcludedTaints: []string{}}, node(gpu), pods{a}, list{intent("a", gpu)}},
		{"included by key", Args{IncludedTaints: []string{"spot"}}, node(gpu, spot), pods{a}, list{intent("a", spot)}},
		{"included by key and value", Args{IncludedTaints: []string{"dedicated=gpu"}}, node(gpu, spot), pods{a}, list{intent("a", gpu)}},
		{"no included taint", Args{IncludedTaints: []string{"dedicated=web"}}, node(gpu, spot), pods{a}, nil},
		{"an empty inclusion includes nothing", Args{IncludedTaints: []string{}}, node(gpu), pods{a}, nil},
		{"included does not make NoExecute count", Args{IncludedTaints: []string{"gone"}}, node(kill), pods{a}, nil},
		{"included does not make PreferNoSchedule count", Args{IncludedTaints: []string{"busy"}}, node(soft), pods{a}, nil},
		{"included value and taint without one", Args{IncludedTaints: []string{"spot=yes"}}, node(spot), pods{a}, nil},

		{"included namespaces", Args{Selection: candidate.Selection{Namespaces: policy.Namespaces{Include: []string{"web"}}}}, node(gpu),
			pods{a, pod("b", test.In("db"))}, list{intent("a", gpu)}},
		{"excluded namespaces", Args{Selection: candidate.Selection{Namespaces: policy.Namespaces{Exclude: []string{"web"}}}}, node(gpu),
			pods{a, pod("b", test.In("db"))}, list{intentIn("db", "b", gpu)}},
		{"label selector", Args{Selection: candidate.Selection{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}}}},
			node(gpu), pods{a, pod("b", test.Labelled("tier", "web")), pod("c", test.Labelled("tier", "db"))}, list{intent("b", gpu)}},
		{"an empty selector selects all", Args{Selection: candidate.Selection{LabelSelector: &metav1.LabelSelector{}}}, node(gpu), pods{a}, list{intent("a", gpu)}},

		{"protected pod", Args{}, node(gpu), pods{pod("a", protected()), pod("b")}, list{intent("b", gpu)}},
		{"terminating pod", Args{}, node(gpu), pods{pod("a", test.Deleted())}, nil},
		{"pods that have ended are left alone, pending ones are not", Args{}, node(gpu),
			pods{pod("a", test.Phase(corev1.PodSucceeded)), pod("b", test.Phase(corev1.PodFailed)), pod("c", test.Phase(corev1.PodPending)),
				pod("d", test.Phase(corev1.PodUnknown))}, list{intent("c", gpu), intent("d", gpu)}},

		{"node not ready", Args{}, withReady(node(gpu), corev1.ConditionFalse), pods{a}, nil},
		{"node status unknown", Args{}, withReady(node(gpu), corev1.ConditionUnknown), pods{a}, nil},
		{"node ready", Args{}, withReady(node(gpu), corev1.ConditionTrue), pods{a}, list{intent("a", gpu)}},

		{"lower priority first, none before all", Args{}, node(gpu),
			pods{pod("a", test.Priority(5)), pod("b", test.Priority(-5)), pod("c", test.Priority(0)), pod("d")},
			list{intent("d", gpu), intent("b", gpu), intent("c", gpu), intent("a", gpu)}},
		{"of the same priority, lower quality of service first", Args{}, node(gpu),
			pods{pod("a", test.Quality(corev1.PodQOSGuaranteed)), pod("b", test.Quality(corev1.PodQOSBurstable)),
				pod("c", test.Quality(corev1.PodQOSBestEffort))},
			list{intent("c", gpu), intent("b", gpu), intent("a", gpu)}},
		{"reluctant pods last", Args{}, node(gpu),
			pods{pod("a", test.ReluctantToMove()), pod("b")}, list{intent("b", gpu), intent("a", gpu)}},
		{"else by namespace and name", Args{}, node(gpu),
			pods{pod("b", test.In("b")), pod("c", test.In("a")), pod("a", test.In("b"))},
			list{intentIn("a", "c", gpu), intentIn("b", "a", gpu), intentIn("b", "b", gpu)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			test.Decides(t, c.args, Args{}, test.NodeScope(c.node, c.pods...), c.want)
			for i := range c.pods {
				p := &c.pods[i]
				moves := slices.ContainsFunc(c.want, func(in schemas.Intent) bool { return in.Pod.UID == p.Pod.UID })
				if moves && !c.args.Concerns(&p.Pod, &c.node) {
					t.Errorf("pod %s moves and does not concern the strategy", p.Pod.Name)
				}
			}
		})
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		name string
		args Args
		want []string
	}{
		{"nothing", Args{}, nil},
		{"all fields", Args{
			Selection:               candidate.Selection{Namespaces: policy.Namespaces{Include: []string{"web"}}, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}},
			IncludePreferNoSchedule: true,
			ExcludedTaints:          []string{}, IncludedTaints: []string{"a", "example.com/a=b-C.d_0"},
		}, nil},
		{"both lists", Args{ExcludedTaints: []string{"a"}, IncludedTaints: []string{"b"}},
			[]string{"includedTaints: cannot be used together with excludedTaints; keep one"}},
		{"entries that can match nothing", Args{ExcludedTaints: []string{"a=b:NoSchedule", "", "a=", "=b", "a*", "a/b/c", "ok"}},
			[]string{
				`excludedTaints[0]: can match no taint, got "a=b:NoSchedule"; write KEY or KEY=VALUE, without an effect or a pattern`,
				`excludedTaints[1]: can match no taint, got ""; write KEY or KEY=VALUE, without an effect or a pattern`,
				`excludedTaints[2]: can match no taint, got "a="; write KEY or KEY=VALUE, without an effect or a pattern`,
				`excludedTaints[3]: can match no taint, got "=b"; write KEY or KEY=VALUE, without an effect or a pattern`,
				`excludedTaints[4]: can match no taint, got "a*"; write KEY or KEY=VALUE, without an effect or a pattern`,
				`excludedTaints[5]: can match no taint, got "a/b/c"; write KEY or KEY=VALUE, without an effect or a pattern`,
			}},
		{"namespaces and selector", Args{Selection: test.InvalidSelection()}, test.SelectionMistakes()},
	} {
		t.Run(c.name, func(t *testing.T) {
			test.Refused(t, c.args.Validate(), c.want...)
		})
	}
}

// randomScope returns a node with taints and pods that are alike often enough to tie.
func randomScope(r *rand.Rand) schemas.NodeScope {
	keys := []string{"a", "b", "c"}
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	n := node()
	for range r.IntN(4) {
		n.Spec.Taints = append(n.Spec.Taints, test.Taint(pick(keys...)+"="+pick("1", "2")+":"+pick("NoSchedule", "PreferNoSchedule", "NoExecute")))
	}
	var pods []schemas.ScopedPod
	for i := range r.IntN(20) {
		p := pod(fmt.Sprint("p", i), test.In(pick("web", "db")), test.Labelled("tier", pick("web", "db")))
		for range r.IntN(3) {
			test.ToleratingKeys(pick(keys...))(&p)
		}
		for _, change := range []test.PodOption{
			test.Deleted(), test.ReluctantToMove(), protected(), test.Priority(1), test.Priority(2), test.Phase(corev1.PodSucceeded),
			test.Quality(corev1.PodQOSBestEffort), test.Quality(""), func(p *schemas.ScopedPod) { p.Pod.Name = "same" },
		} {
			if r.IntN(4) == 0 {
				change(&p)
			}
		}
		pods = append(pods, p)
	}
	return test.NodeScope(n, pods...)
}

// deepCopy is for comparing: Decide must not change its scope.
func deepCopy(s schemas.NodeScope) schemas.NodeScope {
	s.Node, s.Pods = *s.Node.DeepCopy(), slices.Clone(s.Pods)
	for i := range s.Pods {
		s.Pods[i] = test.Copy(s.Pods[i])
	}
	return s
}

func TestDecideIgnoresPodOrder(t *testing.T) {
	r := randtest.New(t)
	some := 0
	for range 500 {
		s := randomScope(r)
		args := Args{IncludePreferNoSchedule: r.IntN(2) == 0}
		if r.IntN(3) == 0 {
			args.ExcludedTaints = []string{"a=1", "b"}
		}
		reordered := s
		reordered.Pods = randtest.Shuffled(r, s.Pods)
		some += len(test.Steady(t, args.Decide, s, deepCopy(s), reordered))
	}
	if some == 0 {
		t.Error("no pod moved in any round: the test tests nothing")
	}
}

func BenchmarkDecide(b *testing.B) {
	// As many pods as a kubelet runs by default; half of them tolerate the taint.
	var pods []schemas.ScopedPod
	for i := range 110 {
		p := pod(fmt.Sprint("p", (i*37)%110), test.Labelled("tier", "web"), test.Priority(int32(i%3)))
		test.Tolerating(
			corev1.Toleration{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
			corev1.Toleration{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute})(&p)
		if i%2 == 0 {
			test.Tolerating(corev1.Toleration{Key: "dedicated", Value: "gpu"})(&p)
		}
		pods = append(pods, p)
	}
	s := test.NodeScope(withReady(node("dedicated=gpu:NoSchedule"), corev1.ConditionTrue), pods...)
	args := Args{Selection: candidate.Selection{Namespaces: policy.Namespaces{Exclude: []string{"kube-system"}}}}
	b.ReportAllocs()
	for b.Loop() {
		if got := args.Decide(s); len(got) != 55 {
			b.Fatalf("got %d intents, want 55", len(got))
		}
	}
}
