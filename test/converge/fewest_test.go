package converge

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/actuator"
	"github.com/rehome-dev/rehome/fit"
	"github.com/rehome-dev/rehome/fit/score"
	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/simulate"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

const (
	// searched is how many worlds are searched for each strategy.
	searched = 500
	// mostSearchedPods is how many pods such a world has at most.
	mostSearchedPods = 12
)

// TestFewestMoves compares the moves of a strategy with every set of fewer moves, in every order. It needs no control plane: the
// replacements go where the scheduler is predicted to place them. A solution is a set of moves that ends all violations. No
// solution may have fewer moves than the strategy makes.
//
// If no set of moves can end all violations, the test compares with sets that leave as few. Then the order of the moves decides
// which replacements find room: cheap pods first, and not always the pods with which fewer moves leave as few violations. In at
// most one world of a hundred, fewer moves would do.
//
// A function decides about one scope: the pods of one topology domain, or the pods with the same spread constraints. It does not
// rely on the moves of another scope, which a budget or a limit can hold up. If two scopes have the same pods, a solution can have
// fewer moves than the two together. The test counts these worlds too.
func TestFewestMoves(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("repeat with: -args -seed %d", *seed)
	for _, c := range []struct {
		strategy   string
		violations func(*search) int
		moves      func(*search, int) bool
		// crowded: replacements compete for room, and one of them can help more than another.
		crowded bool
		// shared reports whether a pod is in two scopes. nil means none is.
		shared func(*search) bool
	}{
		{duplicates, (*search).duplicates, (*search).replicated, true, nil},
		{antiAffinity, (*search).repelled, (*search).isRepelled, true, (*search).repelledTwice},
		{taints, (*search).untolerated, (*search).evadesTaint, false, nil},
		{spread, (*search).uneven, (*search).isSpread, false, (*search).countedTwice},
	} {
		t.Run(c.strategy, func(t *testing.T) {
			at := slices.IndexFunc(functions.All(), func(f functions.Function) bool { return f.Strategy.Name == c.strategy })
			moving, ended, solutions, smaller := 0, 0, 0, 0
			for found, number := 0, 0; found < searched; number++ {
				w := random(functions.All()[at].Strategy, *seed, number)
				if !w.searchable() {
					continue
				}
				if found++; *only >= 0 && *only != number {
					continue
				}
				s := newSearch(t, w, c.violations)
				moves := s.decide(t)
				if len(moves) == 0 {
					continue
				}
				moving++
				left := s.predicted(moves)
				if left == 0 {
					ended++
				}
				if left < 0 {
					t.Errorf("world %d: not all replacements have another node\n%s%s", number, w, s.describe(moves))
					continue
				}
				shared := c.shared != nil && c.shared(s)
				trouble, allowed := s.smaller(moves, 0, c.moves), shared
				if trouble != "" {
					solutions++
				} else if left > 0 {
					trouble, allowed = s.smaller(moves, left, c.moves), shared || c.crowded
				}
				if trouble == "" {
					continue
				}
				smaller++
				if !allowed || *only >= 0 {
					t.Errorf("world %d: %s\n%s%s", number, trouble, w, s.describe(moves))
				} else {
					t.Logf("world %d", number)
				}
			}
			t.Logf("%d of %d worlds have moves, %d of them end without a violation; %d have a solution with fewer moves, "+
				"and in %d fewer moves leave as few violations", moving, searched, ended, solutions, smaller)
			if *only < 0 && moving < searched/20 {
				t.Errorf("only %d of %d worlds have moves: the test tests too little", moving, searched)
			}
			if smaller > searched/100 {
				t.Errorf("fewer moves would do in %d of %d worlds, want at most 1 %%", smaller, searched)
			}
		})
	}
}

// searchable reports whether a world is small enough, and its moves do not depend on where other pods go.
func (w *world) searchable() bool {
	pods := 0
	for _, l := range w.workloads {
		spec := &l.template.Spec
		if len(spec.TopologySpreadConstraints) > 0 && w.strategy.Name != spread || spec.Affinity != nil && spec.Affinity.PodAffinity != nil {
			return false
		}
		pods += len(l.pods)
	}
	return len(w.nodes) <= 6 && pods <= mostSearchedPods && w.args == "{}"
}

// search tries moves in one world.
type search struct {
	w       *world
	nodes   []corev1.Node
	pods    []*corev1.Pod
	objects []metav1.Object // with the nodes and pods
	fit     *fit.Cluster
	// at is the node of each pod now. Empty means it is on its way.
	at []string
	// reasons are why pods leave, by their names.
	reasons map[string]string
	// violations counts how much is wrong.
	violations func(*search) int
}

func newSearch(t *testing.T, w *world, violations func(*search) int) *search {
	s := &search{w: w, nodes: w.nodes, fit: fit.New(), violations: violations, reasons: map[string]string{}}
	for _, l := range w.workloads {
		l.volume = ""
	}
	s.objects = w.objects(t, time.Now())
	for _, o := range s.objects {
		s.fit.Set(o)
		if p, is := o.(*corev1.Pod); is {
			s.pods, s.at = append(s.pods, p), append(s.at, p.Spec.NodeName)
		}
	}
	return s
}

// decide returns the indexes of the pods that the policy moves.
func (s *search) decide(t *testing.T) []int {
	t.Helper()
	p, err := s.w.policy()
	expect.Must(t, err)
	var moves []int
	evict := func(_ context.Context, intents []actuator.Intent) (verdicts []schemas.Verdict, err error) {
		for _, i := range intents {
			s.reasons[i.Pod.Name] = i.Reason
			moves = append(moves, slices.IndexFunc(s.pods, func(p *corev1.Pod) bool { return p.UID == i.Pod.UID }))
			verdicts = append(verdicts, i.Verdict(schemas.Evicted, schemas.ReasonEvictionAccepted, ""))
		}
		return verdicts, nil
	}
	err = simulate.Run(t.Context(), simulate.Config{Policy: p, Functions: functions.All(), Now: time.Now, Carry: evict}, s.objects,
		func(verdicts []schemas.Verdict) error {
			for _, v := range verdicts {
				if *only >= 0 && v.Outcome != schemas.Evicted {
					t.Logf("%s on %s: %s %s (%s)", v.Intent.Pod.Name, v.Intent.Node, v.Outcome, v.Message, v.Intent.Reason)
				}
			}
			return nil
		})
	expect.Must(t, err)
	return moves
}

func (s *search) describe(moves []int) string {
	var all []string
	for _, i := range moves {
		all = append(all, strings.TrimSpace(s.pods[i].Name+" leaves "+s.pods[i].Spec.NodeName+" "+s.reasons[s.pods[i].Name]))
	}
	return strings.Join(all, "\n")
}

// smaller describes a set of fewer moves that leaves as few violations. Empty means there is none. It has only pods
// that the strategy can move, which movable reports.
func (s *search) smaller(moves []int, left int, movable func(*search, int) bool) string {
	var candidates []int
	for i := range s.pods {
		if s.replicated(i) && movable(s, i) {
			candidates = append(candidates, i)
		}
	}
	tried := map[string]bool{} // pods of one workload on one node are alike
	for fewer := range len(moves) {
		for set := range subsets(candidates, fewer) {
			kinds := s.kinds(set)
			if tried[kinds] {
				continue
			}
			tried[kinds] = true
			reaches := func(found int) bool { return found >= 0 && found <= left }
			if !reaches(s.after(set)) {
				continue
			}
			for order := range orders(set) {
				if found := s.predicted(order); reaches(found) {
					return fmt.Sprintf("%d moves leave %d violations, and %d moves leave %d:\n%s\ninstead of", len(moves), left, fewer, found,
						s.describe(order))
				}
			}
		}
	}
	return ""
}

// predicted returns the fewest violations after these moves in this order, if each replacement goes to a node that the scheduler
// is predicted to choose. -1: one replacement has no node, or returns.
func (s *search) predicted(moves []int) int {
	if len(moves) == 0 {
		return s.violations(s)
	}
	first, best := moves[0], -1
	pod := s.pods[first]
	for _, to := range score.Predict(s.fit.Ask(pod), score.Default(), nil) {
		if to.Name == pod.Spec.NodeName {
			return -1
		}
		replacement := pod.DeepCopy()
		replacement.Spec.NodeName, s.at[first] = to.Name, to.Name
		s.fit.Set(replacement)
		if found := s.predicted(moves[1:]); found >= 0 && (best < 0 || found < best) {
			best = found
		}
		s.fit.Set(pod)
		s.at[first] = pod.Spec.NodeName
	}
	return best
}

// orders yields all orders of a list.
func orders(list []int) func(yield func([]int) bool) {
	return func(yield func([]int) bool) {
		list := slices.Clone(list)
		var choose func(from int) bool
		choose = func(from int) bool {
			if from == len(list) {
				return yield(slices.Clone(list))
			}
			for i := from; i < len(list); i++ {
				list[from], list[i] = list[i], list[from]
				if !choose(from + 1) {
					return false
				}
				list[from], list[i] = list[i], list[from]
			}
			return true
		}
		choose(0)
	}
}

// kinds names the workloads and nodes of pods.
func (s *search) kinds(pods []int) string {
	var all []string
	for _, i := range pods {
		all = append(all, s.pods[i].OwnerReferences[0].Name+"@"+s.pods[i].Spec.NodeName)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// after returns the fewest violations that are possible after these moves, -1 if not all replacements have a place.
func (s *search) after(moves []int) int {
	for _, i := range moves {
		s.fit.Remove(s.pods[i])
		s.at[i] = ""
	}
	best := s.place(moves)
	for _, i := range moves {
		s.fit.Set(s.pods[i])
		s.at[i] = s.pods[i].Spec.NodeName
	}
	return best
}

// place tries all nodes for the first replacement, and for each of them all nodes for the others.
func (s *search) place(moves []int) int {
	if len(moves) == 0 {
		return s.violations(s)
	}
	first := moves[0]
	replacement := s.pods[first].DeepCopy()
	replacement.Spec.NodeName = ""
	question, best := s.fit.Ask(replacement), -1
	var fits []string
	for i := range s.nodes {
		if name := s.nodes[i].Name; name != s.pods[first].Spec.NodeName && question.On(name).OK {
			fits = append(fits, name)
		}
	}
	for _, node := range fits {
		replacement.Spec.NodeName, s.at[first] = node, node
		s.fit.Set(replacement)
		if found := s.place(moves[1:]); found >= 0 && (best < 0 || found < best) {
			best = found
		}
		s.fit.Remove(replacement)
		if best == 0 {
			break
		}
	}
	s.at[first] = ""
	return best
}

// subsets yields all subsets of this size.
func subsets(of []int, size int) func(yield func([]int) bool) {
	return func(yield func([]int) bool) {
		chosen := make([]int, 0, size)
		var choose func(from int) bool
		choose = func(from int) bool {
			if len(chosen) == size {
				return yield(chosen)
			}
			for i := from; i < len(of); i++ {
				chosen = append(chosen, of[i])
				if !choose(i + 1) {
					return false
				}
				chosen = chosen[:len(chosen)-1]
			}
			return true
		}
		choose(0)
	}
}
