package score_test

import (
	"fmt"
	"maps"
	"reflect"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/fit"
	"github.com/rehome-dev/rehome/fit/score"
	"github.com/rehome-dev/rehome/test/kit/fixtures"
)

// Objects for tests.
var (
	list = fixtures.Resources
)

const device = "example.com/device"

// node returns a node of 4 CPUs and 8000Mi in a zone; changes replace its resources.
func node(name, zone string, resources ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		corev1.LabelHostname: name, corev1.LabelTopologyZone: zone,
	}}}
	n.Status.Allocatable = list("cpu", "4", "memory", "8000Mi", "pods", "20")
	maps.Copy(n.Status.Allocatable, list(resources...))
	return n
}

func avoided(n *corev1.Node, taints int) *corev1.Node {
	for i := range taints {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "old" + strconv.Itoa(i), Effect: corev1.TaintEffectPreferNoSchedule})
	}
	return n
}

// pod returns a pod of the app web, on a node or on none.
func pod(name, on string, requests ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: name, UID: types.UID(name), Labels: map[string]string{"app": "web"},
	}}
	p.Spec.NodeName = on
	p.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: list(requests...)}}}
	return p
}

func with(p *corev1.Pod, changes ...func(*corev1.Pod)) *corev1.Pod {
	for _, change := range changes {
		change(p)
	}
	return p
}

func terminating(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }

func term(app string) corev1.PodAffinityTerm {
	return corev1.PodAffinityTerm{
		TopologyKey: corev1.LabelTopologyZone, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
	}
}

func near(weight int32, app string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}}
		if weight == 0 {
			p.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution = []corev1.PodAffinityTerm{term(app)}
			return
		}
		p.Spec.Affinity.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []corev1.WeightedPodAffinityTerm{
			{Weight: weight, PodAffinityTerm: term(app)},
		}
	}
}

func apart(weight int32, app string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: weight, PodAffinityTerm: term(app)}},
		}}
	}
}

func preferNode(weight int32, key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		if p.Spec.Affinity == nil {
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}
		}
		preferred := &p.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
		*preferred = append(*preferred, corev1.PreferredSchedulingTerm{Weight: weight, Preference: corev1.NodeSelectorTerm{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}},
		}})
	}
}

func cluster(objects ...metav1.Object) *fit.Cluster {
	c := fit.New()
	for _, o := range objects {
		c.Set(o)
	}
	return c
}

// only returns a profile with one plugin, whose weight is 1.
func only(plugin score.Plugin, changes ...func(*score.Profile)) *score.Profile {
	p := score.Default()
	p.Weights = map[score.Plugin]int64{plugin: 1}
	for _, change := range changes {
		change(p)
	}
	return p
}

// ranks returns the nodes with their scores, best first.
func ranks(c *fit.Cluster, p *corev1.Pod, profile *score.Profile) string {
	var ranked []string
	for _, n := range score.Rank(c.Ask(p), profile, nil) {
		ranked = append(ranked, fmt.Sprint(n.Name, " ", n.Score))
	}
	return strings.Join(ranked, ", ")
}

func TestRank(t *testing.T) {
	three := func(pods ...metav1.Object) []metav1.Object {
		return append(pods, node("a", "one"), node("b", "one"), node("c", "two"))
	}
	for _, test := range []struct {
		name    string
		profile *score.Profile
		cluster []metav1.Object
		pod     *corev1.Pod
		want    string
	}{
		{
			"least_allocated", only(score.NodeResourcesFit),
			three(pod("p", "a", "cpu", "1", "memory", "800Mi"), pod("q", "b", "cpu", "3", "memory", "800Mi")),
			pod("new", "", "cpu", "1", "memory", "800Mi"), "c 82, a 65, b 40",
		},
		{
			"most_allocated", only(score.NodeResourcesFit, func(p *score.Profile) { p.Strategy.Type = "MostAllocated" }),
			three(pod("p", "a", "cpu", "1", "memory", "800Mi"), pod("q", "b", "cpu", "3", "memory", "800Mi")),
			pod("new", "", "cpu", "1", "memory", "800Mi"), "b 60, a 35, c 17",
		},
		{
			// 100m of 4 and 200Mi of 8000Mi, with a pod of the same kind there: 5 %.
			"containers_without_requests", only(score.NodeResourcesFit), three(pod("p", "a"), pod("q", "b", "cpu", "400m")),
			pod("new", ""), "c 97, a 95, b 91",
		},
		{
			"a_node_without_the_resource", only(score.NodeResourcesFit), []metav1.Object{node("a", "one", "cpu", "0"), node("b", "one")},
			pod("new", "", "cpu", "0", "memory", "4000Mi"), "b 75, a 50",
		},
		{
			"balanced", only(score.NodeResourcesBalancedAllocation), three(pod("p", "a", "cpu", "2"), pod("q", "b", "memory", "4000Mi")),
			pod("new", "", "cpu", "2", "memory", "1000Mi"), "b 84, a 65, c 65",
		},
		{"balanced_for_a_pod_without_requests", only(score.NodeResourcesBalancedAllocation), three(), pod("new", ""), "a 0, b 0, c 0"},
		{
			"taints_to_avoid", only(score.TaintToleration),
			[]metav1.Object{avoided(node("a", "one"), 2), avoided(node("b", "one"), 1), node("c", "two")}, pod("new", ""), "c 100, b 50, a 0",
		},
		{
			"preferred_nodes", only(score.NodeAffinity), three(),
			with(pod("new", ""), preferNode(30, corev1.LabelTopologyZone, "one"), preferNode(10, corev1.LabelHostname, "b")), "b 100, a 75, c 0",
		},
		{
			"soft_spread_over_zones", only(score.PodTopologySpread), three(pod("p", "a"), pod("q", "a"), pod("r", "c")),
			with(pod("new", ""), fixtures.Spread(corev1.LabelTopologyZone, fixtures.Anyway)), "c 100, a 33, b 33",
		},
		{
			"terminating_pods_do_not_count", only(score.PodTopologySpread), three(pod("p", "a"), with(pod("r", "c"), terminating)),
			with(pod("new", ""), fixtures.Spread(corev1.LabelHostname, fixtures.Anyway)), "b 100, c 100, a 0",
		},
		{
			"default_spread", only(score.PodTopologySpread),
			three(with(pod("p", "a"), fixtures.ControlledBy("ReplicaSet", "web")), with(pod("q", "c"), fixtures.ControlledBy("ReplicaSet", "other"))),
			with(pod("new", ""), fixtures.ControlledBy("ReplicaSet", "web")), "c 100, b 88, a 66",
		},
		{
			"no_default_spread_for_a_job", only(score.PodTopologySpread), three(with(pod("p", "a"), fixtures.ControlledBy("Job", "web"))),
			with(pod("new", ""), fixtures.ControlledBy("Job", "web")), "a 0, b 0, c 0",
		},
		{
			"preferred_affinity", only(score.InterPodAffinity), three(pod("p", "a")), with(pod("new", ""), near(10, "web")), "a 100, b 100, c 0",
		},
		{
			"preferred_anti_affinity", only(score.InterPodAffinity), three(pod("p", "a")), with(pod("new", ""), apart(10, "web")), "c 100, a 0, b 0",
		},
		{
			"terms_of_other_pods", only(score.InterPodAffinity),
			three(with(pod("p", "a"), apart(3, "web")), with(pod("q", "a"), near(5, "web")), with(pod("r", "c"), near(0, "web"))),
			pod("new", ""), "a 100, b 100, c 0",
		},
		{
			"required_affinity_of_other_pods", only(score.InterPodAffinity),
			three(with(pod("p", "a"), apart(3, "web")), with(pod("r", "c"), near(0, "web"))), pod("new", ""), "c 100, a 0, b 0",
		},
		{
			"own_terms_only", only(score.InterPodAffinity, func(p *score.Profile) { p.OwnAffinity, p.RequiredAffinity = true, 0 }),
			three(with(pod("p", "a"), near(3, "web")), with(pod("r", "c"), near(0, "web"))), pod("new", ""), "a 0, b 0, c 0",
		},
		{"one_fitting_node", score.Default(), three(), pod("new", "", "cpu", "5"), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := ranks(cluster(test.cluster...), test.pod, test.profile); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestRankOfRelease(t *testing.T) {
	missing := func(p *corev1.Pod) {
		preferred := p.Spec.Affinity.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution
		preferred[0].PodAffinityTerm.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "team", Operator: metav1.LabelSelectorOpDoesNotExist},
		}}
	}
	shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"team": "red"}}}
	nodes := []metav1.Object{shop, node("a", "one"), node("b", "one"), node("c", "two")}
	balance := append(nodes, pod("p", "a", "cpu", "2"), pod("q", "b", "memory", "4000Mi"))
	asks := pod("new", "", "cpu", "2", "memory", "1000Mi")
	for _, test := range []struct {
		name    string
		plugin  score.Plugin
		cluster []metav1.Object
		pod     *corev1.Pod
		want    map[int]string
	}{
		{"balanced", score.NodeResourcesBalancedAllocation, balance, asks, map[int]string{
			35: "b 93, c 81, a 56", 36: "b 84, a 65, c 65", 37: "b 84, a 65, c 65", 0: "b 84, a 65, c 65",
		}},
		{
			"namespaces_without_a_label", score.InterPodAffinity, append(nodes, pod("p", "a")),
			with(pod("new", ""), near(10, "web"), missing), map[int]string{
				35: "a 100, b 100, c 0", 36: "a 100, b 100, c 0", 37: "a 0, b 0, c 0", 0: "a 0, b 0, c 0",
			},
		},
	} {
		for minor, want := range test.want {
			t.Run(fmt.Sprintf("%s/%d", test.name, minor), func(t *testing.T) {
				c := cluster(test.cluster...)
				c.MinorVersion = minor
				if got := ranks(c, test.pod, only(test.plugin)); got != want {
					t.Errorf("got %q, want %q", got, want)
				}
			})
		}
	}
}

func TestRankOfPlugins(t *testing.T) {
	c := cluster(avoided(node("a", "one"), 1), node("b", "two"), with(pod("p", "b"), near(0, "web")))
	got := score.Rank(c.Ask(pod("new", "", "cpu", "1", "memory", "2000Mi")), score.Default(), nil)
	want := []score.Node{
		{Name: "b", Score: 647, Plugins: map[score.Plugin]int64{
			score.NodeResourcesFit: 72, score.NodeResourcesBalancedAllocation: 75, score.TaintToleration: 300, score.InterPodAffinity: 200,
		}},
		{Name: "a", Score: 150, Plugins: map[score.Plugin]int64{
			score.NodeResourcesFit: 75, score.NodeResourcesBalancedAllocation: 75, score.TaintToleration: 0, score.InterPodAffinity: 0,
		}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestPredict(t *testing.T) {
	three := []metav1.Object{node("a", "one"), node("b", "one"), node("c", "two")}
	moving := with(pod("moving", "a", "cpu", "1", "memory", "1000Mi"), fixtures.ControlledBy("ReplicaSet", "web"))
	same := with(pod("same", "b", "cpu", "1", "memory", "1000Mi"), fixtures.ControlledBy("ReplicaSet", "web"))
	for _, test := range []struct {
		name     string
		cluster  []metav1.Object
		reserved string
		pod      *corev1.Pod
		want     []string
	}{
		{"all_nodes_are_equal", three, "", pod("new", ""), []string{"a", "b", "c"}},
		{"the_pod_itself_does_not_count", append(three, moving), "", moving, []string{"a", "b", "c"}},
		{"a_moved_pod_is_on_its_new_node", append(three, moving), "c", same, []string{"a", "b"}},
		{"no_node_fits", three, "", pod("new", "", "cpu", "5"), nil},
		{"one_node_fits", append(three, node("big", "one", "cpu", "8")), "", pod("new", "", "cpu", "5"), []string{"big"}},
		{"a_pod_that_is_not_judged", three, "", with(pod("new", ""), func(p *corev1.Pod) { p.Spec.SchedulerName = "mine" }), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := cluster(test.cluster...)
			if test.reserved != "" {
				c.Reserve(moving, test.reserved)
			}
			var got []string
			for _, n := range score.Predict(c.Ask(test.pod), score.Default(), nil) {
				got = append(got, n.Name)
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func BenchmarkPredict(b *testing.B) {
	c := fit.New()
	for i := range 1000 {
		c.Set(node(fmt.Sprintf("node-%d", i), fmt.Sprintf("zone-%d", i%3), "cpu", strconv.Itoa(4+i%7)))
	}
	for i := range 5000 {
		app := i % 200
		p := with(pod(fmt.Sprintf("pod-%d", i), fmt.Sprintf("node-%d", i%1000), "cpu", "100m", "memory", "100Mi"),
			fixtures.ControlledBy("ReplicaSet", fmt.Sprintf("app-%d", app)))
		p.Labels["app"] = fmt.Sprintf("app-%d", app)
		c.Set(p)
	}
	plain := with(pod("pod-7", "node-7", "cpu", "100m", "memory", "100Mi"), fixtures.ControlledBy("ReplicaSet", "app-7"))
	profile := score.Default()
	for _, bench := range []struct {
		name string
		pod  *corev1.Pod
	}{
		{"plain", plain},
		{"soft_spread", with(plain.DeepCopy(), fixtures.Spread(corev1.LabelTopologyZone, fixtures.Anyway), fixtures.Spread(corev1.LabelHostname, fixtures.Anyway))},
		{"preferred_affinity", with(plain.DeepCopy(), near(10, "app-8"))},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				score.Predict(c.Ask(bench.pod), profile, nil)
			}
		})
	}
}
