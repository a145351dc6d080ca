package scope

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/fit"
	"github.com/rehome-dev/rehome/schemas"
)

// spreadCopy is a copy of a group of pods with the same spread constraints.
type spreadCopy struct {
	specs       []corev1.TopologySpreadConstraint
	keys        []string           // of the constraints
	least, most []int              // by constraint
	domains     [][]schemas.Domain // by constraint, without pods
	places      []schemas.Place
	nodes       [][]*corev1.Node // by place, those that take replacements, sorted by name
	pods        []placedPod      // the carriers that all constraints count, by their domain of the first constraint, then by name
}

// placedPod is a pod with the index of its place.
type placedPod struct {
	*corev1.Pod
	place int
}

// copyOf copies a group.
func (s *spreads) copyOf(g *spread, namespace string) *spreadCopy {
	c := &spreadCopy{}
	domains := make([]map[string]int, len(g.tallies)) // indexes by value
	for i, t := range g.tallies {
		least, most := t.bounds()
		c.specs, c.keys = append(c.specs, t.spec), append(c.keys, t.key)
		c.least, c.most = append(c.least, least), append(c.most, most)
		domains[i] = make(map[string]int, len(t.eligible))
		list := make([]schemas.Domain, 0, len(t.eligible))
		for _, value := range slices.Sorted(maps.Keys(t.eligible)) {
			domains[i][value] = len(list)
			list = append(list, schemas.Domain{Value: value, Eligible: true, Count: len(t.pods[value])})
		}
		c.domains = append(c.domains, list)
	}
	of := func(n *corev1.Node) schemas.Place {
		place := make(schemas.Place, len(g.tallies))
		for i, t := range g.tallies {
			value, in := t.domain(n)
			index, eligible := domains[i][value]
			if !in || !eligible {
				return nil
			}
			place[i] = index
		}
		return place
	}
	byName := make(map[string]int, len(s.nodes)) // the index of the place of each node
	for name, n := range s.nodes {
		if place := of(n); place != nil {
			c.places = append(c.places, place)
			byName[name] = -1
		}
	}
	slices.SortFunc(c.places, slices.Compare[schemas.Place])
	c.places = slices.CompactFunc(c.places, slices.Equal[schemas.Place])
	c.nodes = make([][]*corev1.Node, len(c.places))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		at, _ := slices.BinarySearchFunc(c.places, of(s.nodes[name]), slices.Compare[schemas.Place])
		if byName[name] = at; !s.closed[name] {
			c.nodes[at] = append(c.nodes[at], s.nodes[name])
		}
	}
	members := s.namespaces[namespace].members
	for _, d := range c.domains[0] {
		for _, p := range sorted(g.tallies[0].pods[d.Value]) {
			if at, in := byName[members[p.UID].node.Name]; in && g.counts(members[p.UID]) {
				c.pods = append(c.pods, placedPod{p, at})
			}
		}
	}
	return c
}

// counts reports whether a pod has all constraints of the group and is counted by them. The scheduler ignores the
// constraints for the replacement of any other pod, which could return to the same domain.
func (g *spread) counts(m member) bool {
	omits := func(t *tally) bool { _, counted := t.counts(m); return !counted }
	return g.carriers[m.pod.UID] && !slices.ContainsFunc(g.tallies, omits)
}

// read copies a group if it is skewed.
func (s *spreads) read(key string) func(*build) schemas.Payload {
	namespace, topologyKey, _ := strings.Cut(key, "/")
	topologyKey = topologyKey[:max(0, strings.LastIndex(topologyKey, "/"))]
	spec := corev1.TopologySpreadConstraint{MaxSkew: 1, TopologyKey: topologyKey, WhenUnsatisfiable: corev1.DoNotSchedule}
	var c *spreadCopy
	if g := s.groups[key]; g != nil {
		spec = g.tallies[0].spec
		if s.has(key) {
			c = s.copyOf(g, namespace)
		}
	}
	return func(b *build) schemas.Payload {
		scope := schemas.SpreadScope{ScopeHead: b.head, Namespace: namespace, Constraint: spec, Domains: []schemas.Domain{}}
		if !b.Empty {
			b.spread(&scope, c)
		}
		return scope
	}
}

// spread fills in the scope of a skewed group.
func (b *build) spread(scope *schemas.SpreadScope, c *spreadCopy) {
	scope.Domains = c.domains[0]
	for i := 1; i < len(c.specs); i++ {
		scope.Others = append(scope.Others, schemas.OtherConstraint{Constraint: c.specs[i], Domains: c.domains[i]})
	}
	if len(scope.Others) > 0 {
		scope.Places = c.places
	}
	r := &room{build: b, copy: c, classes: map[string]int{}, equal: map[string]int{}}
	for _, p := range c.pods {
		if !c.any(p.place, func(i, count int) bool { return count > c.least[i]+1 }) {
			continue // does not have to leave
		}
		pod := schemas.SpreadPod{ScopedPod: b.scoped(b.current(p.Pod)), Place: p.place}
		if b.strategy.Spreading.NeedsRoom() {
			pod.Room = r.of(&pod.Pod)
			if b.strategy.Opaque {
				pod.Fits = r.domains(p.place, pod.Room)
			}
		}
		if len(scope.Others) == 0 {
			pod.Place = 0 // it follows from the domain
		}
		domain := &scope.Domains[c.places[p.place][0]]
		if domain.Pods == nil {
			domain.Pods = make([]schemas.SpreadPod, 0, domain.Count)
		}
		domain.Pods = append(domain.Pods, pod)
	}
	if scope.Room = r.list; len(r.list) > 0 {
		b.hash("", r.list)
	}
}

// any reports whether a condition holds for the count of a domain of a place.
func (c *spreadCopy) any(place int, holds func(constraint, count int) bool) bool {
	for i, domain := range c.places[place] {
		if holds(i, c.domains[i][domain].Count) {
			return true
		}
	}
	return false
}

// room computes how many replacements each place has room for, see [schemas.SpreadScope.Room]. It computes this once
// for all pods that the scheduler treats alike.
type room struct {
	*build
	copy    *spreadCopy
	list    [][]int
	classes map[string]int // indexes of the list
	equal   map[string]int // indexes of the list by content
}

// of returns the index of the list for a pod.
func (r *room) of(p *corev1.Pod) int {
	class := schedulingClass(p)
	if at, asked := r.classes[class]; asked {
		return at
	}
	replacement := *p
	replacement.Spec.TopologySpreadConstraints = nil // only constraints that the strategy does not handle
	for _, c := range p.Spec.TopologySpreadConstraints {
		if read, _ := newConstraint(p, c); c.WhenUnsatisfiable == corev1.DoNotSchedule && !slices.Contains(r.copy.keys, read.key) {
			replacement.Spec.TopologySpreadConstraints = append(replacement.Spec.TopologySpreadConstraints, c)
			class = "" // the result depends on which pod leaves
		}
	}
	slots := make([]int, len(r.copy.places))
	r.cluster.Ask(&replacement, func(q *fit.Question) { r.count(q, slots) })
	id := fmt.Sprint(slots)
	at, known := r.equal[id]
	if !known {
		at = len(r.list)
		r.list = append(r.list, slots)
		r.equal[id] = at
	}
	if class != "" {
		r.classes[class] = at
	}
	return at
}

// count counts the replacements that fit in the places, up to the number that can be needed, so that small changes of
// capacity do not change the scope.
func (r *room) count(q *fit.Question, slots []int) {
	taken := map[string]bool{} // domains with a pod that repels others like it
	for place := range r.copy.places {
		needed := 0
		r.copy.any(place, func(i, count int) bool {
			needed = max(needed, r.copy.most[i]-1-count)
			return false
		})
		for _, n := range r.copy.nodes[place] {
			if slots[place] >= needed {
				break
			}
			found := q.Slots(n.Name, needed-slots[place])
			for _, key := range q.RepelsItself() {
				switch domain := domainOf(key, n); {
				case domain == "" || found == 0:
				case taken[domain]:
					found = 0
				default:
					found, taken[domain] = 1, true
				}
			}
			slots[place] += found
		}
	}
}

// domains returns the other domains of the first constraint that have room for a pod.
func (r *room) domains(from, at int) []string {
	var found []string
	for place, slots := range r.list[at] {
		domain := r.copy.places[place][0]
		if slots > 0 && domain != r.copy.places[from][0] {
			found = append(found, r.copy.domains[0][domain].Value)
		}
	}
	return slices.Compact(found)
}
