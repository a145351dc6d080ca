package topologyspread

import (
	"cmp"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/schemas"
)

// balance has the pods of a scope by place, with the moves so far. Places and domains have the indexes of the scope.
type balance struct {
	spreads []*spread
	places  []place
	order   []int   // the places, ascending by the values of their domains
	givers  []int   // places with movable pods, in this order
	room    [][]int // how many more pods each place takes, by list; nil means any number
	moves   []move
}

// spread is one constraint.
type spread struct {
	*corev1.TopologySpreadConstraint
	domains []schemas.Domain
	now     []int // the number of pods in the domains, with the moves so far
	maxSkew int
	// strict means that the scheduler refuses to place a pod where it would exceed the least by more than maxSkew.
	strict bool
	// tooFew means that the constraint requires more eligible domains than there are, so that the least is 0.
	tooFew      bool
	eligible    []bool
	least, most int // current values in eligible domains
}

// place is the nodes with the same value of each topology key.
type place struct {
	domains  []int // the domain of each constraint
	eligible bool  // whether all of them are eligible: else no constraint counts its pods, and it takes none
	groups   []group
}

// group is the pods of a place that share their room.
type group struct {
	room int
	pods []*schemas.SpreadPod // the first moves first
	gone int                  // how many of them have moved
}

func (g *group) empty() bool { return g.gone == len(g.pods) }

func (g *group) next() *schemas.SpreadPod { return g.pods[g.gone] }

// move is a pod that leaves a place for another.
type move struct {
	pod             *schemas.SpreadPod
	from, group, to int
}

// newBalance sorts the movable pods of a scope into places. It returns nil if the scope contradicts itself.
func newBalance(scope *schemas.SpreadScope, movable func([]schemas.SpreadPod) []*schemas.SpreadPod, needRoom bool) *balance {
	b := &balance{spreads: []*spread{newSpread(&scope.Constraint, scope.Domains)}}
	for i := range scope.Others {
		b.spreads = append(b.spreads, newSpread(&scope.Others[i].Constraint, scope.Others[i].Domains))
	}
	places := placesOf(scope)
	for i, domains := range places {
		if !b.knows(domains) {
			return nil
		}
		b.places, b.order = append(b.places, place{domains: domains, eligible: b.eligible(domains)}), append(b.order, i)
	}
	slices.SortFunc(b.order, b.compareValues)
	if needRoom {
		b.room = [][]int{}
		for _, list := range scope.Room {
			if len(list) != len(places) {
				return nil
			}
			b.room = append(b.room, slices.Clone(list))
		}
	}
	for i := range scope.Domains {
		for _, p := range movable(scope.Domains[i].Pods) {
			at := i
			if len(scope.Others) > 0 {
				at = p.Place
			}
			if at < 0 || at >= len(places) || b.places[at].eligible && !b.offer(at, p) {
				return nil
			}
		}
	}
	b.givers = slices.DeleteFunc(slices.Clone(b.order), func(i int) bool { return len(b.places[i].groups) == 0 })
	return b
}

// placesOf returns the places of a scope. With one constraint, each of its domains is a place.
func placesOf(scope *schemas.SpreadScope) []schemas.Place {
	if len(scope.Others) > 0 {
		return scope.Places
	}
	places := make([]schemas.Place, len(scope.Domains))
	for i := range places {
		places[i] = schemas.Place{i}
	}
	return places
}

func newSpread(c *corev1.TopologySpreadConstraint, domains []schemas.Domain) *spread {
	s := &spread{
		TopologySpreadConstraint: c, domains: domains, now: make([]int, len(domains)), maxSkew: int(c.MaxSkew),
		strict: c.WhenUnsatisfiable != corev1.ScheduleAnyway, eligible: make([]bool, len(domains)),
	}
	for i := range domains {
		s.now[i], s.eligible[i] = domains[i].Count, domains[i].Eligible
	}
	s.tooFew = c.MinDomains != nil && s.targets() < int(*c.MinDomains)
	s.measure()
	return s
}

// targets returns the number of eligible domains.
func (s *spread) targets() (n int) {
	for _, eligible := range s.eligible {
		if eligible {
			n++
		}
	}
	return n
}

func (b *balance) knows(domains []int) bool {
	for i, d := range domains {
		if i >= len(b.spreads) || d < 0 || d >= len(b.spreads[i].domains) {
			return false
		}
	}
	return len(domains) == len(b.spreads)
}

func (b *balance) eligible(domains []int) bool {
	for i, d := range domains {
		if !b.spreads[i].eligible[d] {
			return false
		}
	}
	return true
}

func (b *balance) compareValues(i, j int) int {
	for k, s := range b.spreads {
		if c := cmp.Compare(s.domains[b.places[i].domains[k]].Value, s.domains[b.places[j].domains[k]].Value); c != 0 {
			return c
		}
	}
	return 0
}

// offer adds a movable pod, after the pods that were added before. It reports whether its list of room exists.
func (b *balance) offer(at int, p *schemas.SpreadPod) bool {
	room := p.Room
	if b.room == nil {
		room = 0
	} else if room < 0 || room >= len(b.room) {
		return false
	}
	groups := &b.places[at].groups
	i := slices.IndexFunc(*groups, func(g group) bool { return g.room == room })
	if i < 0 {
		i = len(*groups)
		*groups = append(*groups, group{room: room})
	}
	(*groups)[i].pods = append((*groups)[i].pods, p)
	return true
}

// do moves the next pod of a group.
func (b *balance) do(from, group, to int) {
	g := &b.places[from].groups[group]
	b.moves = append(b.moves, move{g.next(), from, group, to})
	g.gone++
	b.shift(g.room, from, to, 1)
}

// undo undoes all moves but the first n.
func (b *balance) undo(n int) {
	for len(b.moves) > n {
		m := b.moves[len(b.moves)-1]
		b.moves = b.moves[:len(b.moves)-1]
		g := &b.places[m.from].groups[m.group]
		g.gone--
		b.shift(g.room, m.from, m.to, -1)
	}
}

// shift counts n pods, 1 or -1, of a room from one place to another.
func (b *balance) shift(room, from, to, n int) {
	if b.room != nil {
		b.room[room][to] -= n
	}
	for i, s := range b.spreads {
		if f, t := b.places[from].domains[i], b.places[to].domains[i]; f != t {
			s.now[f] -= n
			s.now[t] += n
			s.measure()
		}
	}
}

// hasRoom reports whether a place takes another pod of a room.
func (b *balance) hasRoom(room, to int) bool {
	return b.places[to].eligible && (b.room == nil || b.room[room][to] > 0)
}

func (b *balance) skewed() bool { return slices.ContainsFunc(b.spreads, (*spread).skewed) }

// skewed reports whether the constraint is violated.
func (s *spread) skewed() bool { return s.most-s.least > s.maxSkew }

// measure sets least and most.
func (s *spread) measure() {
	s.least, s.most = math.MaxInt, 0
	for i, n := range s.now {
		if s.eligible[i] {
			s.least, s.most = min(s.least, n), max(s.most, n)
		}
	}
	if s.tooFew {
		s.least = 0
	}
}

// leastWithout returns the least after one pod has left a domain.
func (s *spread) leastWithout(from int) int {
	if s.tooFew {
		return s.least
	}
	return min(s.least, s.now[from]-1)
}

// admits reports whether the scheduler places a pod that has left a domain in another one, or back in the same one.
func (s *spread) admits(from, to int) bool {
	n := s.now[to] + 1
	if from == to {
		n--
	}
	return !s.strict || n-s.leastWithout(from) <= s.maxSkew
}

// fewest returns the smallest possible number of moves until the constraint holds.
func (s *spread) fewest() int {
	if !s.skewed() {
		return 0
	}
	best := math.MaxInt
	for least := s.least; ; least++ {
		surplus, missing := 0, 0
		for i, n := range s.now {
			if s.eligible[i] {
				surplus += max(0, n-least-s.maxSkew)
				missing += max(0, least-n)
			}
		}
		if s.tooFew {
			return surplus
		}
		best = min(best, max(surplus, missing))
		if missing >= surplus {
			return best
		}
	}
}
