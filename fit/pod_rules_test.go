package fit_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/fit"
)

// threeZones returns the nodes a, b, and c in the zones one, two, and three, and more objects.
func threeZones(more ...any) []any {
	return append([]any{node("a", in("one")), node("b", in("two")), node("c", in("three"))}, more...)
}

func TestTopologySpread(t *testing.T) {
	type constraint = corev1.TopologySpreadConstraint
	no := verdict(fit.TopologySpread, zone)
	minDomains := func(n int32) func(*constraint) { return func(c *constraint) { c.MinDomains = &n } }
	honorTaints := func(c *constraint) { c.NodeTaintsPolicy = new(corev1.NodeInclusionPolicyHonor) }
	ignoreAffinity := func(c *constraint) { c.NodeAffinityPolicy = new(corev1.NodeInclusionPolicyIgnore) }
	selecting := func(s *metav1.LabelSelector) func(*constraint) { return func(c *constraint) { c.LabelSelector = s } }
	byRevision := func(c *constraint) { c.MatchLabelKeys = []string{"revision"} }
	soft := func(c *constraint) { c.WhenUnsatisfiable = corev1.ScheduleAnyway }
	run(t, []ask{
		{"within the skew", threeZones(), pod("p", spread(zone)), fits()},
		{"one too many", threeZones(pod("q", on("a"))), pod("p", spread(zone)), no},
		{"every zone has one", threeZones(pod("q", on("a")), pod("r", on("b")), pod("s", on("c"))), pod("p", spread(zone)), fits()},
		{"a soft constraint does not forbid", threeZones(pod("q", on("a"))), pod("p", spread(zone, soft)), fits()},
		{"a node without the label takes nothing", nodes(node("a"), node("b", in("two"))), pod("p", spread(zone)), no},
		{"terminating pods do not count", threeZones(pod("q", on("a"), terminating)), pod("p", spread(zone)), fits()},
		{"pods of other namespaces do not count", threeZones(pod("q", on("a"), inNamespace("other"))), pod("p", spread(zone)), fits()},
		{"pods with other labels do not count", threeZones(pod("q", on("a"), podLabel("app", "db"))), pod("p", spread(zone)), fits()},
		{
			"a pod that does not match itself adds nothing", threeZones(pod("q", on("a"))),
			pod("p", podLabel("app", "db"), spread(zone)), fits(),
		},
		{"the pod itself is gone", threeZones(pod("p", on("a"))), pod("p", on("a"), spread(zone)), fits()},
		{"two zones of three at least are there", threeZones(pod("q", on("a")), pod("r", on("b")), pod("s", on("c"))), pod("p", spread(zone, minDomains(2))), fits()},
		{"with fewer domains than wanted the least is zero", threeZones(pod("q", on("a")), pod("r", on("b")), pod("s", on("c"))), pod("p", spread(zone, minDomains(4))), no},
		{
			"a zone that the affinity excludes does not count",
			nodes(node("a", in("one"), nodeLabel("disk", "ssd")), node("b", in("two")), pod("q", on("a"))),
			pod("p", wantNode(nodeTerm("disk", "Exists")), spread(zone)), fits(),
		},
		{
			"unless the policy ignores affinity",
			nodes(node("a", in("one"), nodeLabel("disk", "ssd")), node("b", in("two")), pod("q", on("a"))),
			pod("p", wantNode(nodeTerm("disk", "Exists")), spread(zone, ignoreAffinity)), no,
		},
		{
			"a zone that is tainted counts", nodes(node("a", in("one")), node("b", in("two"), taint("x", corev1.TaintEffectNoSchedule)), pod("q", on("a"))),
			pod("p", spread(zone)), no,
		},
		{
			"unless the policy honors taints", nodes(node("a", in("one")), node("b", in("two"), taint("x", corev1.TaintEffectNoSchedule)), pod("q", on("a"))),
			pod("p", spread(zone, honorTaints)), fits(),
		},
		{
			"only nodes with all keys count", nodes(node("a", in("one")), &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "b", Labels: map[string]string{zone: "two"}},
			}, pod("q", on("a"), podLabel("app", "db")), pod("r", on("a"), podLabel("app", "db"))),
			pod("p", spread(zone, selecting(selects("db"))), spread(hostname)), fits(),
		},
		{
			"another revision does not count", threeZones(pod("q", on("a"), podLabel("revision", "1"))),
			pod("p", podLabel("revision", "2"), spread(zone, byRevision)), fits(),
		},
		{
			"the same revision counts", threeZones(pod("q", on("a"), podLabel("revision", "2"))),
			pod("p", podLabel("revision", "2"), spread(zone, byRevision)), no,
		},
		{"a selector of everything counts nothing, as in the scheduler", threeZones(pod("q", on("a")), pod("r", on("a"))), pod("p", spread(zone, selecting(&metav1.LabelSelector{}))), fits()},
		{"no selector counts nothing", threeZones(pod("q", on("a"))), pod("p", spread(zone, selecting(nil))), fits()},
	})
}

func TestAffinityBetweenPods(t *testing.T) {
	team := func(name, value string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": value}}}
	}
	ofTeam := func(of corev1.PodAffinityTerm, value string) corev1.PodAffinityTerm {
		of.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": value}}
		return of
	}
	inNamespaces := func(of corev1.PodAffinityTerm, names ...string) corev1.PodAffinityTerm {
		of.Namespaces = names
		return of
	}
	everywhere := func(of corev1.PodAffinityTerm) corev1.PodAffinityTerm {
		of.NamespaceSelector = &metav1.LabelSelector{}
		return of
	}
	sameRevision := func(of corev1.PodAffinityTerm) corev1.PodAffinityTerm {
		of.MatchLabelKeys = []string{"revision"}
		return of
	}
	otherRevision := func(of corev1.PodAffinityTerm) corev1.PodAffinityTerm {
		of.MismatchLabelKeys = []string{"revision"}
		return of
	}
	merged := func(of corev1.PodAffinityTerm, operator metav1.LabelSelectorOperator, value string) corev1.PodAffinityTerm {
		of.LabelSelector = of.LabelSelector.DeepCopy()
		of.LabelSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "revision", Operator: operator, Values: []string{value}}}
		return of
	}
	first, second := podLabel("revision", "1"), podLabel("revision", "2")
	web, db := term(zone, "web"), term(zone, "db")
	isDB := podLabel("app", "db")
	want := func(reason fit.Reason) fit.Verdict { return verdict(reason, zone) }
	run(t, []ask{
		{"near a pod in the zone", threeZones(pod("q", on("a"), isDB)), pod("p", near(db)), fits()},
		{"the pod is in another zone", threeZones(pod("q", on("b"), isDB)), pod("p", near(db)), want(fit.PodAffinity)},
		{"a terminating pod is still near", threeZones(pod("q", on("a"), isDB, terminating)), pod("p", near(db)), fits()},
		{"a pod of another namespace is not meant", threeZones(pod("q", on("a"), isDB, inNamespace("other"))), pod("p", near(db)), want(fit.PodAffinity)},
		{"unless the term names it", threeZones(pod("q", on("a"), isDB, inNamespace("other"))), pod("p", near(inNamespaces(db, "other"))), fits()},
		{"or selects it", threeZones(team("other", "red"), pod("q", on("a"), isDB, inNamespace("other"))), pod("p", near(ofTeam(db, "red"))), fits()},
		{"a namespace with other labels is not selected", threeZones(team("other", "blue"), pod("q", on("a"), isDB, inNamespace("other"))), pod("p", near(ofTeam(db, "red"))), want(fit.PodAffinity)},
		{"an empty selector selects all namespaces", threeZones(pod("q", on("a"), isDB, inNamespace("other"))), pod("p", near(everywhere(db))), fits()},
		{"the first of its kind may go anywhere", threeZones(), pod("p", near(web)), fits()},
		{"but not where the topology is missing", nodes(node("a")), pod("p", near(web)), want(fit.PodAffinity)},
		{"the second has to follow", threeZones(pod("q", on("b"))), pod("p", near(web)), want(fit.PodAffinity)},
		{"the last of its kind is the first again", threeZones(pod("p", on("b"))), pod("p", on("b"), near(web)), fits()},
		{"one pod has to match all terms", threeZones(pod("q", on("a"), isDB), pod("r", on("a"))), pod("p", near(web), near(db)), want(fit.PodAffinity)},
		{"apart from a pod in the zone", threeZones(pod("q", on("a"), isDB)), pod("p", apart(db)), want(fit.PodAntiAffinity)},
		{"apart from one in another zone", threeZones(pod("q", on("b"), isDB)), pod("p", apart(db)), fits()},
		{"where the topology is missing nothing is near", nodes(node("a"), pod("q", on("a"), isDB)), pod("p", apart(db)), fits()},
		{"apart from itself only", threeZones(pod("p", on("a"))), pod("p", on("a"), apart(web)), fits()},
		{"pods of the same name in other namespaces are others", threeZones(pod("q", on("a"), func(p *corev1.Pod) { p.Name, p.Namespace = "p", "other" })), pod("p", apart(everywhere(web))), want(fit.PodAntiAffinity)},
		{"a pod that is there does not want it near", threeZones(pod("q", on("a"), isDB, apart(web))), pod("p"), want(fit.ExistingAntiAffinity)},
		{"a terminating one neither", threeZones(pod("q", on("a"), isDB, apart(web), terminating)), pod("p"), want(fit.ExistingAntiAffinity)},
		{"one in another zone does not mind", threeZones(pod("q", on("b"), isDB, apart(web))), pod("p"), fits()},
		{"one in another namespace does not mean it", threeZones(pod("q", on("a"), isDB, apart(web), inNamespace("other"))), pod("p"), fits()},
		{"unless it selects the namespace", threeZones(team("shop", "red"), pod("q", on("a"), isDB, apart(ofTeam(web, "red")), inNamespace("other"))), pod("p"), want(fit.ExistingAntiAffinity)},
		{"apart from its revision, in a file", threeZones(pod("q", on("a"), first)), pod("p", first, apart(sameRevision(web))), want(fit.PodAntiAffinity)},
		{"not from another revision, in a file", threeZones(pod("q", on("a"), second)), pod("p", first, apart(sameRevision(web))), fits()},
		{"not from its own revision, in a file", threeZones(pod("q", on("a"), first)), pod("p", first, apart(otherRevision(web))), fits()},
		{"apart from another revision, in a file", threeZones(pod("q", on("a"), second)), pod("p", first, apart(otherRevision(web))), want(fit.PodAntiAffinity)},
		{"near its revision, in a file", threeZones(pod("q", on("a"), second, isDB)), pod("p", first, near(sameRevision(db))), want(fit.PodAffinity)},
		{"without the label all revisions count", threeZones(pod("q", on("a"), second)), pod("p", apart(sameRevision(web))), want(fit.PodAntiAffinity)},
		{
			"the API server has merged the label that the pod had then", threeZones(pod("q", on("a"), second)),
			pod("p", first, apart(merged(sameRevision(web), metav1.LabelSelectorOpIn, "2"))), want(fit.PodAntiAffinity),
		},
		{"a term that is there, in a file", threeZones(pod("q", on("a"), first, apart(sameRevision(web)))), pod("p", second), fits()},
		{"the term of the pod itself is gone", threeZones(pod("p", on("a"), apart(web))), pod("p", on("a"), apart(web)), fits()},
	})
}

// The pods are in shop and other. Both have the label team, so a selector for namespaces without it selects neither by the API.
func TestMissingNamespaceLabel(t *testing.T) {
	team := func(name string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": "red"}}}
	}
	without := func(of corev1.PodAffinityTerm, label string) corev1.PodAffinityTerm {
		of.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: label, Operator: metav1.LabelSelectorOpDoesNotExist},
		}}
		return of
	}
	db := term(zone, "db")
	objects := func(change podChange) []any {
		return threeZones(team("shop"), team("other"), pod("q", on("a"), podLabel("app", "db"), inNamespace("other"), change))
	}
	same := func(*corev1.Pod) {}
	attracts, repels := verdict(fit.PodAffinity, zone), verdict(fit.PodAntiAffinity, zone)
	for _, test := range []struct {
		name         string
		cluster      []any
		pod          *corev1.Pod
		until36, now fit.Verdict
	}{
		{"near", objects(same), pod("p", near(without(db, "team"))), fits(), attracts},
		{"apart", objects(same), pod("p", apart(without(db, "team"))), repels, fits()},
		{"near_with_another_label", objects(same), pod("p", near(without(db, "region"))), fits(), fits()},
		{"apart_with_another_label", objects(same), pod("p", apart(without(db, "region"))), repels, repels},
		{"near_itself", threeZones(team("shop")), pod("p", near(without(term(zone, "web"), "team"))), fits(), attracts},
		{
			"near_in_an_unknown_namespace", threeZones(pod("q", on("a"), podLabel("app", "db"))), pod("p", near(without(db, "team"))),
			fits(), attracts,
		},
		{"a_pod_that_is_there", objects(apart(without(term(zone, "web"), "team"))), pod("p"), fits(), fits()},
	} {
		for minor, want := range map[int]fit.Verdict{35: test.until36, 36: test.until36, 37: test.now, 38: test.now, 0: test.now} {
			t.Run(fmt.Sprintf("%s/%d", test.name, minor), func(t *testing.T) {
				c := cluster(test.cluster...)
				c.MinorVersion = minor
				if got := c.Ask(test.pod).On("a"); got != want {
					t.Errorf("got %+v, want %+v", got, want)
				}
			})
		}
	}
}

func TestReservedCapacity(t *testing.T) {
	fill := requests("cpu", "3")
	moving := pod("moving", on("b"), fill)
	c := cluster(threeZones(moving)...)
	p := pod("p", requests("cpu", "2"))
	check := func(step string, of *corev1.Pod, want fit.Verdict) {
		t.Helper()
		if got := c.Ask(of).On("a"); got != want {
			t.Errorf("%s: got %+v, want %+v", step, got, want)
		}
	}
	check("nothing is reserved", p, fits())
	c.Reserve(moving, "a")
	check("the capacity is reserved", p, verdict(fit.Resource, "cpu"))
	check("to the moving pod itself", moving, fits())
	check("a small pod fits beside it", pod("small", requests("cpu", "1")), fits())
	check("a pod with affinity to it must wait", pod("friend", podLabel("app", "db"), near(term(zone, "web"))), verdict(fit.PodAffinity, zone))
	check("a pod with anti-affinity to it does not fit", pod("foe", apart(term(hostname, "web"))), verdict(fit.PodAntiAffinity, hostname))
	c.Release("moving")
	check("the reservation is over", p, fits())
	c.Reserve(moving, "gone")
	check("a reservation on a node that is gone holds nothing", p, fits())
}

// A moved pod stays on its node until it is gone, also if its replacement comes to the same node.
func TestReservationOnOwnNode(t *testing.T) {
	moving := pod("moving", on("a"), requests("cpu", "1"))
	for _, c := range []struct {
		name     string
		capacity []string
		want     fit.Verdict
		slots    int
	}{
		{"both_take_a_slot", []string{"pods", "2"}, verdict(fit.PodCount, ""), 0},
		{"both_take_their_requests", []string{"cpu", "2"}, verdict(fit.Resource, "cpu"), 0},
		{"the_rest_is_free", []string{"cpu", "4", "pods", "3"}, fits(), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			cluster := cluster(node("a", allocatable(c.capacity...)), moving)
			cluster.Reserve(moving, "a")
			q := cluster.Ask(pod("p", requests("cpu", "1")))
			if got, slots := q.On("a"), q.Slots("a", 10); got != c.want || slots != c.slots {
				t.Errorf("got %+v, %d slots, want %+v, %d slots", got, slots, c.want, c.slots)
			}
		})
	}
}

func TestSpreadCountsReservations(t *testing.T) {
	c := cluster(threeZones()...)
	p := pod("p", spread(zone))
	c.Reserve(pod("moving", on("b")), "a")
	if got, want := c.Ask(p).On("a"), verdict(fit.TopologySpread, zone); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestNominatedRoom(t *testing.T) {
	nominated := func(priority int32) *corev1.Pod {
		return pod("urgent", requests("cpu", "3"), apart(term(hostname, "db")), func(p *corev1.Pod) {
			p.Spec.Priority, p.Status.NominatedNodeName = &priority, "a"
		})
	}
	asks := []ask{
		{"a more urgent pod goes first", threeZones(nominated(1)), pod("p", requests("cpu", "2")), verdict(fit.Resource, "cpu")},
		{"one of the same priority too", threeZones(nominated(0)), pod("p", requests("cpu", "2")), verdict(fit.Resource, "cpu")},
		{"a less urgent one does not", threeZones(nominated(-1)), pod("p", requests("cpu", "2")), fits()},
		{
			"the anti-affinity of a nominated pod is overlooked, as by the scheduler",
			threeZones(nominated(1), pod("q", on("b"))), pod("p", podLabel("app", "db")), fits(),
		},
		{
			"but not for a pod with its own affinities",
			threeZones(nominated(1)), pod("p", podLabel("app", "db"), apart(term(hostname, "none"))), verdict(fit.ExistingAntiAffinity, hostname),
		},
		{
			"a selector of everything counts nominated pods, as in the scheduler", threeZones(nominated(1)),
			pod("p", spread(zone, func(c *corev1.TopologySpreadConstraint) { c.LabelSelector = &metav1.LabelSelector{} })),
			verdict(fit.TopologySpread, zone),
		},
		{"the nominated pod itself fits", threeZones(nominated(1)), nominated(1), fits()},
	}
	run(t, asks)
}
