package converge

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/fit"
	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/functions/candidate"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/simulate"
)

const (
	// searched is how many worlds are searched for each strategy.
	searched = 500
	// mostSearchedPods is how many pods such a world has at most.
	mostSearchedPods = 12
)

// TestFewestMoves compares the moves of a strategy with every set of fewer moves. It needs no control plane: it removes
// the pods of a set, and tries every combination of nodes on which the replacements fit. No set of fewer moves may lead to as few
// violations, and the moves of the strategy must have a place for all replacements.
func TestFewestMoves(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("repeat with: -args -seed %d", *seed)
	for _, c := range []struct {
		strategy   string
		violations func(*search) int
		moves      func(*search, int) bool
	}{
		{duplicates, (*search).duplicates, (*search).replicated},
		{antiAffinity, (*search).repelled, (*search).isRepelled},
		{taints, (*search).untolerated, (*search).evadesTaint},
	} {
		t.Run(c.strategy, func(t *testing.T) {
			at := slices.IndexFunc(functions.All(), func(f functions.Function) bool { return f.Strategy.Name == c.strategy })
			moving, best := 0, 0
			for found, number := 0, 0; found < searched; number++ {
				w := random(functions.All()[at].Strategy, *seed, number)
				if !w.searchable() {
					continue
				}
				found++
				if *only >= 0 && *only != number {
					continue
				}
				s := newSearch(w, c.violations)
				moves := s.decide(t)
				if len(moves) == 0 {
					continue
				}
				moving++
				left, trouble := s.compare(moves, c.moves)
				if trouble != "" {
					t.Errorf("world %d: %s\n%s%s", number, trouble, w, strings.Join(s.describe(moves), "\n"))
				}
				if left == 0 {
					best++
				}
			}
			t.Logf("%d of %d worlds have moves, %d of them end without a violation", moving, searched, best)
			if *only < 0 && moving < searched/20 {
				t.Errorf("only %d of %d worlds have moves: the test tests too little", moving, searched)
			}
		})
	}
}

// searchable reports whether the final state of a world does not depend on the order of its moves, and it is small enough.
func (w *world) searchable() bool {
	pods := 0
	for _, l := range w.workloads {
		spec := &l.template.Spec
		if len(spec.TopologySpreadConstraints) > 0 || spec.Affinity != nil && spec.Affinity.PodAffinity != nil {
			return false
		}
		pods += len(l.pods)
	}
	return len(w.nodes) <= 6 && pods <= mostSearchedPods && w.args == "{}"
}

// search tries moves in one world.
type search struct {
	w     *world
	nodes []corev1.Node
	pods  []*corev1.Pod
	fit   *fit.Cluster
	// at is the node of each pod now. Empty: it is on its way.
	at []string
	// reasons are why pods leave, by their names.
	reasons map[string]string
	// violations counts how much is wrong.
	violations func(*search) int
}

func newSearch(w *world, violations func(*search) int) *search {
	s := &search{w: w, nodes: w.nodes, fit: fit.New(), violations: violations, reasons: map[string]string{}}
	number := 0
	for _, l := range w.workloads {
		l.volume = ""
		for _, p := range l.pods {
			number++
			pod := &corev1.Pod{ObjectMeta: *l.template.ObjectMeta.DeepCopy(), Spec: *l.template.Spec.DeepCopy()}
			pod.Namespace, pod.Name = namespace, podName(l, number)
			pod.UID = types.UID(pod.Name)
			pod.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: l.kind, Name: l.name, UID: types.UID(l.name), Controller: new(true),
			}}
			pod.Spec.NodeName, pod.Status.Phase = p.node, corev1.PodRunning
			s.pods, s.at = append(s.pods, pod), append(s.at, p.node)
		}
	}
	s.fit.Set(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	for i := range s.nodes {
		s.fit.Set(&s.nodes[i])
	}
	for _, p := range s.pods {
		s.fit.Set(p)
	}
	return s
}

// decide returns the indexes of the pods that the policy moves.
func (s *search) decide(t *testing.T) []int {
	t.Helper()
	p, err := s.w.policy()
	if err != nil {
		t.Fatal(err)
	}
	objects := []metav1.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}}
	for i := range s.nodes {
		objects = append(objects, s.nodes[i].DeepCopy())
	}
	for _, pod := range s.pods {
		objects = append(objects, pod.DeepCopy())
	}
	var moves []int
	err = simulate.Run(t.Context(), simulate.Config{Policy: p, Functions: functions.All(), Now: time.Now}, objects,
		func(verdicts []schemas.Verdict) error {
			for _, v := range verdicts {
				if v.Outcome == schemas.Evicted {
					s.reasons[v.Intent.Pod.Name] = v.Intent.Reason
					moves = append(moves, slices.IndexFunc(s.pods, func(p *corev1.Pod) bool { return p.UID == v.Intent.Pod.UID }))
				}
			}
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	return moves
}

func (s *search) describe(moves []int) (all []string) {
	for _, i := range moves {
		all = append(all, strings.TrimSpace(s.pods[i].Name+" leaves "+s.pods[i].Spec.NodeName+" "+s.reasons[s.pods[i].Name]))
	}
	return all
}

// compare returns the fewest violations after the moves, and an error text if the moves are not the fewest. Other sets have only pods that the
// strategy can move, which movable reports.
func (s *search) compare(moves []int, movable func(*search, int) bool) (left int, trouble string) {
	left = s.after(moves)
	if left < 0 {
		return left, fmt.Sprintf("there is no room for the replacements of all %d moves", len(moves))
	}
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
			if found := s.after(set); found >= 0 && found <= left {
				return left, fmt.Sprintf("%d moves leave %d violations, and so do %d moves: %s",
					len(moves), left, fewer, strings.Join(s.describe(set), ", "))
			}
		}
	}
	return left, ""
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

// replicated reports whether nothing protects pod i.
func (s *search) replicated(i int) bool { return s.pods[i].OwnerReferences[0].Kind == replicaSet }

// isRepelled reports whether pod i is beside a pod that its required anti-affinity forbids. Its neighbor does not move for it.
func (s *search) isRepelled(i int) bool {
	if s.pods[i].Spec.Affinity == nil || s.pods[i].Spec.Affinity.PodAntiAffinity == nil {
		return false
	}
	for _, term := range s.pods[i].Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		selector, err := metav1.LabelSelectorAsSelector(term.LabelSelector)
		if err == nil && s.beside(i, term.TopologyKey, selector) {
			return true
		}
	}
	return false
}

// evadesTaint reports whether pod i is on a node with a taint that it does not tolerate.
func (s *search) evadesTaint(i int) bool {
	for _, taint := range s.node(s.at[i]).Spec.Taints {
		if taint.Effect != corev1.TaintEffectPreferNoSchedule && !candidate.Tolerates(s.pods[i].Spec.Tolerations, &taint) {
			return true
		}
	}
	return false
}

// untolerated counts pods on nodes with a taint that they do not tolerate.
func (s *search) untolerated() (count int) {
	for i := range s.pods {
		if s.evadesTaint(i) {
			count++
		}
	}
	return count
}

func (s *search) node(name string) *corev1.Node {
	return &s.nodes[slices.IndexFunc(s.nodes, func(n corev1.Node) bool { return n.Name == name })]
}

// repelled counts pods beside a pod that their required anti-affinity forbids.
func (s *search) repelled() (count int) {
	for i := range s.pods {
		if s.isRepelled(i) {
			count++
		}
	}
	return count
}

// beside reports whether another pod that the selector selects is in the domain of pod i.
func (s *search) beside(i int, key string, selector labels.Selector) bool {
	domain, has := s.node(s.at[i]).Labels[key]
	for j, p := range s.pods {
		if other, shares := s.node(s.at[j]).Labels[key]; j != i && has && shares && other == domain && selector.Matches(labels.Set(p.Labels)) {
			return true
		}
	}
	return false
}

// duplicates adds up the squares of how many pods a node has in excess of an even spread of their workload over the nodes that
// could run its pods. So two nodes with one in excess are better than one with two.
func (s *search) duplicates() (count int) {
	for _, l := range s.w.workloads {
		if l.kind != replicaSet {
			continue
		}
		on, replicas := map[string]int{}, 0
		for i, p := range s.pods {
			if p.OwnerReferences[0].Name == l.name {
				on[s.at[i]]++
				replicas++
			}
		}
		most := replicas
		if able := s.able(l); able > 0 {
			most = (replicas + able - 1) / able
		}
		for pods := range maps.Values(on) {
			excess := max(0, pods-most)
			count += excess * excess
		}
	}
	return count
}

// able counts the nodes that could run a pod of a workload if they were empty.
func (s *search) able(l *workload) (count int) {
	pod := &corev1.Pod{ObjectMeta: l.template.ObjectMeta, Spec: l.template.Spec}
	empty := fit.New()
	for i := range s.nodes {
		empty.Set(&s.nodes[i])
	}
	question := empty.Ask(pod)
	for i := range s.nodes {
		if question.On(s.nodes[i].Name).OK {
			count++
		}
	}
	return count
}
