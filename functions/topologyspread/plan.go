package topologyspread

import (
	"cmp"
	"math"
)

// plan returns few moves that satisfy all constraints. If pods that cannot move prevent this, it returns the moves that come
// closest. At least one domain of each constraint must be eligible.
//
// It moves one pod after another, from the fullest place to the emptiest. If it needs more moves than the lower bound of the
// constraints, it searches for fewer.
func (b *balance) plan() []move {
	fewest := 0
	for _, s := range b.spreads {
		fewest = max(fewest, s.fewest())
	}
	most := math.MaxInt
	if b.greedy() {
		most = len(b.moves)
	}
	if most <= fewest {
		return b.moves
	}
	found := b.moves
	b.moves = append([]move{}, found...)
	b.undo(0)
	if b.search(fewest, most) {
		return b.moves
	}
	return found
}

// greedy first takes pods only from domains that are too full themselves. If that is not enough, because such a domain
// keeps its pods, others help to fill the emptiest one, provided that all constraints hold afterwards. It reports
// whether they do.
func (b *balance) greedy() bool {
	if b.level(false) {
		return true
	}
	own := len(b.moves)
	if b.level(true) {
		return true
	}
	b.undo(own)
	return false
}

// level moves one pod after another until all constraints hold, and reports whether they do. With help, pods also leave
// domains that are not too full.
func (b *balance) level(help bool) bool {
	stuck, moved := make([]bool, len(b.places)), false
	for b.skewed() {
		from, before := b.giver(help, stuck), b.leasts()
		switch {
		case from >= 0 && b.give(from, help):
			if moved = before == b.leasts(); !moved {
				clear(stuck) // more is allowed now
			}
		case from >= 0:
			stuck[from] = true
		case moved:
			moved = false
			clear(stuck)
		default:
			return false
		}
	}
	return true
}

func (b *balance) leasts() (sum int) {
	for _, s := range b.spreads {
		sum += s.least
	}
	return sum
}

// giver returns the place that loses the next pod, or -1. The place in most overfull domains comes first, then the
// fullest, then the last.
func (b *balance) giver(help bool, stuck []bool) int {
	floors := make([]int, len(b.spreads)) // the number of pods that a domain keeps
	for k, s := range b.spreads {
		switch {
		case !s.skewed():
			floors[k] = math.MaxInt
		case help:
			floors[k] = s.least + 1
		default:
			floors[k] = s.least + s.maxSkew
		}
	}
	found, bestMends, bestOver, bestSum := -1, 0, 0, 0
	for _, i := range b.givers {
		mends, over, sum := 0, 0, 0
		for k, d := range b.places[i].domains {
			s := b.spreads[k]
			n := s.now[d]
			sum += n - s.least
			if n > floors[k] {
				mends, over = mends+1, max(over, n-s.least)
			}
		}
		if mends > 0 && cmp.Or(mends-bestMends, over-bestOver, sum-bestSum) >= 0 && !stuck[i] && b.places[i].gives() {
			found, bestMends, bestOver, bestSum = i, mends, over, sum
		}
	}
	return found
}

func (p *place) gives() bool {
	for i := range p.groups {
		if !p.groups[i].empty() {
			return true
		}
	}
	return false
}

// target is a possible place for a replacement.
type target struct {
	place int
	mends int // the number of constraints that the move improves
	sum   int // the number of pods in its domains above the least
}

func compareTargets(x, y target) int { return cmp.Or(y.mends-x.mends, x.sum-y.sum) }

// give moves a pod from a place to the best place that takes one of its pods: where it improves most constraints, then
// the emptiest. There the first pod that fits moves. It reports whether there is one.
func (b *balance) give(from int, help bool) bool {
	groups := b.places[from].groups
	best, of := target{}, -1
	targets := make([]target, len(groups)) // the best of each group
	for _, to := range b.order {
		t := b.target(from, to, help)
		if t.mends == 0 {
			continue
		}
		for i := range groups {
			if g := &groups[i]; !g.empty() && b.hasRoom(g.room, to) && (targets[i].mends == 0 || compareTargets(t, targets[i]) < 0) {
				targets[i] = t
			}
		}
	}
	for i, t := range targets {
		if t.mends > 0 && (of < 0 ||
			cmp.Or(compareTargets(t, best), b.compareValues(t.place, best.place), order(groups[i].next(), groups[of].next())) < 0) {
			best, of = t, i
		}
	}
	if of < 0 {
		return false
	}
	b.do(from, of, best.place)
	return true
}

// target judges a move. mends is 0 if it improves nothing, worsens another constraint, or if the scheduler would refuse
// it.
func (b *balance) target(from, to int, help bool) target {
	t := target{place: to}
	if from == to {
		return t
	}
	mends := 0
	for k, s := range b.spreads {
		f, d := b.places[from].domains[k], b.places[to].domains[k]
		if !s.admits(f, d) {
			return t
		}
		t.sum += s.now[d] - s.least
		floor := s.least + s.maxSkew
		if help {
			floor = s.least + 1
		}
		switch least := s.leastWithout(f); {
		case f == d:
		case s.skewed() && s.now[f] > floor && s.now[d] <= s.now[f]-2:
			mends++
		case least < s.least && s.most-least > s.maxSkew, s.skewed() && s.now[d] >= s.most:
			return t
		}
	}
	t.mends = mends
	return t
}
