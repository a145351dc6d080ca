package scope

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/test/scopetest"
)

// crowd fills an index with groups of some pods. All pods have the same requirements and run on one node.
func crowd(ix index, groups, pods int) index {
	for i := range 10 {
		ix.setNode(nil, node(fmt.Sprint("n", i), fmt.Sprint("zone-", i%3)))
	}
	for i := range groups {
		app := fmt.Sprint("app-", i)
		for k := range pods {
			ix.add(member{node: node("n0", "zone-0"), pod: replica(fmt.Sprint(app, "-", k), func(p *corev1.Pod) {
				p.Namespace, p.UID, p.Labels = app, types.UID(p.Name), map[string]string{"app": app}
				p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: app}}
				p.Spec.TopologySpreadConstraints[0].LabelSelector = &metav1.LabelSelector{MatchLabels: p.Labels}
			})})
		}
	}
	return ix
}

// tolerated returns the node n1 with a taint that all pods tolerate.
func tolerated() *corev1.Node {
	n := node("n1", "zone-1")
	n.Spec.Taints = []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectPreferNoSchedule}}
	return n
}

// growsAtMost compares the times for two numbers of groups. One fast run of many groups is enough:
// load on the machine can only slow a run down.
func growsAtMost(t *testing.T, times time.Duration, took func(groups int) time.Duration, few, many int) {
	t.Helper()
	short, long := took(few), took(many)
	for try := 0; long > times*short && try < 50; try++ {
		long = min(long, took(many))
	}
	if long > times*short {
		t.Errorf("%v with %d groups and %v with %d: want at most %d times as long", short, few, long, many, times)
	}
}

// The cost of a node change must not grow with the number of groups that it does not affect.
func TestNodeChange(t *testing.T) {
	for _, c := range []struct {
		name string
		make func() index
	}{
		{"of_spread_groups", func() index { return newSpreads((&scopetest.Args{}).Constraints) }},
		{"of_workloads", func() index { return newWorkloads(false) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			took := func(groups int) time.Duration {
				ix := crowd(c.make(), groups, 2)
				if got := len(ix.keys()); got != groups {
					t.Fatalf("%d groups, want %d", got, groups)
				}
				var all []time.Duration
				for range 20 {
					began := time.Now()
					for range 50 {
						if got := append(ix.setNode(node("n1", "zone-1"), tolerated()), ix.setNode(tolerated(), node("n1", "zone-1"))...); got != nil {
							t.Fatalf("an irrelevant change returns %d groups", len(got))
						}
					}
					all = append(all, time.Since(began))
				}
				return slices.Min(all)
			}
			growsAtMost(t, 10, took, 100, 5000)
			ix := crowd(c.make(), 100, 2)
			if got := len(ix.setNode(node("n1", "zone-1"), nil)); got != 100 {
				t.Errorf("a node that goes names %d groups, want all 100", got)
			}
		})
	}
}

// A NoSchedule taint affects all groups with the requirement. It affects only workloads that have duplicates.
func TestNodeTaint(t *testing.T) {
	plain, tainted := node("n1", "zone-1"), tolerated()
	tainted.Spec.Taints[0].Effect = corev1.TaintEffectNoSchedule
	fastest := func(f func()) time.Duration {
		var all []time.Duration
		for range 10 {
			began := time.Now()
			f()
			all = append(all, time.Since(began))
		}
		return slices.Min(all)
	}
	t.Run("costs_nothing_for_workloads_without_duplicates", func(t *testing.T) {
		took := func(groups int) time.Duration {
			ix := crowd(newWorkloads(false), groups, 1)
			return fastest(func() {
				for range 50 {
					if got := append(ix.setNode(plain, tainted), ix.setNode(tainted, plain)...); got != nil {
						t.Fatalf("it names %d groups", len(got))
					}
				}
			})
		}
		growsAtMost(t, 10, took, 100, 5000)
	})
	t.Run("costs_a_share_for_each_workload_with_duplicates", func(t *testing.T) {
		took := func(groups int) time.Duration {
			compiled, err := Compile(scopetest.GroupPolicy())
			if err != nil {
				t.Fatal(err)
			}
			g := NewBuilder(emptyCache(t), compiled).groups
			crowd(g.indexes[0].index, groups, 2)
			g.setNode("n1", plain)
			return fastest(func() {
				if got := len(g.setNode("n1", tainted)[g.indexes[0].strategy]); got != groups {
					t.Fatalf("it names %d groups, want %d", got, groups)
				}
				g.setNode("n1", plain)
			})
		}
		growsAtMost(t, 100, took, 500, 10000) // the square of their number would be 400 times as long
	})
}
