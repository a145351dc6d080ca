package simulate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/simulate"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/fixtures"
)

// Objects for tests.
var (
	spreadOver = fixtures.Spread
	anyway     = fixtures.Anyway
)

const poolKey = "pool"

// spreadNode returns a ready node with room for ten pods, in a zone and a pool. Without a zone it has no label for it.
func spreadNode(name, zone, pool string, changes ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name, poolKey: pool}}}
	if zone != "" {
		n.Labels[corev1.LabelTopologyZone] = zone
	}
	n.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("10")}
	for _, change := range changes {
		change(n)
	}
	return n
}

func holds(pods string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Status.Allocatable[corev1.ResourcePods] = resource.MustParse(pods) }
}

// spreadPods returns n pods of the ReplicaSet web on a node.
func spreadPods(node string, n int, changes ...func(*corev1.Pod)) []*corev1.Pod {
	var pods []*corev1.Pod
	for i := range n {
		name := fmt.Sprintf("%s-%02d", node, i)
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: name, UID: types.UID(name), Labels: map[string]string{"app": "web"},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "web"}},
			},
			Spec:   corev1.PodSpec{NodeName: node},
			Status: corev1.PodStatus{Phase: corev1.PodRunning},
		}
		for _, change := range changes {
			change(p)
		}
		pods = append(pods, p)
	}
	return pods
}

func ofAll(c *corev1.TopologySpreadConstraint) { c.LabelSelector = &metav1.LabelSelector{} }

func selectingPool(pool string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{poolKey: pool} }
}

// spreadPolicy enables the topology spread with arguments.
func spreadPolicy(t *testing.T, args string) policy.Policy {
	t.Helper()
	return parse(t, "  - name: p\n    pluginConfig: [{name: RemovePodsViolatingTopologySpreadConstraint, args: "+args+"}]\n"+
		"    plugins:\n      balance: {enabled: [RemovePodsViolatingTopologySpreadConstraint]}\n")
}

// spreadRound returns the pods of one round as NAME OUTCOME, with the reason code of pods that are not evicted.
func spreadRound(t *testing.T, args string, nodes []*corev1.Node, pods ...[]*corev1.Pod) []string {
	t.Helper()
	var objects []metav1.Object
	for _, n := range nodes {
		objects = append(objects, n)
	}
	for _, p := range slices.Concat(pods...) {
		objects = append(objects, p)
	}
	var found []string
	for _, line := range round(t, simulate.Config{Policy: spreadPolicy(t, args)}, objects) {
		if words := strings.Fields(line); words[0] == "shop" {
			outcome := words[4]
			if outcome != "evicted" {
				outcome += " " + strings.Trim(words[5], ":")
			}
			found = append(found, words[1]+" "+outcome)
		}
	}
	return found
}

func evicted(names ...string) []string {
	for i := range names {
		names[i] += " evicted"
	}
	return names
}

func TestSpread(t *testing.T) {
	zone, pool, host := corev1.LabelTopologyZone, poolKey, corev1.LabelHostname
	three := []*corev1.Node{spreadNode("a", "a", "x"), spreadNode("b", "b", "x"), spreadNode("c", "c", "x")}
	both := `{constraints: [DoNotSchedule, ScheduleAnyway]}`
	system := func(p *corev1.Pod) { p.Spec.Priority = new(int32); *p.Spec.Priority = 2_000_000_000 }
	for _, c := range []struct {
		name  string
		args  string
		nodes []*corev1.Node
		pods  [][]*corev1.Pod
		want  []string
	}{
		{"three_zones_in_one_round", "{}", three,
			[][]*corev1.Pod{spreadPods("a", 7, spreadOver(zone)), spreadPods("b", 1, spreadOver(zone))},
			evicted("a-00", "a-01", "a-02", "a-03")},
		{"hosts_in_one_round", "{}", []*corev1.Node{
			spreadNode("a", "a", "x", holds("24")), spreadNode("b", "a", "x"), spreadNode("c", "a", "x"), spreadNode("d", "a", "x"),
			spreadNode("e", "a", "x"), spreadNode("f", "a", "x"),
		}, [][]*corev1.Pod{
			spreadPods("a", 24, spreadOver(host)), spreadPods("b", 1, spreadOver(host)), spreadPods("c", 2, spreadOver(host)),
			spreadPods("d", 3, spreadOver(host)), spreadPods("e", 4, spreadOver(host)),
		}, evicted("a-00", "a-01", "a-02", "a-03", "a-04", "a-05", "a-06", "a-07", "a-08", "a-09", "a-10", "a-11", "a-12", "a-13",
			"a-14", "a-15", "a-16", "a-17")},
		{"nodes_that_the_node_selector_excludes", both, []*corev1.Node{
			spreadNode("a", "a", "x"), spreadNode("b", "b", "x"), spreadNode("c", "a", "y"),
		}, [][]*corev1.Pod{
			spreadPods("a", 2, spreadOver(zone, anyway), selectingPool("x")), spreadPods("b", 2, spreadOver(zone, anyway), selectingPool("x")),
			spreadPods("c", 4, spreadOver(zone, anyway), selectingPool("x")),
		}, nil},
		{"two_constraints_with_one_place_for_two_pods", "{}", []*corev1.Node{
			spreadNode("a", "a", "y"), spreadNode("b", "a", "x"), spreadNode("c", "b", "x"),
		}, [][]*corev1.Pod{spreadPods("a", 3, spreadOver(zone), spreadOver(pool)), spreadPods("b", 1, spreadOver(zone), spreadOver(pool))},
			evicted("a-00", "b-00")},
		{"two_constraints_and_one_pod_that_stays", "{}", []*corev1.Node{
			spreadNode("a", "a", "y"), spreadNode("b", "a", "x"), spreadNode("c", "b", "x"),
		}, [][]*corev1.Pod{spreadPods("a", 3, spreadOver(zone), spreadOver(pool)), spreadPods("b", 1, spreadOver(zone), spreadOver(pool), system)},
			[]string{"a-00 evicted", "b-00 rejected Protected"}},
		{"two_constraints_in_one_move", "{}", []*corev1.Node{
			spreadNode("a", "a", "x"), spreadNode("b", "b", "y"), spreadNode("c", "b", "x"), spreadNode("d", "a", "y"),
		}, [][]*corev1.Pod{spreadPods("a", 3, spreadOver(zone), spreadOver(pool)), spreadPods("b", 1, spreadOver(zone), spreadOver(pool))},
			evicted("a-00")},
		{"a_selector_of_all_pods", "{}", three,
			[][]*corev1.Pod{spreadPods("a", 5, spreadOver(zone, ofAll)), spreadPods("b", 1, spreadOver(zone, ofAll))}, nil},
		{"a_selector_of_all_pods_anyway", both, three,
			[][]*corev1.Pod{spreadPods("a", 5, spreadOver(zone, ofAll, anyway)), spreadPods("b", 1, spreadOver(zone, ofAll, anyway))}, nil},
		{"protected_pods_are_rejected", "{}", three[:2],
			[][]*corev1.Pod{spreadPods("a", 4, spreadOver(zone), system)},
			[]string{"a-00 rejected Protected", "a-01 rejected Protected"}},
		{"pods_without_the_constraint_stay", "{}", three[:2],
			[][]*corev1.Pod{spreadPods("a", 4), spreadPods("b", 1, spreadOver(zone))}, nil},
		{"three_pods_for_one_slot", "{}", []*corev1.Node{spreadNode("a", "a", "x"), spreadNode("b", "b", "x", holds("1"))},
			[][]*corev1.Pod{spreadPods("a", 6, spreadOver(zone))}, evicted("a-00")},
	} {
		t.Run(c.name, func(t *testing.T) {
			expect.Equal(t, "outcomes", spreadRound(t, c.args, c.nodes, c.pods...), c.want)
		})
	}
}
