package scope

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// crowd fills an index with groups of two pods, all of which ask the same of nodes and crowd one of them.
func crowd(ix index, groups int) index {
	for i := range 10 {
		ix.setNode(nil, node(fmt.Sprint("n", i), fmt.Sprint("zone-", i%3)))
	}
	for i := range groups {
		app := fmt.Sprint("app-", i)
		for k := range 2 {
			ix.add(member{node: node("n0", "zone-0"), pod: replica(fmt.Sprint(app, "-", k), func(p *corev1.Pod) {
				p.Namespace, p.UID, p.Labels = app, types.UID(p.Name), map[string]string{"app": app}
				p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: app}}
				p.Spec.TopologySpreadConstraints[0].LabelSelector = &metav1.LabelSelector{MatchLabels: p.Labels}
			})})
		}
	}
	return ix
}

// tolerated is the node n1 with a taint that keeps no pod away.
func tolerated() *corev1.Node {
	n := node("n1", "zone-1")
	n.Spec.Taints = []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectPreferNoSchedule}}
	return n
}

// TestNodeChange: the cost of a change of a node does not grow with the number of groups that it does not concern.
func TestNodeChange(t *testing.T) {
	for _, c := range []struct {
		name string
		make func() index
	}{
		{"of_spread_groups", func() index { return newSpreads(constraints) }},
		{"of_workloads", func() index { return newWorkloads(false) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			took := func(groups int) time.Duration {
				ix := crowd(c.make(), groups)
				if got := len(ix.keys()); got != groups {
					t.Fatalf("%d groups, want %d", got, groups)
				}
				var all []time.Duration
				for range 20 {
					began := time.Now()
					for range 50 {
						if got := append(ix.setNode(node("n1", "zone-1"), tolerated()), ix.setNode(tolerated(), node("n1", "zone-1"))...); got != nil {
							t.Fatalf("a change that concerns nobody names %d groups", len(got))
						}
					}
					all = append(all, time.Since(began))
				}
				return slices.Min(all)
			}
			// One fast run is enough: other programs slow runs down, and nothing speeds a scan of all groups up.
			few, many := took(100), took(5000)
			for range 50 {
				if many > 10*few {
					many = min(many, took(5000))
				}
			}
			if many > 10*few {
				t.Errorf("%v with 100 groups and %v with 5,000: it grows with their number", few, many)
			}
			ix := crowd(c.make(), 100)
			if got := len(ix.setNode(node("n1", "zone-1"), nil)); got != 100 {
				t.Errorf("a node that goes names %d groups, want all 100", got)
			}
		})
	}
}
