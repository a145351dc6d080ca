package topologyspread

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	test "github.com/rehome-dev/rehome/test/kit/functionstest"
	"github.com/rehome-dev/rehome/test/kit/randtest"
)

// cluster is domains and their pods, small enough for an exhaustive search.
type cluster struct {
	constraint corev1.TopologySpreadConstraint
	args       Args
	eligible   []bool
	pods       []inhabitant
}

// inhabitant is a pod in a domain, with the domains that have room for it.
type inhabitant struct {
	pod  schemas.SpreadPod
	home int
	room []bool
}

// kind selects how the pods of a random cluster differ.
type kind int

const (
	alike kind = iota // all may move, and fit into every domain
	mixed             // some may not move, and some fit nowhere
	picky             // each fits into domains of its own
)

func value(i int) string { return string(rune('a' + i)) }

func randomCluster(r *rand.Rand, k kind) cluster {
	c := cluster{constraint: constraint([]int32{1, 1, 1, 2, 3}[r.IntN(5)])}
	if r.IntN(4) == 0 {
		c.constraint.WhenUnsatisfiable = corev1.ScheduleAnyway
	} else if r.IntN(4) == 0 {
		atLeast(int32(1 + r.IntN(5)))(&c.constraint)
	}
	c.args.Namespaces = policy.Namespaces{Exclude: []string{"left-out"}}
	room := k == picky || r.IntN(3) > 0
	c.args.TopologyBalanceNodeFit = &room
	domains := 1 + r.IntN(5)
	for i := range domains {
		c.eligible = append(c.eligible, k == alike || r.IntN(6) > 0)
		for range r.IntN(2 + r.IntN(8)) {
			c.pods = append(c.pods, randomPod(r, k, i, domains, len(c.pods)))
		}
	}
	return c
}

func randomPod(r *rand.Rand, k kind, home, domains, number int) inhabitant {
	p := inhabitant{pod: pod(fmt.Sprint("p", number), nil, test.Priority(int32(r.IntN(3)))), home: home}
	fitsSomewhere := k != mixed || r.IntN(4) > 0
	for range domains {
		p.room = append(p.room, fitsSomewhere && (k != picky || r.IntN(2) == 0))
	}
	for _, change := range []test.PodOption{selecting(), test.ReluctantToMove(), test.Quality(corev1.PodQOSBestEffort)} {
		if r.IntN(4) == 0 {
			change(&p.pod.ScopedPod)
		}
	}
	for _, change := range []test.PodOption{protected(), test.Deleted(), test.In("left-out")} {
		if k != alike && r.IntN(8) == 0 {
			change(&p.pod.ScopedPod)
		}
	}
	return p
}

func (c cluster) counts() []int {
	counts := make([]int, len(c.eligible))
	for _, p := range c.pods {
		counts[p.home]++
	}
	return counts
}

// scope returns the input of the strategy.
func (c cluster) scope() schemas.SpreadScope {
	s := scope(c.constraint)
	counts, mean := c.counts(), float64(len(c.pods))/float64(len(c.eligible))
	for i, count := range counts {
		s.Domains = append(s.Domains, schemas.Domain{Value: value(i), Eligible: c.eligible[i], Count: count})
	}
	for _, p := range c.pods {
		if float64(counts[p.home]) <= mean {
			continue
		}
		for i, room := range p.room {
			if room && c.args.NeedsRoom() && c.eligible[i] && i != p.home && float64(counts[i]) < mean {
				p.pod.Fits = append(p.pod.Fits, value(i))
			}
		}
		s.Domains[p.home].Pods = append(s.Domains[p.home].Pods, p.pod)
	}
	return roomy(s)
}

// targets returns the domains where a pod of the scope can be placed.
func (c cluster) targets(p schemas.SpreadPod, home int) []int {
	var found []int
	for i := range c.eligible {
		if i != home && c.eligible[i] && (!c.args.NeedsRoom() || slices.Contains(p.Fits, value(i))) {
			found = append(found, i)
		}
	}
	return found
}

// least returns the count of the emptiest domain, like the scheduler.
func (c cluster) least(counts []int) int {
	least, eligible := math.MaxInt, 0
	for i, count := range counts {
		if c.eligible[i] {
			least, eligible = min(least, count), eligible+1
		}
	}
	if c.constraint.MinDomains != nil && eligible < int(*c.constraint.MinDomains) {
		return 0
	}
	return least
}

// even reports whether the counts are within maxSkew. It is true without an eligible domain.
func (c cluster) even(counts []int) bool {
	most := 0
	for i, count := range counts {
		if c.eligible[i] {
			most = max(most, count)
		}
	}
	return !slices.Contains(c.eligible, true) || most-c.least(counts) <= int(c.constraint.MaxSkew)
}

// apply moves pods one after another, each to the emptiest possible domain, and returns the resulting cluster. It fails
// if there is none, or if the scheduler would refuse to place the pod there because of the constraint.
func (c cluster) apply(s schemas.SpreadScope, moves []schemas.Intent) (cluster, error) {
	c.pods = slices.Clone(c.pods)
	for _, m := range moves {
		i := slices.IndexFunc(c.pods, func(p inhabitant) bool { return p.pod.Pod.UID == m.Pod.UID })
		home := c.pods[i].home
		j := slices.IndexFunc(s.Domains[home].Pods, func(p schemas.SpreadPod) bool { return p.Pod.UID == m.Pod.UID })
		if j < 0 {
			return c, fmt.Errorf("pod %s moves twice", m.Pod.Name)
		}
		targets := c.targets(s.Domains[home].Pods[j], home)
		if len(targets) == 0 {
			return c, fmt.Errorf("pod %s fits nowhere", m.Pod.Name)
		}
		counts := c.counts()
		counts[home]--
		to := slices.MinFunc(targets, func(a, b int) int { return counts[a] - counts[b] })
		if c.constraint.WhenUnsatisfiable == corev1.DoNotSchedule && counts[to]+1-c.least(counts) > int(c.constraint.MaxSkew) {
			return c, fmt.Errorf("pod %s would stay pending: %v, and it can go to %d", m.Pod.Name, counts, to)
		}
		c.pods[i].home = to
	}
	return c, nil
}

// movable returns the pods of a domain of the scope that may move.
func (c cluster) movable(d schemas.Domain) []schemas.SpreadPod {
	var found []schemas.SpreadPod
	for _, p := range d.Pods {
		if d.Eligible && len(p.Protected) == 0 && p.Pod.DeletionTimestamp == nil && p.Pod.Namespace != "left-out" {
			found = append(found, p)
		}
	}
	return found
}

// fewest returns the smallest number of moves that make the domains even, by an exhaustive search, or -1.
func (c cluster) fewest(s schemas.SpreadScope) int {
	type state = [5]int8
	var start state
	for i, count := range c.counts() {
		start[i] = int8(count)
	}
	reached := map[state]int{start: 0}
	for i, d := range s.Domains {
		for _, p := range c.movable(d) {
			next := map[state]int{}
			note := func(to state, moves int) {
				if most, ok := next[to]; !ok || moves < most {
					next[to] = moves
				}
			}
			for from, moves := range reached {
				note(from, moves)
				for _, t := range c.targets(p, i) {
					to := from
					to[i]--
					to[t]++
					note(to, moves+1)
				}
			}
			reached = next
		}
	}
	best := -1
	for counts, moves := range reached {
		list := make([]int, len(c.eligible))
		for i := range list {
			list[i] = int(counts[i])
		}
		if c.even(list) && (best < 0 || moves < best) {
			best = moves
		}
	}
	return best
}

// subsetDoes reports whether a proper subset of the moves would have been enough.
func (c cluster) subsetDoes(s schemas.SpreadScope, moves []schemas.Intent) bool {
	for chosen := range 1<<len(moves) - 1 {
		var some []schemas.Intent
		for i, m := range moves {
			if chosen&(1<<i) != 0 {
				some = append(some, m)
			}
		}
		if after, err := c.apply(s, some); err == nil && c.even(after.counts()) {
			return true
		}
	}
	return false
}

// onlyMovable fails if a move is not of a movable pod from its current domain.
func (c cluster) onlyMovable(t *testing.T, s schemas.SpreadScope, moves []schemas.Intent) {
	t.Helper()
	nodes := map[types.UID]string{}
	for _, d := range s.Domains {
		for _, p := range c.movable(d) {
			nodes[p.Pod.UID] = p.Pod.Spec.NodeName
		}
	}
	for _, m := range moves {
		if node, may := nodes[m.Pod.UID]; !may || m.Node != node || m.Reason == "" {
			t.Errorf("%+v: this pod must not move, or its node is not %q, or there is no reason", m, node)
		}
	}
}

func TestFewestMovesProperty(t *testing.T) {
	r := randtest.New(t)
	evened, stuck := 0, 0
	for round := range 3000 {
		c := randomCluster(r, []kind{alike, mixed}[round%2])
		s := c.scope()
		moves := c.args.Decide(s)
		c.onlyMovable(t, s, moves)
		after, err := c.apply(s, moves)
		if err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		if fewest := c.fewest(s); c.even(after.counts()) {
			evened += min(len(moves), 1)
			if len(moves) != fewest || len(moves) <= 8 && c.subsetDoes(s, moves) {
				t.Errorf("round %d: %d moves where %d do", round, len(moves), fewest)
			}
		} else {
			stuck++
			if fewest >= 0 {
				t.Errorf("round %d: it stays uneven where %d moves do", round, fewest)
			}
		}
		if again := c.args.Decide(after.scope()); len(again) > 0 {
			t.Errorf("round %d: decided again: got %+v, want nothing", round, again)
		}
		if t.Failed() {
			t.Fatalf("cluster %+v, counts %v\nmoves %+v\nthen %v", s, c.counts(), moves, after.counts())
		}
	}
	if evened == 0 || stuck == 0 {
		t.Errorf("%d clusters became even and %d could not: the test tests nothing", evened, stuck)
	}
}

func TestDifferentDomainsNearlyFewestMoves(t *testing.T) {
	r := randtest.New(t)
	const rounds = 4000
	possible, perfect := 0, 0
	for round := range rounds {
		c := randomCluster(r, picky)
		s := c.scope()
		moves := c.args.Decide(s)
		c.onlyMovable(t, s, moves)
		after, err := c.apply(s, moves)
		if err != nil {
			t.Fatalf("round %d: %v\ncluster %+v\nmoves %+v", round, err, s, moves)
		}
		fewest := c.fewest(s)
		if fewest >= 0 {
			possible++
		}
		if c.even(after.counts()) && len(moves) == fewest {
			perfect++
		}
		// The situation after the moves can allow more moves while it is still uneven. That must end.
		for again := 0; ; again++ {
			s := after.scope()
			moves := c.args.Decide(s)
			if len(moves) == 0 {
				break
			}
			even := c.even(after.counts())
			if after, err = after.apply(s, moves); err != nil || even || again == 10 {
				t.Fatalf("round %d: error %v; even before: %v; %d times again\ncluster %+v\nmoves %+v", round, err, even, again, s, moves)
			}
		}
	}
	t.Logf("%d of %d", perfect, possible)
	if possible < rounds/2 || perfect*100 < possible*97 {
		t.Errorf("%d of %d clusters that can be made even were, with the fewest moves", perfect, possible)
	}
}

// movesOfDescheduler returns the number of pods that kubernetes-sigs/descheduler moves between domains if all pods may move and fit
// everywhere: from the fullest to the emptiest domain, never beyond the mean on either side, and half of their difference. even
// reports whether it ends within maxSkew.
func movesOfDescheduler(counts []int, maxSkew int) (moves int, even bool) {
	counts = slices.Clone(counts)
	slices.Sort(counts)
	sum := 0
	for _, count := range counts {
		sum += count
	}
	mean := float64(sum) / float64(len(counts))
	for i, j := 0, len(counts)-1; i < j; {
		if float64(counts[j]) <= mean {
			j--
			continue
		}
		beyond := float64(counts[j] - counts[i] - maxSkew)
		n := int(min(math.Ceil(float64(counts[j])-mean), math.Ceil(mean-float64(counts[i])), math.Ceil(beyond/2)))
		if n <= 0 {
			i++
			continue
		}
		counts[i], counts[j], moves = counts[i]+n, counts[j]-n, moves+n
	}
	return moves, slices.Max(counts)-slices.Min(counts) <= maxSkew
}

func TestNeverMoreMovesThanDescheduler(t *testing.T) {
	r := randtest.New(t)
	compared, fewer := 0, 0
	for range 5000 {
		c := randomCluster(r, alike)
		c.constraint.MinDomains = nil
		moves, even := movesOfDescheduler(c.counts(), int(c.constraint.MaxSkew))
		own := len(c.args.Decide(c.scope()))
		if !even || own == 0 && moves == 0 {
			continue
		}
		compared++
		if own < moves {
			fewer++
		}
		if own > moves || own < moves && len(c.eligible) == 2 {
			t.Fatalf("counts %v, at most %d apart: %d pods move, and %d in the descheduler", c.counts(), c.constraint.MaxSkew, own, moves)
		}
	}
	t.Logf("fewer pods move than in the descheduler: %d of %d", fewer, compared)
	if compared == 0 {
		t.Error("nothing was compared: the test tests nothing")
	}
}

// reordered returns the same scope in another order.
func reordered(r *rand.Rand, s schemas.SpreadScope) schemas.SpreadScope {
	s.Domains = randtest.Shuffled(r, s.Domains)
	for i := range s.Domains {
		d := &s.Domains[i]
		d.Pods = randtest.Shuffled(r, d.Pods)
		for j := range d.Pods {
			slices.Sort(d.Pods[j].Fits)
		}
	}
	return roomy(s)
}

func TestDecisionDeterminism(t *testing.T) {
	r := randtest.New(t)
	some := 0
	for round := range 500 {
		c := randomCluster(r, kind(round%3))
		some += len(test.Steady(t, c.args.Decide, c.scope(), c.scope(), reordered(r, c.scope())))
	}
	if some == 0 {
		t.Error("no pod moved in any round: the test tests nothing")
	}
}
