package podantiaffinity

import (
	"cmp"
	"math/bits"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// mostExact limits the number of connected pods for which exits finds the smallest set. The search takes less than a millisecond.
const mostExact = 20

// conflicts is a graph. Each edge joins a pod and another one that it repels: one of the two must leave. Candidates
// have the indexes of their order.
type conflicts struct {
	costs  []int64 // of the candidates, ascending
	with   [][]int // the candidates in conflict with each
	fixed  []int   // how many pods in conflict with each are no candidates
	leaves []bool  // each that repels a pod that is no candidate
}

func newConflicts(candidates []*schemas.ContendingPod, pods map[types.UID]*schemas.ContendingPod) *conflicts {
	n := len(candidates)
	c := &conflicts{costs: make([]int64, n), with: make([][]int, n), fixed: make([]int, n), leaves: make([]bool, n)}
	index := make(map[types.UID]int, len(pods)) // the candidates are first
	for i, p := range candidates {
		index[p.Pod.UID], c.costs[i] = i, policy.MoveCost(&p.Pod)
		c.with[i] = make([]int, 0, 2*len(p.Repels))
	}
	for uid := range pods {
		if _, movable := index[uid]; !movable {
			index[uid] = len(index)
		}
	}
	for uid, p := range pods {
		i := index[uid]
		for _, other := range p.Repels {
			j, stays := index[other]
			if stays && i < n {
				c.with[i] = append(c.with[i], j)
				c.leaves[i] = c.leaves[i] || j >= n
			}
			if stays && j < n {
				c.with[j] = append(c.with[j], i)
			}
		}
	}
	counted := make([]int, len(index)) // the last candidate that counted a pod, plus one
	for i, all := range c.with {
		c.with[i] = all[:0]
		for _, j := range all {
			switch {
			case counted[j] == i+1:
			case j < n:
				c.with[i] = append(c.with[i], j)
			default:
				c.fixed[i]++
			}
			counted[j] = i + 1
		}
	}
	return c
}

// exit is a candidate that leaves, and the number of conflicts that it ends after those before it have left.
type exit struct{ candidate, ends int }

// exits returns the smallest set of candidates that must leave, or the cheapest among equally small ones. The cheapest
// leaves first, and among equally cheap ones the one that ends the most conflicts.
func (c *conflicts) exits() []exit {
	seen := slices.Clone(c.leaves)
	for i := range c.costs {
		if group := c.connected(i, seen); len(group) > mostExact {
			c.few(group)
		} else {
			c.fewest(group)
		}
	}
	var all []int
	for i, leaves := range c.leaves {
		if leaves {
			all = append(all, i)
		}
	}
	return c.order(all, c.compareCost, func(i int) int { return c.fixed[i] + len(c.with[i]) })
}

func (c *conflicts) compareCost(i, j int) int { return cmp.Compare(c.costs[i], c.costs[j]) }

// connected returns the unseen candidates that are connected with one: the cheapest first, and among equally cheap ones
// the one with the most conflicts that no other candidate ends.
func (c *conflicts) connected(with int, seen []bool) (group []int) {
	if !seen[with] {
		seen[with], group = true, []int{with}
	}
	for at := 0; at < len(group); at++ {
		for _, j := range c.with[group[at]] {
			if !seen[j] {
				seen[j] = true
				group = append(group, j)
			}
		}
	}
	slices.SortFunc(group, func(i, j int) int { return cmp.Or(c.compareCost(i, j), c.fixed[j]-c.fixed[i], i-j) })
	return group
}

// order takes candidates of a group until no conflict is left: the first by compare, and among equal ones the one that
// ends the most conflicts. conflicts has the initial number of a candidate.
func (c *conflicts) order(group []int, compare func(i, j int) int, conflicts func(i int) int) (exits []exit) {
	ends := make([]int, len(c.costs)) // 0 means it is not in the group, has left, or no longer must leave
	for _, i := range group {
		ends[i] = conflicts(i)
	}
	for {
		next := -1
		for _, i := range group {
			if ends[i] > 0 && (next < 0 || cmp.Or(compare(i, next), ends[next]-ends[i]) < 0) {
				next = i
			}
		}
		if next < 0 {
			return exits
		}
		exits = append(exits, exit{next, ends[next]})
		ends[next] = 0
		for _, j := range c.with[next] {
			ends[j] = max(0, ends[j]-1)
		}
	}
}

// few marks few candidates of a group as leaving. The one with the most conflicts leaves first. In the end, candidates
// stay if the others end their conflicts.
func (c *conflicts) few(group []int) {
	exits := c.order(group, func(int, int) int { return 0 }, func(i int) (open int) {
		for _, j := range c.with[i] {
			if !c.leaves[j] {
				open++
			}
		}
		return open
	})
	for _, e := range exits {
		c.leaves[e.candidate] = true
	}
	for _, e := range slices.Backward(exits) {
		c.leaves[e.candidate] = slices.ContainsFunc(c.with[e.candidate], func(j int) bool { return !c.leaves[j] })
	}
}

// fewest marks the smallest set of candidates of a group as leaving, or the cheapest among equally small ones.
func (c *conflicts) fewest(group []int) {
	s := smallest{with: make([]uint32, len(group)), best: 1<<len(group) - 1}
	for at, i := range slices.Backward(group) {
		if at == len(group)-1 || c.compareCost(i, group[at+1]) != 0 {
			s.costs = append(s.costs, 0)
		}
		s.costs[len(s.costs)-1] |= 1 << at
	}
	for at, i := range group {
		for _, j := range c.with[i] {
			if other := slices.Index(group, j); other >= 0 {
				s.with[at] |= 1 << other
			}
		}
	}
	s.search(s.best, 0)
	for at, i := range group {
		c.leaves[i] = s.best&(1<<at) != 0
	}
}

// smallest searches for the smallest set of pods that ends all conflicts, or the cheapest among equally small ones. A
// set has a bit for each pod.
type smallest struct {
	with  []uint32
	costs []uint32 // the sets of pods that cost the same, the dearest first
	best  uint32
}

// compare is negative if a set is better than another: smaller, then with fewer of the dearest pods, then with the first pods.
func (s *smallest) compare(a, b uint32) int {
	order := bits.OnesCount32(a) - bits.OnesCount32(b)
	for _, same := range s.costs {
		order = cmp.Or(order, bits.OnesCount32(a&same)-bits.OnesCount32(b&same))
	}
	return cmp.Or(order, cmp.Compare(a, b))
}

// search improves best. The open pods are undecided.
func (s *smallest) search(open, leave uint32) {
	most, conflicts := 0, 0
	for i, with := range s.with {
		if n := bits.OnesCount32(with & open); open&(1<<i) != 0 && n > conflicts {
			most, conflicts = i, n
		}
	}
	switch {
	case s.compare(leave, s.best) >= 0:
	case conflicts == 0:
		s.best = leave
	default:
		open &^= 1 << most
		s.search(open, leave|1<<most)
		s.search(open&^s.with[most], leave|s.with[most]&open)
	}
}
