package index

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/fit"
)

// Spreads groups the pods of a namespace that one topology spread constraint counts. The key is
// NAMESPACE/TOPOLOGYKEY/HASH.
type Spreads struct {
	constraints func(*corev1.Pod) []corev1.TopologySpreadConstraint
	groups      map[string]*spread
	namespaces  map[string]*spreadNamespace
	nodes       map[string]*corev1.Node
	placements  placements
}

// spreadNamespace is the members and the groups of one namespace.
type spreadNamespace struct {
	members map[types.UID]Member
	waiting map[types.UID]waitingPod
	groups  *lookup[string]
}

type waitingPod struct {
	pod   *corev1.Pod
	since time.Time
}

// NewSpreads makes an empty index of the constraints that a function gives for a pod.
func NewSpreads(constraints func(*corev1.Pod) []corev1.TopologySpreadConstraint) *Spreads {
	return &Spreads{
		constraints: constraints, groups: map[string]*spread{}, namespaces: map[string]*spreadNamespace{},
		nodes: map[string]*corev1.Node{}, placements: placements{},
	}
}

// Add implements [Index].
func (s *Spreads) Add(m Member) []string {
	ns := s.namespace(m.Pod.Namespace)
	ns.members[m.Pod.UID] = m
	var keys []string
	for _, c := range s.read(m.Pod) {
		g, there := s.groups[c.key]
		if !there {
			g = s.found(c, ns, m.Pod.UID)
		}
		g.carriers++
		keys = append(keys, c.key)
	}
	ns.groups.each(m.Pod.Labels, func(key string) {
		if s.groups[key].count(m) && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	})
	return keys
}

// Remove implements [Index].
func (s *Spreads) Remove(m Member) []string {
	ns := s.namespace(m.Pod.Namespace)
	delete(ns.members, m.Pod.UID)
	var keys []string
	ns.groups.each(m.Pod.Labels, func(key string) {
		if s.groups[key].uncount(m) {
			keys = append(keys, key)
		}
	})
	for _, c := range s.read(m.Pod) {
		g := s.groups[c.key]
		if g == nil {
			continue
		}
		if g.carriers--; g.carriers == 0 {
			s.dissolve(g, ns)
		}
		if !slices.Contains(keys, c.key) {
			keys = append(keys, c.key)
		}
	}
	s.tidy(m.Pod.Namespace, ns)
	return keys
}

// Of implements [Index].
func (s *Spreads) Of(m Member) []string {
	var keys []string
	if ns := s.namespaces[m.Pod.Namespace]; ns != nil {
		s.concerned(ns, m.Pod, func(g *spread) { keys = append(keys, g.constraint.key) })
	}
	return keys
}

// SetNode implements [Index].
func (s *Spreads) SetNode(before, after *corev1.Node) []string {
	if before != nil {
		delete(s.nodes, before.Name)
	}
	if after != nil {
		s.nodes[after.Name] = after
	}
	var keys []string
	s.placements.setNode(before, after, func(group string) { keys = append(keys, group) })
	return keys
}

// Waits implements [Index].
func (s *Spreads) Waits(p *corev1.Pod, waits bool, now time.Time) {
	ns := s.namespace(p.Namespace)
	if waits {
		ns.waiting[p.UID] = waitingPod{p, now}
	} else {
		delete(ns.waiting, p.UID)
	}
	s.concerned(ns, p, func(g *spread) { g.waits(p.UID, waits, now) })
	s.tidy(p.Namespace, ns)
}

// Left implements [Index].
func (s *Spreads) Left(p *corev1.Pod, now time.Time) {
	if ns := s.namespaces[p.Namespace]; ns != nil {
		s.concerned(ns, p, func(g *spread) { g.left = now })
	}
}

// concerned calls f for the groups whose selector matches a pod.
func (s *Spreads) concerned(ns *spreadNamespace, p *corev1.Pod, f func(*spread)) {
	ns.groups.each(p.Labels, func(key string) {
		if g := s.groups[key]; g.selector.Matches(labels.Set(p.Labels)) {
			f(g)
		}
	})
}

// tidy drops a namespace without pods.
func (s *Spreads) tidy(name string, ns *spreadNamespace) {
	if len(ns.members) == 0 && len(ns.waiting) == 0 {
		delete(s.namespaces, name)
	}
}

// Keys implements [Index].
func (s *Spreads) Keys() []string {
	var keys []string
	for key, g := range s.groups {
		if g.skewed() {
			keys = append(keys, key)
		}
	}
	return keys
}

// Has implements [Index].
func (s *Spreads) Has(key string) bool {
	g := s.groups[key]
	return g != nil && g.skewed()
}

// Rest implements [Index].
func (s *Spreads) Rest(key string) time.Time {
	if g := s.groups[key]; g != nil {
		return g.until()
	}
	return time.Time{}
}

func (s *Spreads) namespace(name string) *spreadNamespace {
	ns := s.namespaces[name]
	if ns == nil {
		ns = &spreadNamespace{
			members: map[types.UID]Member{}, waiting: map[types.UID]waitingPod{}, groups: newLookup[string](),
		}
		s.namespaces[name] = ns
	}
	return ns
}

// read gives the constraints of a pod, each once.
func (s *Spreads) read(p *corev1.Pod) []constraint {
	var all []constraint
	for _, c := range s.constraints(p) {
		read, ok := newConstraint(p, c)
		if ok && !slices.ContainsFunc(all, func(other constraint) bool { return other.key == read.key }) {
			all = append(all, read)
		}
	}
	return all
}

// found makes the group of a constraint, with all members but the one that is being added.
func (s *Spreads) found(c constraint, ns *spreadNamespace, adding types.UID) *spread {
	g := &spread{
		constraint: c, pods: map[string]map[types.UID]*corev1.Pod{},
		placement: s.placements.add(c.place, c.demand, c.spec.TopologyKey, c.key, s.nodes),
	}
	for uid, m := range ns.members {
		if uid != adding {
			g.count(m)
		}
	}
	for uid, w := range ns.waiting {
		if g.selector.Matches(labels.Set(w.pod.Labels)) {
			g.waits(uid, true, w.since)
		}
	}
	s.groups[c.key] = g
	key, value, exact := fit.RequiredLabel(c.selector)
	ns.groups.add(c.key, key, value, exact)
	return g
}

func (s *Spreads) dissolve(g *spread, ns *spreadNamespace) {
	key, value, exact := fit.RequiredLabel(g.selector)
	ns.groups.remove(g.constraint.key, key, value, exact)
	delete(s.groups, g.constraint.key)
	s.placements.remove(g.place, g.constraint.key)
}

// Domain is the eligible nodes of one value and the pods that are counted there, in the order of their names.
type Domain struct {
	Value    string
	Eligible bool
	Pods     []*corev1.Pod
}

// Domains are those of a group in the order of their values, with its constraint. ok is false if there is no such group.
func (s *Spreads) Domains(key string) (c corev1.TopologySpreadConstraint, domains []Domain, ok bool) {
	g := s.groups[key]
	if g == nil {
		return c, nil, false
	}
	for value := range g.eligible {
		domains = append(domains, Domain{Value: value, Eligible: true, Pods: g.sorted(value)})
	}
	for value := range g.pods {
		if g.eligible[value] == 0 {
			domains = append(domains, Domain{Value: value, Pods: g.sorted(value)})
		}
	}
	slices.SortFunc(domains, func(a, b Domain) int { return strings.Compare(a.Value, b.Value) })
	return g.spec, domains, true
}

// EligibleNodes are the nodes on which pods of the group can be placed, as far as the constraint's policies ask, by their
// domain, each in the order of their names.
func (s *Spreads) EligibleNodes(key string) map[string][]*corev1.Node {
	g := s.groups[key]
	if g == nil {
		return nil
	}
	nodes := map[string][]*corev1.Node{}
	for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
		if value, in := g.domain(s.nodes[name]); in {
			nodes[value] = append(nodes[value], s.nodes[name])
		}
	}
	return nodes
}
