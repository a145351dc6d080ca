package nodeaffinity

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/functions/candidate"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/fixtures"
	test "github.com/rehome-dev/rehome/test/kit/functionstest"
	"github.com/rehome-dev/rehome/test/kit/randtest"
)

var _ policy.Seeker = Args{}

type (
	pods = []schemas.ScopedPod
	list = []schemas.Intent
)

// fitting makes the pod fit on node-2, with the preference weights of node-2 and of its own node.
func fitting(preference, here int64) test.PodOption {
	return func(p *schemas.ScopedPod) {
		p.Elsewhere = &schemas.Elsewhere{Fits: true, Node: "node-2", Preference: preference, Here: here}
	}
}

// stuck makes the pod fit on no other node.
func stuck(p *schemas.ScopedPod) {
	p.Elsewhere = &schemas.Elsewhere{Why: "no other node has room"}
}

func zone(name string) corev1.NodeSelectorTerm {
	return fixtures.NodeTerm("zone", corev1.NodeSelectorOpIn, name)
}

// bound returns a pod that requires the zone east, and disposed one that prefers it.
func bound(name string, options ...test.PodOption) schemas.ScopedPod {
	return test.Pod(name, append([]test.PodOption{test.Requiring(zone("east")), fitting(0, 0)}, options...)...)
}

func disposed(name string, options ...test.PodOption) schemas.ScopedPod {
	return test.Pod(name, append([]test.PodOption{test.Preferring(60, zone("east")), fitting(60, 0)}, options...)...)
}

const (
	notAllowed     = "its required node affinity does not match node-1; it fits on node-2"
	neitherAllowed = "its node selector and required node affinity do not match node-1; it fits on node-2"
)

func drawn(weight, here int) string {
	return fmt.Sprintf("it prefers node-2, by the weights of its node affinity: %d against %d of node-1", weight, here)
}

type decision struct {
	name string
	args Args
	node corev1.Node
	pods pods
	want list
}

func (c decision) check(t *testing.T) {
	t.Run(c.name, func(t *testing.T) {
		s := test.NodeScope(c.node, c.pods...)
		test.Decides(t, c.args, Args{}, s, c.want)
		for _, args := range []Args{c.args, test.ThroughJSON(t, c.args)} {
			if asked := args.Decide(onlyAsked(args, s)); !slices.Equal(asked, c.want) {
				t.Errorf("with Elsewhere only where Seeks is true:\ngot  %+v\nwant %+v", asked, c.want)
			}
		}
	})
}

// onlyAsked returns the scope as the watcher builds it: Elsewhere is set only for pods that Seeks reports.
func onlyAsked(args Args, s schemas.NodeScope) schemas.NodeScope {
	s.Pods = slices.Clone(s.Pods)
	for i := range s.Pods {
		if p := &s.Pods[i]; len(p.Protected) > 0 || !args.Seeks(&p.Pod, &s.Node) {
			p.Elsewhere = nil
		}
	}
	return s
}

func of(types ...string) Args { return Args{NodeAffinityType: types} }

func TestDecideRequired(t *testing.T) {
	west, plain := test.Node("node-1", test.NodeLabel("zone", "west")), test.Node("node-1")
	a := list{test.Intent("a", "node-1", notAllowed)}
	for _, c := range []decision{
		{"no pods", of(Required), west, nil, nil},
		{"a label with another value", of(Required), west, pods{bound("a")}, a},
		{"a label that the node lacks", of(Required), plain, pods{bound("a")}, a},
		{"a label that matches", of(Required), test.Node("node-1", test.NodeLabel("zone", "east")), pods{bound("a")}, nil},
		{"one of several terms matches", of(Required), west, pods{bound("a", test.Requiring(zone("east"), zone("west")))}, nil},
		{"none of several terms matches", of(Required), west, pods{bound("a", test.Requiring(zone("east"), zone("north")))}, a},
		{"the name of the node", of(Required), west, pods{bound("a", test.Requiring(test.Named("node-1")))}, nil},
		{"the name of another node", of(Required), west, pods{bound("a", test.Requiring(test.Named("node-2")))}, a},
		{"an affinity without terms matches nothing", of(Required), west, pods{bound("a", test.Requiring())}, a},
		{"invalid affinity", of(Required), west,
			pods{bound("a", test.Requiring(fixtures.NodeTerm("zone", corev1.NodeSelectorOpGt, "high")))}, a},
		{"the affinity matches, the node selector does not", of(Required), west,
			pods{bound("a", test.Requiring(zone("west")), test.Selecting("disk", "ssd"))}, list{test.Intent("a", "node-1", neitherAllowed)}},
		{"node selector without affinity", of(Required), west, pods{test.Pod("a", test.Selecting("zone", "east"), fitting(0, 0))}, nil},
		{"a pod without affinity", of(Required), west, pods{test.Pod("a", fitting(0, 0))}, nil},
		{"only pod affinity", of(Required, Preferred), west,
			pods{test.Pod("a", fitting(1, 0), func(p *schemas.ScopedPod) { p.Pod.Spec.Affinity = &corev1.Affinity{} })}, nil},
		{"preferences do not matter", of(Required), west, pods{bound("a", fitting(0, 100))}, a},
		{"only preferred affinity enabled", of(Preferred), west, pods{bound("a")}, nil},

		{"fits on no other node", of(Required), west, pods{bound("a", stuck)}, nil},
		{"fit is unknown", of(Required), west,
			pods{bound("a", func(p *schemas.ScopedPod) { p.Elsewhere = nil })}, nil},
	} {
		c.check(t)
	}
}

func TestDecidePreferred(t *testing.T) {
	west := test.Node("node-1", test.NodeLabel("zone", "west"))
	reason := func(weight, here int) list { return list{test.Intent("a", "node-1", drawn(weight, here))} }
	for _, c := range []decision{
		{"another node weighs more", of(Preferred), west, pods{disposed("a")}, reason(60, 0)},
		{"another node weighs a little more", of(Preferred), west, pods{disposed("a", test.Preferring(59, zone("west")), fitting(60, 59))}, reason(60, 59)},
		{"another node weighs the same", of(Preferred), west, pods{disposed("a", test.Preferring(60, zone("west")), fitting(60, 60))}, nil},
		{"another node weighs less", of(Preferred), west, pods{disposed("a", test.Preferring(70, zone("west")), fitting(60, 70))}, nil},
		{"best fitting node is equal", of(Preferred), west, pods{disposed("a", fitting(0, 0))}, nil},
		{"fits on no other node", of(Preferred), west, pods{disposed("a", stuck)}, nil},
		{"fit is unknown", of(Preferred), west,
			pods{disposed("a", func(p *schemas.ScopedPod) { p.Elsewhere = nil })}, nil},
		{"a pod without preferences", of(Preferred), west, pods{bound("a", fitting(60, 0))}, nil},
		{"only required affinity enabled", of(Required), west, pods{disposed("a")}, nil},
	} {
		c.check(t)
	}
}

func TestRequiredMovesBeforePreferred(t *testing.T) {
	west := test.Node("node-1", test.NodeLabel("zone", "west"))
	in := func(include, exclude []string) Args {
		return Args{NodeAffinityType: []string{Required}, Selection: candidate.Selection{Namespaces: policy.Namespaces{Include: include, Exclude: exclude}}}
	}
	move := func(name, reason string) schemas.Intent { return test.Intent(name, "node-1", reason) }
	best := test.Quality(corev1.PodQOSBestEffort)
	mixed := pods{disposed("a", test.Priority(1)), bound("b", test.Priority(9)), disposed("c"), bound("d", test.Priority(2)), bound("e", best)}
	both := list{move("e", notAllowed), move("d", notAllowed), move("b", notAllowed), move("c", drawn(60, 0)), move("a", drawn(60, 0))}
	for _, c := range []decision{
		{"both kinds", of(Required, Preferred), west, mixed, both},
		{"both kinds in the other order", of(Preferred, Required), west, mixed, both},
		{"pod with both kinds moves once", of(Preferred, Required), west,
			pods{bound("a", test.Preferring(5, zone("east")), fitting(5, 0))}, list{move("a", notAllowed)}},
		{"pod with both kinds, one enabled", of(Preferred), west,
			pods{bound("a", test.Preferring(5, zone("east")), fitting(5, 0))}, list{move("a", drawn(5, 0))}},
		{"order within one kind", of(Required), west,
			pods{bound("a", test.ReluctantToMove()), bound("c"), bound("b")}, list{move("b", notAllowed), move("c", notAllowed), move("a", notAllowed)}},

		{"protected pod", of(Required, Preferred), west,
			pods{bound("a", test.Protected(policy.PodsWithPVC)), disposed("b", test.Protected(policy.PodsWithPVC)), bound("c")}, list{move("c", notAllowed)}},
		{"terminating pod", of(Required, Preferred), west,
			pods{bound("a", test.Terminating()), disposed("b", test.Terminating())}, nil},
		{"ended pods stay, pending pods move", of(Required), west,
			pods{bound("a", test.Phase(corev1.PodSucceeded)), bound("b", test.Phase(corev1.PodFailed)), bound("c", test.Phase(corev1.PodPending))},
			list{move("c", notAllowed)}},

		{"node not ready", of(Required, Preferred), test.Node("node-1", test.Ready(corev1.ConditionFalse)),
			pods{bound("a"), disposed("b")}, nil},
		{"node status unknown", of(Required), test.Node("node-1", test.Ready(corev1.ConditionUnknown)), pods{bound("a")}, nil},
		{"node ready", of(Required), test.Node("node-1", test.Ready(corev1.ConditionTrue)), pods{bound("a")}, list{move("a", notAllowed)}},

		{"included namespaces", in([]string{"web"}, nil), west, pods{bound("a"), bound("b", test.In("db"))}, list{move("a", notAllowed)}},
		{"excluded namespaces", in(nil, []string{"web"}), west, pods{bound("a"), bound("b", test.In("db"))},
			list{test.IntentIn("db", "b", "node-1", notAllowed)}},
		{"label selector", Args{NodeAffinityType: []string{Required}, Selection: candidate.Selection{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}}}},
			west, pods{bound("a"), bound("b", test.Labelled("tier", "web")), bound("c", test.Labelled("tier", "db"))}, list{move("b", notAllowed)}},
		{"an empty selector selects all", Args{NodeAffinityType: []string{Required}, Selection: candidate.Selection{LabelSelector: &metav1.LabelSelector{}}}, west,
			pods{bound("a")}, list{move("a", notAllowed)}},
	} {
		c.check(t)
	}
}

func TestNeedlessFitChecks(t *testing.T) {
	west := test.Node("node-1", test.NodeLabel("zone", "west"))
	for _, c := range []struct {
		name string
		args Args
		node corev1.Node
		pod  schemas.ScopedPod
		want bool
	}{
		{"a pod without affinity", of(Required, Preferred), west, test.Pod("a"), false},
		{"required affinity not met", of(Required), west, bound("a"), true},
		{"required affinity met", of(Required), west, bound("a", test.Requiring(zone("west"))), false},
		{"required affinity not enabled", of(Preferred), west, bound("a"), false},
		{"preference not met", of(Preferred), west, disposed("a"), true},
		{"one of two preferences met", of(Preferred), west, disposed("a", test.Preferring(1, zone("west"))), true},
		{"all preferences met", of(Preferred), west, test.Pod("a", test.Preferring(1, zone("west")), test.Preferring(2, test.Named("node-1"))), false},
		{"invalid preference", of(Preferred), west,
			test.Pod("a", test.Preferring(1, zone("east")), test.Preferring(1, fixtures.NodeTerm("zone", corev1.NodeSelectorOpGt, "high"))), false},
		{"preference not enabled", of(Required), west, disposed("a"), false},
		{"namespace not included", Args{NodeAffinityType: []string{Required}, Selection: candidate.Selection{Namespaces: policy.Namespaces{Include: []string{"db"}}}}, west, bound("a"), false},
		{"pod not selected", Args{NodeAffinityType: []string{Required}, Selection: candidate.Selection{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}},
			west, bound("a"), false},
		{"terminating pod", of(Required), west, bound("a", test.Terminating()), false},
		{"ended pod", of(Required), west, bound("a", test.Phase(corev1.PodFailed)), false},
		{"node not ready", of(Required), test.Node("node-1", test.Ready(corev1.ConditionUnknown)), bound("a"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.args.Seeks(&c.pod.Pod, &c.node); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestCandidateFitChecks(t *testing.T) {
	r := randtest.New(t)
	moved := 0
	zones := []string{"east", "west", "north"}
	term := func() corev1.NodeSelectorTerm { return zone(zones[r.IntN(3)]) }
	for range 5000 {
		n := test.Node("node-1", test.NodeLabel("zone", zones[r.IntN(2)]))
		args := of([][]string{{Required}, {Preferred}, {Required, Preferred}}[r.IntN(3)]...)
		var all pods
		for i := range r.IntN(8) {
			p := test.Pod(fmt.Sprint("p", i))
			for _, change := range []test.PodOption{test.Requiring(term()), test.Preferring(1+r.Int32N(3), term()), test.Preferring(1+r.Int32N(3), term()),
				test.Selecting("zone", zones[r.IntN(3)]), test.Phase(corev1.PodSucceeded), test.Terminating(), test.Protected(policy.PodsWithPVC)} {
				if r.IntN(3) == 0 {
					change(&p)
				}
			}
			fitting(1000, 0)(&p) // better than any node, so the result depends only on the pod and its node
			all = append(all, p)
		}
		want := args.Decide(test.NodeScope(n, all...))
		moves := map[string]bool{}
		for _, intent := range want {
			moves[intent.Pod.Name] = true
		}
		for i := range all {
			if p := &all[i]; len(p.Protected) == 0 && args.Seeks(&p.Pod, &n) != moves[p.Pod.Name] {
				t.Fatalf("asked about: %v, moves: %v: %+v on %+v with %+v", !moves[p.Pod.Name], moves[p.Pod.Name], p.Pod, n, args)
			}
		}
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		if got := args.Decide(onlyAsked(args, test.NodeScope(n, all...))); !slices.Equal(got, want) {
			t.Fatalf("in another order:\ngot  %+v\nwant %+v", got, want)
		}
		moved += len(want)
	}
	if moved < 1000 {
		t.Errorf("%d pods moved: the test tests too little", moved)
	}
}

func TestValidate(t *testing.T) {
	const right = "want requiredDuringSchedulingIgnoredDuringExecution or preferredDuringSchedulingIgnoredDuringExecution"
	test.Refused(t, Args{
		Selection: candidate.Selection{Namespaces: policy.Namespaces{Exclude: []string{"web"}}, LabelSelector: &metav1.LabelSelector{}}, NodeAffinityType: []string{Preferred, Required},
	}.Validate())
	test.Refused(t, Args{}.Validate(), "nodeAffinityType: is missing; "+right+", or both")
	test.Refused(t, of().Validate(), "nodeAffinityType: is missing; "+right+", or both")
	test.Refused(t, of(Required, "required", Required, "").Validate(),
		`nodeAffinityType[1]: is not known, got "required"; `+right,
		`nodeAffinityType[2]: is given twice, got "requiredDuringSchedulingIgnoredDuringExecution"; keep one`,
		`nodeAffinityType[3]: is not known, got ""; `+right)
	test.Refused(t, Args{Selection: test.InvalidSelection(), NodeAffinityType: []string{Required}}.Validate(), test.SelectionMistakes()...)
}

// crowd is as many pods as a kubelet runs by default. Each has a node affinity of both kinds, and half of them are on the
// wrong node.
func crowd() schemas.NodeScope {
	var all pods
	for i := range 110 {
		where := []string{"east", "west"}[i%2]
		all = append(all, test.Pod(fmt.Sprintf("p%03d", i*37%110), test.Labelled("tier", "web"), test.Priority(int32(i%3)),
			test.Requiring(zone(where), fixtures.NodeTerm("disk", corev1.NodeSelectorOpExists)),
			test.Preferring(10, fixtures.NodeTerm("arch", corev1.NodeSelectorOpIn, "arm64", "amd64")), fitting(10, 10)))
	}
	return test.NodeScope(test.Node("node-1", test.NodeLabel("zone", "west"), test.NodeLabel("arch", "amd64"), test.Ready(corev1.ConditionTrue)), all...)
}

func BenchmarkDecide(b *testing.B) {
	s := crowd()
	args := of(Required, Preferred)
	args.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}}
	b.ReportAllocs()
	for b.Loop() {
		if got := args.Decide(s); len(got) != 55 {
			b.Fatalf("got %d intents, want 55", len(got))
		}
	}
}

// Each scope of a node checks every pod with a node affinity.
func BenchmarkSeeks(b *testing.B) {
	s := crowd()
	args := of(Required, Preferred)
	b.ReportAllocs()
	for b.Loop() {
		if !args.Seeks(&s.Pods[0].Pod, &s.Node) || args.Seeks(&s.Pods[1].Pod, &s.Node) {
			b.Fatal("want the first pod to be asked about, and not the second")
		}
	}
}
