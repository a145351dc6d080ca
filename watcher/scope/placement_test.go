package scope

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/scopetest"
)

// crowd fills an index with groups of some pods. All pods have the same requirements and run on one node.
func crowd(ix index, groups, pods int) index {
	anyZone := []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpExists}}
	terms := &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: anyZone}}}
	for i := range 10 {
		ix.setNode(nil, node(fmt.Sprint("n", i), fmt.Sprint("zone-", i%3)))
	}
	for i := range groups {
		app := fmt.Sprint("app-", i)
		for k := range pods {
			ix.add(member{node: node("n0", "zone-0"), pod: replica(fmt.Sprint(app, "-", k), func(p *corev1.Pod) {
				p.Namespace, p.UID, p.Labels = app, types.UID(p.Name), map[string]string{"app": app}
				p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: app}}
				p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
				p.Spec.TopologySpreadConstraints[0].LabelSelector = &metav1.LabelSelector{MatchLabels: p.Labels}
			})})
		}
	}
	return ix
}

// untolerated returns the node n1 with a taint that no pod tolerates.
func untolerated() *corev1.Node {
	n := tolerated()
	n.Spec.Taints[0].Effect = corev1.TaintEffectNoSchedule
	return n
}

// tolerated returns the node n1 with a taint that all pods tolerate.
func tolerated() *corev1.Node {
	n := node("n1", "zone-1")
	n.Spec.Taints = []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectPreferNoSchedule}}
	return n
}

// A node change that no pod notices affects no group. BenchmarkNodeChange shows its time.
func TestNodeChange(t *testing.T) {
	for _, c := range indexes {
		t.Run(c.name, func(t *testing.T) {
			ix := crowd(c.make(), 100, 2)
			got := []int{
				len(ix.keys()),
				len(ix.setNode(node("n1", "zone-1"), tolerated())), len(ix.setNode(tolerated(), node("n1", "zone-1"))),
				len(ix.setNode(node("n1", "zone-1"), nil)),
			}
			expect.Equal(t, "groups in all, and those affected by a tolerated taint, its end, and the end of the node", got, []int{100, 0, 0, 100})
		})
	}
}

// The check of a node against the affinity of a pod allocates memory, so the allocations count the checks.
func TestNodeChangeCost(t *testing.T) {
	plain, changed := node("n1", "zone-1"), tolerated()
	for _, c := range indexes {
		t.Run(c.name, func(t *testing.T) {
			cost := func(groups int) float64 {
				ix := crowd(c.make(), groups, 2)
				return testing.AllocsPerRun(10, func() { ix.setNode(plain, changed); ix.setNode(changed, plain) })
			}
			if few, many := cost(500), cost(10000); few == 0 || few != many {
				t.Errorf("got %v allocations with 500 groups and %v with 10,000, want the same number above 0", few, many)
			}
		})
	}
}

// indexes have groups that one node change can affect all at once.
var indexes = []struct {
	name string
	make func() index
}{
	{"of_spread_groups", func() index {
		return newSpreads((&scopetest.Args{}).Constraints, func(*corev1.Node) bool { return true })
	}},
	{"of_workloads", func() index { return newWorkloads(false) }},
}

// A NoSchedule taint affects all groups with the requirement. It affects only workloads that have duplicates.
func TestNodeTaint(t *testing.T) {
	plain, tainted := node("n1", "zone-1"), untolerated()
	for _, c := range []struct {
		name       string
		pods, want int
	}{
		{"workloads_without_duplicates", 1, 0},
		{"workloads_with_duplicates", 2, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			ix := crowd(newWorkloads(false), 100, c.pods)
			got := []int{len(ix.setNode(plain, tainted)), len(ix.setNode(tainted, plain))}
			expect.Equal(t, "workloads affected by the taint and by its end", got, []int{c.want, c.want})
		})
	}
}

// BenchmarkNodeChange shows how the cost of a node change grows with the number of groups. It must not grow if the change
// affects none of them, and not faster than their number if it affects all.
func BenchmarkNodeChange(b *testing.B) {
	change := func(ix index, before, after *corev1.Node) func() {
		return func() { ix.setNode(before, after); ix.setNode(after, before) }
	}
	plain := node("n1", "zone-1")
	for _, c := range []struct {
		name string
		make func(groups int) func()
	}{
		{"that_no_spread_group_notices", func(n int) func() { return change(crowd(indexes[0].make(), n, 2), plain, tolerated()) }},
		{"that_no_workload_notices", func(n int) func() { return change(crowd(indexes[1].make(), n, 2), plain, tolerated()) }},
		{"of_workloads_without_duplicates", func(n int) func() { return change(crowd(newWorkloads(false), n, 1), plain, untolerated()) }},
		{"of_workloads_with_duplicates", func(n int) func() {
			compiled, err := Compile(scopetest.GroupPolicy())
			expect.Must(b, err)
			g := NewBuilder(emptyCache(b), compiled).groups
			crowd(g.indexes[0].index, n, 2)
			g.setNode("n1", plain)
			return func() { g.setNode("n1", untolerated()); g.setNode("n1", plain) }
		}},
	} {
		for _, groups := range []int{500, 10000} {
			b.Run(fmt.Sprint(c.name, "/groups=", groups), func(b *testing.B) {
				f := c.make(groups)
				b.ReportAllocs()
				for b.Loop() {
					f()
				}
			})
		}
	}
}
