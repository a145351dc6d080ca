package scope

import (
	"encoding/hex"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/fit"
	"github.com/rehome-dev/rehome/schemas"
)

// spreads groups the pods of a namespace that one topology spread constraint counts. The key is NAMESPACE/TOPOLOGYKEY/HASH.
type spreads struct {
	constraints func(*corev1.Pod) []corev1.TopologySpreadConstraint
	groups      map[string]*spread
	namespaces  map[string]*spreadNamespace
	nodes       map[string]*corev1.Node
	placements  placements
}

// spreadNamespace is the pods and the groups of one namespace.
type spreadNamespace struct {
	members   map[types.UID]member
	selectors selectors // by the key of the group
}

// constraint is what decides which pods a topology spread constraint counts, and on which nodes. Two pods of a namespace for which
// all of it is equal are in one group.
type constraint struct {
	key         string
	spec        corev1.TopologySpreadConstraint
	selector    labels.Selector
	requirement requirement
	place       hash // equal for constraints that count the same nodes
}

// spread is the group of one constraint.
type spread struct {
	constraint
	*placement         // shared with the groups that count the same nodes
	carriers   int     // pods with the constraint
	pods       podSets // the counted pods by domain
}

func newSpreads(constraints func(*corev1.Pod) []corev1.TopologySpreadConstraint) *spreads {
	return &spreads{
		constraints: constraints, groups: map[string]*spread{}, namespaces: map[string]*spreadNamespace{},
		nodes: map[string]*corev1.Node{}, placements: placements{},
	}
}

func (s *spreads) add(m member) []string {
	ns := s.namespaces[m.pod.Namespace]
	if ns == nil {
		ns = &spreadNamespace{members: map[types.UID]member{}, selectors: newSelectors()}
		s.namespaces[m.pod.Namespace] = ns
	}
	ns.members[m.pod.UID] = m
	var keys []string
	for _, c := range s.constraintsOf(m.pod) {
		g := s.groups[c.key]
		if g == nil {
			g = s.newGroup(c, ns, m.pod.UID)
		}
		g.carriers++
		keys = append(keys, c.key)
	}
	s.matching(m.pod, func(g *spread) {
		if value, counted := g.counts(m); counted {
			g.pods.add(value, m.pod.UID, m.pod)
			keys = append(keys, g.constraint.key)
		}
	})
	return unique(keys)
}

func (s *spreads) remove(m member) []string {
	ns := s.namespaces[m.pod.Namespace]
	if ns == nil {
		return nil
	}
	delete(ns.members, m.pod.UID)
	var keys []string
	s.matching(m.pod, func(g *spread) {
		if value, counted := g.counts(m); counted {
			g.pods.remove(value, m.pod.UID)
			keys = append(keys, g.constraint.key)
		}
	})
	for _, c := range s.constraintsOf(m.pod) {
		g := s.groups[c.key]
		if g == nil {
			continue
		}
		if g.carriers--; g.carriers == 0 {
			ns.selectors.remove(labelOf(fit.RequiredLabel(g.selector)), c.key)
			delete(s.groups, c.key)
			s.placements.remove(g.place, c.key)
		}
		keys = append(keys, c.key)
	}
	if len(ns.members) == 0 {
		delete(s.namespaces, m.pod.Namespace)
	}
	return unique(keys)
}

// newGroup makes the group of a constraint, with all members but the pod that is added.
func (s *spreads) newGroup(c constraint, ns *spreadNamespace, adding types.UID) *spread {
	g := &spread{
		constraint: c, pods: podSets{},
		placement: s.placements.add(c.place, c.requirement, c.spec.TopologyKey, c.key, s.nodes),
	}
	for uid, m := range ns.members {
		if value, counted := g.counts(m); counted && uid != adding {
			g.pods.add(value, uid, m.pod)
		}
	}
	s.groups[c.key] = g
	ns.selectors.add(labelOf(fit.RequiredLabel(c.selector)), c.key, true)
	return g
}

// matching calls f for the groups whose selector matches a pod.
func (s *spreads) matching(p *corev1.Pod, f func(*spread)) {
	if ns := s.namespaces[p.Namespace]; ns != nil {
		ns.selectors.each(p.Labels, func(key string) {
			if g := s.groups[key]; g.selector.Matches(labels.Set(p.Labels)) {
				f(g)
			}
		})
	}
}

func (s *spreads) setNode(before, after *corev1.Node) (keys []string) {
	setNode(s.nodes, before, after)
	s.placements.setNode(before, after, func(group string) { keys = append(keys, group) })
	return keys
}

func (s *spreads) setPodNode(p *corev1.Pod, before, after *corev1.Node) []string {
	stays := true
	s.matching(p, func(g *spread) { stays = stays && sameLabel(before, after, g.spec.TopologyKey) })
	if !stays {
		return unique(append(s.remove(member{p, before}), s.add(member{p, after})...))
	}
	s.namespaces[p.Namespace].members[p.UID] = member{p, after}
	return nil
}

// sameLabel says whether two states of a node have the same value of a label, or both none.
func sameLabel(a, b *corev1.Node, key string) bool {
	x, inA := a.Labels[key]
	y, inB := b.Labels[key]
	return x == y && inA == inB
}

func (s *spreads) namespaceChanged(string) []string { return nil }

func (s *spreads) keysOf(m member) (keys []string) {
	s.matching(m.pod, func(g *spread) { keys = append(keys, g.constraint.key) })
	return keys
}

// cooldownKeys includes the groups that the pod makes once it has a node.
func (s *spreads) cooldownKeys(p *corev1.Pod) []string {
	keys := s.keysOf(member{pod: p})
	for _, c := range s.constraintsOf(p) {
		if c.selector.Matches(labels.Set(p.Labels)) {
			keys = append(keys, c.key)
		}
	}
	return unique(keys)
}

func (s *spreads) keys() []string {
	return slices.DeleteFunc(slices.Collect(maps.Keys(s.groups)), func(key string) bool { return !s.has(key) })
}

func (s *spreads) has(key string) bool {
	g := s.groups[key]
	return g != nil && g.skewed()
}

// constraintsOf reads the valid constraints of a pod, each once.
func (s *spreads) constraintsOf(p *corev1.Pod) []constraint {
	var all []constraint
	for _, c := range s.constraints(p) {
		read, ok := newConstraint(p, c)
		if ok && !slices.ContainsFunc(all, func(other constraint) bool { return other.key == read.key }) {
			all = append(all, read)
		}
	}
	return all
}

// newConstraint reads a constraint of a pod. ok is false if its selector is not valid.
func newConstraint(p *corev1.Pod, c corev1.TopologySpreadConstraint) (constraint, bool) {
	spec := *c.DeepCopy()
	spec.LabelSelector = withValues(spec.LabelSelector, spec.MatchLabelKeys, p.Labels)
	spec.MatchLabelKeys = nil
	selector, err := metav1.LabelSelectorAsSelector(spec.LabelSelector)
	if err != nil {
		return constraint{}, false
	}
	honor := corev1.NodeInclusionPolicyHonor
	affinity := spec.NodeAffinityPolicy == nil || *spec.NodeAffinityPolicy == honor
	taints := spec.NodeTaintsPolicy != nil && *spec.NodeTaintsPolicy == honor
	read := constraint{spec: spec, selector: selector}
	var id hash
	read.requirement, id = newRequirement(p, affinity, taints)
	read.place = hashOf(spec.TopologyKey, id)
	sum := hashOf(spec, id)
	read.key = p.Namespace + "/" + spec.TopologyKey + "/" + hex.EncodeToString(sum[:5])
	return read, true
}

// withValues adds to a selector the pod's values of some label keys. A key that the pod does not have adds nothing.
func withValues(s *metav1.LabelSelector, keys []string, of map[string]string) *metav1.LabelSelector {
	for _, key := range keys {
		if value, has := of[key]; has && s != nil {
			s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{
				Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{value},
			})
		}
	}
	return s
}

// counts says whether the group counts a pod, and in which domain. A terminating pod does not count.
func (g *spread) counts(m member) (value string, counted bool) {
	value, has := m.node.Labels[g.spec.TopologyKey]
	return value, has && m.pod.DeletionTimestamp == nil && g.selector.Matches(labels.Set(m.pod.Labels))
}

// skewed says whether the domains differ by more than the constraint allows.
func (g *spread) skewed() bool {
	least, most := -1, 0
	for value := range g.values() {
		n := len(g.pods[value])
		if most = max(most, n); least < 0 || n < least {
			least = n
		}
	}
	if g.spec.MinDomains != nil && len(g.eligible) < int(*g.spec.MinDomains) {
		least = 0
	}
	return least >= 0 && most-least > int(g.spec.MaxSkew)
}

// values are the domains with eligible nodes or counted pods.
func (g *spread) values() map[string]bool {
	values := make(map[string]bool, len(g.eligible))
	for value := range g.eligible {
		values[value] = true
	}
	for value := range g.pods {
		values[value] = true
	}
	return values
}

// spreadDomain is one domain of a group, with the counted pods by name.
type spreadDomain struct {
	value    string
	eligible bool
	pods     []*corev1.Pod
}

func (g *spread) domains() []spreadDomain {
	var all []spreadDomain
	for _, value := range slices.Sorted(maps.Keys(g.values())) {
		all = append(all, spreadDomain{value, g.eligible[value] > 0, sorted(g.pods[value])})
	}
	return all
}

// eligibleNodes are the nodes that meet the requirement of a group, sorted by name, by their domain.
func (s *spreads) eligibleNodes(g *spread) map[string][]*corev1.Node {
	nodes := map[string][]*corev1.Node{}
	for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
		if value, in := g.domain(s.nodes[name]); in {
			nodes[value] = append(nodes[value], s.nodes[name])
		}
	}
	return nodes
}

func (s *spreads) read(key string) func(*build) schemas.Payload {
	namespace, topologyKey, _ := strings.Cut(key, "/")
	topologyKey = topologyKey[:max(0, strings.LastIndex(topologyKey, "/"))]
	spec := corev1.TopologySpreadConstraint{MaxSkew: 1, TopologyKey: topologyKey, WhenUnsatisfiable: corev1.DoNotSchedule}
	var domains []spreadDomain
	var eligible map[string][]*corev1.Node
	if g := s.groups[key]; g != nil {
		spec = g.spec
		if g.skewed() {
			domains, eligible = g.domains(), s.eligibleNodes(g)
		}
	}
	return func(b *build) schemas.Payload {
		scope := schemas.SpreadScope{ScopeHead: b.head, Namespace: namespace, Constraint: spec, Domains: []schemas.Domain{}}
		if b.Empty {
			return scope
		}
		least, most := bounds(spec, domains)
		fits := func(*corev1.Pod) []string { return nil }
		if b.strategy.Spreading.NeedsRoom() {
			fits = b.domainsThatFit(eligible, domains, most)
		}
		for _, d := range domains {
			domain := schemas.Domain{Value: d.value, Eligible: d.eligible, Count: len(d.pods)}
			for _, p := range d.pods {
				if len(d.pods) <= least+1 {
					break // none has to leave
				}
				pod := schemas.SpreadPod{ScopedPod: b.scoped(b.current(p))}
				if len(pod.Protected) == 0 {
					pod.Fits = fits(&pod.Pod)
					b.hash(pod.Pod.UID, pod.Fits)
				}
				domain.Pods = append(domain.Pods, pod)
			}
			scope.Domains = append(scope.Domains, domain)
		}
		return scope
	}
}

// bounds are the pods in the emptiest eligible domain, 0 while there are too few domains, and in the fullest domain.
func bounds(c corev1.TopologySpreadConstraint, domains []spreadDomain) (least, most int) {
	eligible := 0
	for _, d := range domains {
		most = max(most, len(d.pods))
		if d.eligible {
			if eligible == 0 || len(d.pods) < least {
				least = len(d.pods)
			}
			eligible++
		}
	}
	if c.MinDomains != nil && eligible < int(*c.MinDomains) {
		least = 0
	}
	return least, most
}
