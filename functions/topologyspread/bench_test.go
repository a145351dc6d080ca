package topologyspread

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/schemas"
	test "github.com/rehome-dev/rehome/test/kit/functionstest"
)

// hosts returns 4,995 pods on 1,000 nodes. A third of the nodes are new and empty. Every pod fits on all nodes, or the pods of
// each node fit on a few.
func hosts(picky bool) schemas.SpreadScope {
	s := scope(constraint(1, over(corev1.LabelHostname)))
	name := func(i int) string { return fmt.Sprintf("node-%04d", i) }
	var empty []string
	for i := range 1000 {
		if i%3 == 0 {
			empty = append(empty, name(i))
		}
	}
	for i := range 1000 {
		d := schemas.Domain{Value: name(i), Eligible: true}
		if i%3 != 0 {
			for j := range 6 + i%3 {
				p := pod(fmt.Sprintf("api-%d-%d", i, j), empty, test.Priority(int32(j%3)))
				if picky {
					p.Fits = append(append([]string{}, empty[:j*10]...), empty[j*10+1:]...)
				}
				d.Pods = append(d.Pods, p)
			}
		}
		d.Count = len(d.Pods)
		s.Domains = append(s.Domains, d)
	}
	return roomy(s)
}

// zones returns 5,000 pods in three zones. The last zone was down for a while.
func zones() schemas.SpreadScope {
	return scope(constraint(1), full("eu-1a", pods("a", 2500, fits{"eu-1c"})), full("eu-1b", pods("b", 2500, fits{"eu-1c"})),
		holding("eu-1c", 0))
}

// both returns the pods of hosts, which also spread over three zones, a third of them empty.
func both() schemas.SpreadScope {
	s := hosts(false)
	s.Others = []schemas.OtherConstraint{{Constraint: constraint(1), Domains: []schemas.Domain{holding("a", 0), holding("b", 0), holding("c", 0)}}}
	for i := range s.Domains {
		d := &s.Domains[i]
		s.Places = append(s.Places, schemas.Place{i, i % 3})
		s.Others[0].Domains[i%3].Count += d.Count
		for j := range d.Pods {
			d.Pods[j].Place = i
		}
	}
	return s
}

func BenchmarkDecide(b *testing.B) {
	for _, c := range []struct {
		name  string
		args  Args
		scope schemas.SpreadScope
	}{
		{"hosts=1000/pods=5000", Args{}, hosts(false)},
		{"hosts=1000/pods=5000/picky", Args{}, hosts(true)},
		{"hosts=1000/pods=5000/anywhere", anywhere(), hosts(false)},
		{"zones=3/hosts=1000/pods=5000", Args{}, both()},
		{"zones=3/pods=5000", Args{}, zones()},
		{"zones=3/pods=5000/anywhere", anywhere(), zones()},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			moves := 0
			for b.Loop() {
				if moves = len(c.args.Decide(c.scope)); moves < 1000 {
					b.Fatalf("got %d intents, want at least 1000", moves)
				}
			}
			b.ReportMetric(float64(moves), "moves/op")
		})
	}
}
