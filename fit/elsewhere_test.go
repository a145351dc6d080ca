package fit_test

import (
	"fmt"
	"reflect"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/fit"
)

func prefer(weight int32, t corev1.NodeSelectorTerm) podChange {
	return func(p *corev1.Pod) {
		a := affinity(p).NodeAffinity
		a.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PreferredDuringSchedulingIgnoredDuringExecution,
			corev1.PreferredSchedulingTerm{Weight: weight, Preference: t})
	}
}

func TestElsewhere(t *testing.T) {
	ssd := prefer(10, nodeTerm("disk", "In", "ssd"))
	fast := nodeLabel("disk", "ssd")
	full := allocatable("cpu", "0")
	asksCPU := requests("cpu", "1")
	notC := func(n *corev1.Node) bool { return n.Name != "c" }
	for _, test := range []struct {
		name    string
		cluster []any
		pod     *corev1.Pod
		search  fit.Search
		want    fit.Result
	}{
		{
			"its own node is not elsewhere", nodes(node("a")), pod("p", on("a")), fit.Search{},
			fit.Result{Judged: true, Refused: map[fit.Reason]int{}},
		},
		{
			"the first fitting node ends the search", nodes(node("a"), node("b"), node("c", cordoned)), pod("p", on("a")), fit.Search{},
			fit.Result{OK: true, Judged: true, Node: "b", Refused: map[fit.Reason]int{}},
		},
		{
			"all nodes if asked for", nodes(node("a"), node("b"), node("c", cordoned)), pod("p"), fit.Search{All: true},
			fit.Result{OK: true, Judged: true, Node: "a", Refused: map[fit.Reason]int{fit.Cordoned: 1}},
		},
		{
			"the reasons of all that do not fit", nodes(node("a", full), node("b", cordoned), node("c", full)), pod("p", asksCPU), fit.Search{},
			fit.Result{Judged: true, Refused: map[fit.Reason]int{fit.Resource: 2, fit.Cordoned: 1}},
		},
		{
			"nodes that are not allowed do not count", nodes(node("a", full), node("c")), pod("p", asksCPU), fit.Search{Allowed: notC},
			fit.Result{Judged: true, Refused: map[fit.Reason]int{fit.Resource: 1}},
		},
		{
			"the most preferred of the fitting ones", nodes(node("a"), node("b", fast), node("c", fast), node("d")), pod("p", ssd),
			fit.Search{All: true},
			fit.Result{OK: true, Judged: true, Node: "b", Preference: 10, Refused: map[fit.Reason]int{}},
		},
		{
			"a preferred node that does not fit is none", nodes(node("a"), node("b", fast, full)), pod("p", asksCPU, ssd), fit.Search{All: true},
			fit.Result{OK: true, Judged: true, Node: "a", Refused: map[fit.Reason]int{fit.Resource: 1}},
		},
		{
			"a pod that is not judged", nodes(node("a")), pod("p", func(p *corev1.Pod) { p.Spec.SchedulerName = "mine" }), fit.Search{},
			fit.Result{Reason: fit.OtherScheduler},
		},
		{
			"nodes alone judge every pod", nodes(node("a", cordoned), node("b", full), node("c", fast, full)),
			pod("p", asksCPU, ssd, func(p *corev1.Pod) { p.Spec.SchedulerName = "mine" }), fit.Search{ByNode: true, All: true},
			fit.Result{OK: true, Judged: true, Node: "c", Preference: 10, Refused: map[fit.Reason]int{fit.Cordoned: 1}},
		},
		{
			"a reason for every node", nodes(node("a"), node("b")), pod("p", uses("missing")), fit.Search{},
			fit.Result{Judged: true, Refused: map[fit.Reason]int{fit.ClaimUnusable: 2}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := cluster(test.cluster...).Ask(test.pod).Elsewhere(test.search); !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %+v\nwant %+v", got, test.want)
			}
		})
	}
}

func TestPreferenceWeightSum(t *testing.T) {
	p := pod("p", prefer(10, nodeTerm("disk", "In", "ssd")), prefer(5, nodeTerm(zone, "Exists")), prefer(1, named("In", "a")))
	got := map[string]int64{}
	for _, n := range []*corev1.Node{node("a", nodeLabel("disk", "ssd"), in("one")), node("b", in("one")), node("c")} {
		got[n.Name] = fit.Preference(p, n)
	}
	if want := map[string]int64{"a": 16, "b": 5, "c": 0}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestVerdictString(t *testing.T) {
	got := map[string]fit.Verdict{}
	for _, v := range []fit.Verdict{fits(), verdict(fit.Resource, "cpu"), verdict(fit.PodCount, ""), {Reason: fit.Gated}} {
		got[v.String()] = v
	}
	want := map[string]fit.Verdict{
		"fits": fits(), "resource: cpu": verdict(fit.Resource, "cpu"), "pod-count": verdict(fit.PodCount, ""),
		"not judged: gated": {Reason: fit.Gated},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestConcurrentQuestions(t *testing.T) {
	c := cluster(threeZones(pod("p", on("a"), spread(zone)), pod("q", on("b")))...)
	c.Reserve(pod("moving"), "b")
	q := c.Ask(pod("p", on("a"), spread(zone)))
	want := q.Elsewhere(fit.Search{All: true})
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if got := q.Elsewhere(fit.Search{All: true}); !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, want %+v", got, want)
			}
			if got := c.Ask(pod("r", apart(term(zone, "web")))).On("c"); got != fits() {
				t.Errorf("got %+v", got)
			}
		})
	}
	group.Wait()
}

// large returns a cluster of 5,000 nodes in three zones, with 50,000 pods of 1,000 Deployments, a tenth of them with
// anti-affinity against themselves.
func large() *fit.Cluster {
	c := fit.New()
	for i := range 5000 {
		c.Set(node(fmt.Sprintf("node-%d", i), in(fmt.Sprintf("zone-%d", i%3)), allocatable("cpu", "32", "pods", "110")))
	}
	for i := range 50_000 {
		app := fmt.Sprintf("app-%d", i%1000)
		p := pod(fmt.Sprintf("pod-%d", i), podLabel("app", app), requests("cpu", "1", "memory", "100Mi"))
		p.Spec.NodeName = fmt.Sprintf("node-%d", i%5000)
		if i%1000 < 100 {
			apart(term(hostname, app))(p)
		}
		c.Set(p)
	}
	return c
}

func BenchmarkElsewhere(b *testing.B) {
	c := large()
	ofApp := func(key string) func(*corev1.TopologySpreadConstraint) {
		return func(s *corev1.TopologySpreadConstraint) { s.TopologyKey, s.LabelSelector = key, selects("app-7") }
	}
	ask := func(changes ...podChange) *corev1.Pod {
		basics := []podChange{requests("cpu", "1", "memory", "100Mi"), podLabel("app", "app-7"), on("node-7")}
		return pod("pod-7", append(basics, changes...)...)
	}
	everywhere := fit.Search{All: true}
	for _, bench := range []struct {
		name   string
		pod    *corev1.Pod
		search fit.Search
	}{
		{"ordinary/first", ask(), fit.Search{}},
		{"ordinary/all", ask(), everywhere},
		{"fits-nowhere/all", ask(requests("cpu", "99")), everywhere},
		{"node-affinity/all", ask(wantNode(nodeTerm(zone, "In", "zone-1"))), everywhere},
		{"zone-spread/all", ask(spread(zone, ofApp(zone))), everywhere},
		{"host-spread/all", ask(spread(hostname, ofApp(hostname))), everywhere},
		{"anti-affinity/all", ask(apart(term(hostname, "app-7"))), everywhere},
		{"affinity/all", ask(near(term(zone, "app-8"))), everywhere},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.Ask(bench.pod).Elsewhere(bench.search)
			}
		})
	}
}

func BenchmarkSetPod(b *testing.B) {
	c := large()
	p := pod("pod-7", podLabel("app", "app-7"), requests("cpu", "1"), apart(term(hostname, "app-7")), on("node-7"))
	b.ReportAllocs()
	for b.Loop() {
		c.Set(p)
	}
}
