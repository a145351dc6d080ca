package topologyspread

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/schemas"
)

// balance plans moves between domains. It names domains by their index.
type balance struct {
	domains []domain // ascending by value
	maxSkew int
	// strict: the scheduler refuses to place a pod where it would be more than maxSkew above the least.
	strict bool
	// eligible are the domains that are, by their values, and everywhere all of them in order.
	eligible   map[string]int
	everywhere []int
	// tooFew: the constraint asks for more eligible domains than there are, so that the least is 0.
	tooFew bool
	moves  []move
}

// domain is a domain with the moves so far.
type domain struct {
	*schemas.Domain
	now    int // how many pods it has, with the moves so far
	groups []group
}

// group is pods of one domain that fit into the same others.
type group struct {
	fits []int
	pods []*schemas.SpreadPod // at least one, the first to move first
}

// move is a pod that leaves a domain.
type move struct {
	pod  *schemas.SpreadPod
	from int
}

// newBalance arranges the domains of a scope. No pod may move yet; see offer.
func newBalance(scope schemas.SpreadScope) *balance {
	c := scope.Constraint
	b := &balance{
		domains: make([]domain, len(scope.Domains)), eligible: map[string]int{}, maxSkew: int(c.MaxSkew),
		strict: c.WhenUnsatisfiable != corev1.ScheduleAnyway,
	}
	for i := range scope.Domains {
		b.domains[i] = domain{Domain: &scope.Domains[i], now: scope.Domains[i].Count}
	}
	slices.SortFunc(b.domains, func(x, y domain) int { return cmp.Compare(x.Value, y.Value) })
	for i, d := range b.domains {
		if d.Eligible {
			b.eligible[d.Value] = i
			b.everywhere = append(b.everywhere, i)
		}
	}
	b.tooFew = c.MinDomains != nil && len(b.eligible) < int(*c.MinDomains)
	return b
}

// offer lets pods of the domain move, the first of them first: each to the domains that it fits into, or if that does not
// matter, to all that are eligible.
func (b *balance) offer(from int, pods []*schemas.SpreadPod, needRoom bool) {
	d := &b.domains[from]
	if !needRoom {
		if len(pods) > 0 {
			d.groups = []group{{fits: b.everywhere, pods: pods}}
		}
		return
	}
	for _, p := range pods {
		same := func(g group) bool { return slices.Equal(g.pods[0].Fits, p.Fits) }
		if i := slices.IndexFunc(d.groups, same); i >= 0 {
			d.groups[i].pods = append(d.groups[i].pods, p)
		} else {
			d.groups = append(d.groups, group{fits: b.indexes(p.Fits), pods: []*schemas.SpreadPod{p}})
		}
	}
}

// indexes finds domains by their values. Those that are not eligible take no pods, so they are left out.
func (b *balance) indexes(values []string) []int {
	found := make([]int, 0, len(values))
	for _, value := range values {
		if i, ok := b.eligible[value]; ok {
			found = append(found, i)
		}
	}
	return found
}

// plan returns the moves that bring the domains as close together as they have to be, or as far as pods can move. At least
// one domain must be eligible.
//
// First only domains give that are too full themselves. If that is not enough, because such a domain keeps its pods, others
// help to fill the emptiest, provided that it leads to the goal.
func (b *balance) plan() []move {
	if b.level(b.maxSkew) {
		return b.moves
	}
	own := len(b.moves)
	if b.maxSkew > 1 && b.level(1) {
		return b.moves
	}
	return b.moves[:own]
}

// level moves one pod after the other, from the fullest domain that can give one, until no domain has more than maxSkew
// more pods than the least, and says whether that is reached. Only domains give that are more than above over the least.
func (b *balance) level(above int) bool {
	least := b.least()
	stuck := make([]bool, len(b.domains))
	for b.domains[b.fullest()].now-least > b.maxSkew {
		from := b.giver(least+above, stuck)
		if from < 0 {
			return false
		}
		if !b.give(from, least) {
			stuck[from] = true
			continue
		}
		if now := b.least(); now != least {
			least = now
			clear(stuck) // more is allowed now
		}
	}
	return true
}

// giver is the fullest domain with more than floor pods, of which some may move; the last of several, -1 for none.
func (b *balance) giver(floor int, stuck []bool) int {
	found := -1
	for i, d := range b.domains {
		if d.now > floor && len(d.groups) > 0 && !stuck[i] && (found < 0 || d.now >= b.domains[found].now) {
			found = i
		}
	}
	return found
}

// give moves a pod from the domain to the emptiest domain that takes one of its pods: the first pod that fits there. It
// reports whether there is one.
func (b *balance) give(from, least int) bool {
	d := &b.domains[from]
	most := d.now - 2 // in the one that takes: else the two would only swap their places; so it is not this one either
	if b.strict {
		most = min(most, least+b.maxSkew-1)
	}
	to, of := -1, -1
	for i, g := range d.groups {
		if len(g.fits) == 0 {
			continue
		}
		t := slices.MinFunc(g.fits, b.compare)
		if b.domains[t].now > most {
			continue
		}
		if of < 0 || cmp.Or(b.compare(t, to), order(g.pods[0], d.groups[of].pods[0])) < 0 {
			to, of = t, i
		}
	}
	if of < 0 {
		return false
	}
	g := &d.groups[of]
	b.moves = append(b.moves, move{g.pods[0], from})
	g.pods = g.pods[1:]
	if len(g.pods) == 0 {
		d.groups = slices.Delete(d.groups, of, of+1)
	}
	d.now--
	b.domains[to].now++
	return true
}

// compare is negative when domain i is emptier than domain j, or as empty and before it.
func (b *balance) compare(i, j int) int {
	return cmp.Or(cmp.Compare(b.domains[i].now, b.domains[j].now), cmp.Compare(i, j))
}

// least is how many pods the emptiest eligible domain has, and 0 with fewer eligible domains than minDomains.
func (b *balance) least() int {
	if b.tooFew {
		return 0
	}
	return b.domains[b.emptiest()].now
}

// emptiest is the emptiest eligible domain. There must be one.
func (b *balance) emptiest() int { return slices.MinFunc(b.everywhere, b.compare) }

// fullest is the fullest domain, eligible or not. There must be one.
func (b *balance) fullest() int {
	found := 0
	for i, d := range b.domains {
		if d.now > b.domains[found].now {
			found = i
		}
	}
	return found
}
