package duplicates

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/functions/candidate"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	test "github.com/rehome-dev/rehome/test/kit/functionstest"
	"github.com/rehome-dev/rehome/test/kit/randtest"
)

// A second version of the rules, without the optimizations of Decide.

// most returns the number of pods of each group, by image, that a node may keep; 0 means any number.
func most(s schemas.WorkloadScope) map[string]int {
	kept := map[string]int{}
	for _, image := range []string{"api:1", "api:2"} {
		replicas, first := 0, map[string]*schemas.ScopedPod{}
		var duplicates []*schemas.ScopedPod
		for i := range s.Pods {
			p := &s.Pods[i]
			if p.Pod.Spec.Containers[0].Image != image || !waitsOrMoves(p) {
				continue
			}
			replicas++
			if len(p.Protected) > 0 {
				continue
			}
			other := first[p.Pod.Spec.NodeName]
			switch {
			case other == nil:
				first[p.Pod.Spec.NodeName] = p
			case candidate.Compare(&p.Pod, &other.Pod) > 0:
				first[p.Pod.Spec.NodeName] = p
				duplicates = append(duplicates, other)
			default:
				duplicates = append(duplicates, p)
			}
		}
		if feasible := len(union(s.Nodes, duplicates)); feasible > 1 {
			for kept[image]*feasible < replicas {
				kept[image]++
			}
		}
	}
	return kept
}

func waitsOrMoves(p *schemas.ScopedPod) bool {
	return len(p.Protected) == 0 || len(p.Protected) == 1 && slices.Contains([]string{policy.TerminatingPods, policy.MinPodAgeRule, policy.NodeFitRule}, p.Protected[0].Rule)
}

// union returns the names of the nodes that could run the pods.
func union(nodes []schemas.NodeGroup, pods []*schemas.ScopedPod) map[string]bool {
	all := map[string]bool{}
	for _, p := range pods {
		var fitting []string
		for _, g := range nodes {
			for _, name := range g.Names {
				if fits(p, g, name) {
					fitting = append(fitting, name)
				}
			}
		}
		for _, name := range fitting {
			all[name] = all[name] || len(fitting) > 1
		}
	}
	for name, counts := range all {
		if !counts {
			delete(all, name)
		}
	}
	return all
}

// fits handles only the requirements of random scopes: a selector for a zone, an affinity to named nodes, and
// tolerations of gpu.
func fits(p *schemas.ScopedPod, g schemas.NodeGroup, name string) bool {
	if zone, asked := p.Pod.Spec.NodeSelector["zone"]; asked && zone != g.Labels["zone"] {
		return false
	}
	if a := p.Pod.Spec.Affinity; a != nil {
		named := false
		for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			named = named || term.MatchFields[0].Values[0] == name
		}
		if !named {
			return false
		}
	}
	return len(g.Taints) == 0 || len(p.Pod.Spec.Tolerations) > 0
}

// demandAtRandom returns random requirements of a pod on nodes.
func demandAtRandom(r *rand.Rand) test.PodOption {
	var options []test.PodOption
	if r.IntN(3) == 0 {
		options = append(options, test.Selecting("zone", fmt.Sprint("z", r.IntN(2))))
	}
	if r.IntN(6) == 0 {
		options = append(options, test.Requiring(test.Named(nodeAtRandom(r)), test.Named(nodeAtRandom(r))))
	}
	if r.IntN(2) == 0 {
		options = append(options, toleratesGPU())
	}
	return func(p *schemas.ScopedPod) {
		for _, o := range options {
			o(p)
		}
	}
}

func nodeAtRandom(r *rand.Rand) string { return fmt.Sprint("node-", r.IntN(8)) }

// atRandom returns a scope whose pods have different requirements on nodes, or all the same.
func atRandom(r *rand.Rand, different bool) schemas.WorkloadScope {
	var nodes []schemas.NodeGroup
	for i, end := 0, 3+r.IntN(6); i < end; {
		g := schemas.NodeGroup{Labels: map[string]string{"zone": fmt.Sprint("z", len(nodes)%2)}}
		if r.IntN(3) == 0 {
			g.Taints = []corev1.Taint{test.Taint("dedicated=gpu:NoSchedule")}
		}
		for ; i < end && (len(g.Names) == 0 || r.IntN(3) > 0); i++ {
			g.Names = append(g.Names, fmt.Sprint("node-", i))
		}
		nodes = append(nodes, g)
	}
	demand := demandAtRandom(r)
	var all pods
	for i := range r.IntN(30) {
		if different {
			demand = demandAtRandom(r)
		}
		p := test.Pod(fmt.Sprintf("p%02d", i), test.OwnedBy("ReplicaSet", "api"), test.On(fmt.Sprint("node-", r.IntN(3))),
			test.Images(fmt.Sprint("api:", 1+r.IntN(2))), demand)
		for _, change := range []test.PodOption{test.Priority(1), test.Priority(2), test.Quality(corev1.PodQOSBestEffort), test.ReluctantToMove()} {
			if r.IntN(4) == 0 {
				change(&p)
			}
		}
		if r.IntN(8) == 0 {
			[]test.PodOption{test.Terminating(), test.Protected(policy.MinPodAgeRule), test.Protected(policy.PodsWithPVC)}[r.IntN(3)](&p)
		}
		all = append(all, p)
	}
	return scope(nodes, all...)
}

func shuffled(r *rand.Rand, s schemas.WorkloadScope) schemas.WorkloadScope {
	s.Pods, s.Nodes = slices.Clone(s.Pods), slices.Clone(s.Nodes)
	r.Shuffle(len(s.Pods), func(i, j int) { s.Pods[i], s.Pods[j] = s.Pods[j], s.Pods[i] })
	r.Shuffle(len(s.Nodes), func(i, j int) { s.Nodes[i], s.Nodes[j] = s.Nodes[j], s.Nodes[i] })
	return s
}

// deepCopy serves to compare: Decide must not change its scope.
func deepCopy(s schemas.WorkloadScope) schemas.WorkloadScope {
	s.Pods, s.Nodes = slices.Clone(s.Pods), slices.Clone(s.Nodes)
	for i := range s.Pods {
		s.Pods[i].Pod = *s.Pods[i].Pod.DeepCopy()
	}
	return s
}

// pile is the pods of one group on one node.
type pile struct{ node, image string }

// piles returns the names of the movable pods of each pile, in the expected order of their moves.
func piles(s schemas.WorkloadScope) map[pile][]types.UID {
	sorted := slices.SortedFunc(slices.Values(s.Pods), func(x, y schemas.ScopedPod) int { return candidate.Compare(&x.Pod, &y.Pod) })
	all := map[pile][]types.UID{}
	for _, p := range sorted {
		if len(p.Protected) == 0 {
			at := pile{p.Pod.Spec.NodeName, p.Pod.Spec.Containers[0].Image}
			all[at] = append(all[at], p.Pod.UID)
		}
	}
	return all
}

func TestPodsAboveShare(t *testing.T) {
	r := randtest.New(t)
	moved, stayed := 0, 0
	for range 2000 {
		s := atRandom(r, r.IntN(2) == 0)
		before := deepCopy(s)
		got := Args{}.Decide(s)
		if again := (Args{}).Decide(shuffled(r, s)); !slices.Equal(again, got) {
			t.Fatalf("in another order:\n%+v\n%+v", again, got)
		}
		if !reflect.DeepEqual(s, before) {
			t.Fatal("the scope was changed")
		}
		want, share := map[types.UID]bool{}, most(s)
		for at, pods := range piles(s) {
			if leave := len(pods) - share[at.image]; share[at.image] > 0 && leave > 0 {
				for _, uid := range pods[:leave] {
					want[uid] = true
				}
			}
		}
		left := map[types.UID]bool{}
		for _, intent := range got {
			left[intent.Pod.UID] = true
		}
		if !reflect.DeepEqual(left, want) || len(got) != len(want) {
			t.Fatalf("scope %+v\nshare %v\ngot  %v\nwant %v", s, share, left, want)
		}
		moved += len(want)
		stayed += len(s.Pods) - len(want)
	}
	if moved < 1000 || stayed < 1000 {
		t.Errorf("%d pods moved, %d stayed: the test tests too little", moved, stayed)
	}
}

func TestStableDuringMoves(t *testing.T) {
	r := randtest.New(t)
	moved := 0
	for range 2000 {
		s := atRandom(r, true)
		open := map[types.UID]bool{}
		answer := Args{}.Decide(s)
		for _, intent := range answer {
			open[intent.Pod.UID] = true
		}
		for _, done := range answer {
			i := slices.IndexFunc(s.Pods, func(p schemas.ScopedPod) bool { return p.Pod.UID == done.Pod.UID })
			test.Terminating()(&s.Pods[i])
			delete(open, done.Pod.UID)
			moved++
			for _, next := range (Args{}).Decide(s) {
				if !open[next.Pod.UID] {
					t.Fatalf("once %s is being deleted, %s leaves too: scope %+v", done.Pod, next.Pod, s)
				}
			}
		}
	}
	if moved < 1000 {
		t.Errorf("%d pods moved: the test tests too little", moved)
	}
}

func TestStableAfterMoves(t *testing.T) {
	r := randtest.New(t)
	moved := 0
	for range 2000 {
		s := atRandom(r, false)
		for _, intent := range (Args{}).Decide(s) {
			i := slices.IndexFunc(s.Pods, func(p schemas.ScopedPod) bool { return p.Pod.UID == intent.Pod.UID })
			s.Pods[i].Pod.Spec.NodeName = emptiest(s, &s.Pods[i])
			s.Pods[i].Pod.UID += "-again"
			if r.IntN(2) == 0 {
				test.Protected(policy.MinPodAgeRule)(&s.Pods[i])
			}
			moved++
		}
		if got := (Args{}).Decide(s); len(got) > 0 {
			t.Fatalf("scope %+v\ngot %+v", s, got)
		}
	}
	if moved < 1000 {
		t.Errorf("%d pods moved: the test tests too little", moved)
	}
}

// emptiest returns the node with the fewest pods of the pod's group among the nodes that the pod fits.
func emptiest(s schemas.WorkloadScope, p *schemas.ScopedPod) string {
	best, least := "", len(s.Pods)+1
	for _, g := range s.Nodes {
		for _, name := range g.Names {
			there := 0
			for i := range s.Pods {
				o := &s.Pods[i]
				if o.Pod.Spec.NodeName == name && o.Pod.Spec.Containers[0].Image == p.Pod.Spec.Containers[0].Image && waitsOrMoves(o) {
					there++
				}
			}
			if fits(p, g, name) && there < least {
				best, least = name, there
			}
		}
	}
	return best
}
