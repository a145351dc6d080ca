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
)

// spreads groups the pods of a namespace by their topology spread constraints. All DoNotSchedule constraints of a pod
// make one group, because a node must satisfy all of them. Each ScheduleAnyway constraint makes a group of its own. The
// key is NAMESPACE/TOPOLOGYKEY/HASH.
type spreads struct {
	constraints func(*corev1.Pod) []corev1.TopologySpreadConstraint
	takes       func(*corev1.Node) bool // whether a replacement may go to a node
	groups      map[string]*spread
	tallies     map[string]*tally
	namespaces  map[string]*spreadNamespace
	nodes       map[string]*corev1.Node
	closed      map[string]bool // the nodes for which takes returned false
	placements  placements
}

// spread is a group of pods with the same constraints.
type spread struct {
	tallies  []*tally           // in the order of their keys
	carriers map[types.UID]bool // the pods with the constraints
}

// constraint decides which pods and nodes a topology spread constraint counts. Pods of a namespace with equal
// constraints share a tally.
type constraint struct {
	key         string
	spec        corev1.TopologySpreadConstraint
	selector    labels.Selector
	requirement requirement
	place       hash // equal for constraints that count the same nodes
}

// tally has the pods that one constraint counts.
type tally struct {
	constraint
	*placement                // shared with the tallies that count the same nodes
	groups     map[string]int // pods with the constraint, by group
	pods       podSets        // the counted pods by domain
}

// spreadNamespace has the pods and the tallies of one namespace.
type spreadNamespace struct {
	members   map[types.UID]member
	selectors selectors // by the key of the tally
}

func newSpreads(constraints func(*corev1.Pod) []corev1.TopologySpreadConstraint, takes func(*corev1.Node) bool) *spreads {
	return &spreads{
		constraints: constraints, takes: takes, groups: map[string]*spread{}, tallies: map[string]*tally{},
		namespaces: map[string]*spreadNamespace{}, nodes: map[string]*corev1.Node{}, closed: map[string]bool{},
		placements: placements{},
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
	for key, constraints := range s.constraintsOf(m.pod) {
		g := s.groups[key]
		if g == nil {
			g = &spread{carriers: map[types.UID]bool{}}
			s.groups[key] = g
			for _, c := range constraints {
				if s.tallies[c.key] == nil {
					s.newTally(c, ns, m.pod.UID)
				}
				g.tallies = append(g.tallies, s.tallies[c.key])
			}
		}
		g.carriers[m.pod.UID] = true
		for _, t := range g.tallies {
			t.groups[key]++
		}
		keys = append(keys, key)
	}
	s.matching(m.pod, func(t *tally) {
		if value, counted := t.counts(m); counted {
			t.pods.add(value, m.pod.UID, m.pod)
			keys = slices.AppendSeq(keys, maps.Keys(t.groups))
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
	s.matching(m.pod, func(t *tally) {
		if value, counted := t.counts(m); counted {
			t.pods.remove(value, m.pod.UID)
			keys = slices.AppendSeq(keys, maps.Keys(t.groups))
		}
	})
	for key := range s.constraintsOf(m.pod) {
		g := s.groups[key]
		if g == nil {
			continue
		}
		for _, t := range g.tallies {
			s.release(t, key, ns)
		}
		if delete(g.carriers, m.pod.UID); len(g.carriers) == 0 {
			delete(s.groups, key)
		}
		keys = append(keys, key)
	}
	if len(ns.members) == 0 {
		delete(s.namespaces, m.pod.Namespace)
	}
	return unique(keys)
}

// newTally counts all members of a namespace, except the pod being added. For ScheduleAnyway, the scheduler compares only
// domains with a node that takes the pod.
func (s *spreads) newTally(c constraint, ns *spreadNamespace, adding types.UID) {
	if c.spec.WhenUnsatisfiable == corev1.ScheduleAnyway {
		c.requirement.takes = s.takes
	}
	t := &tally{
		constraint: c, groups: map[string]int{}, pods: podSets{},
		placement: s.placements.add(c.place, c.requirement, c.spec.TopologyKey, c.key, s.nodes),
	}
	for uid, m := range ns.members {
		if value, counted := t.counts(m); counted && uid != adding {
			t.pods.add(value, uid, m.pod)
		}
	}
	s.tallies[c.key] = t
	ns.selectors.add(labelOf(fit.RequiredLabel(c.selector)), c.key, true)
}

// release drops a tally when its last group loses its last pod.
func (s *spreads) release(t *tally, group string, ns *spreadNamespace) {
	if t.groups[group]--; t.groups[group] == 0 {
		delete(t.groups, group)
	}
	if len(t.groups) == 0 {
		ns.selectors.remove(labelOf(fit.RequiredLabel(t.selector)), t.key)
		delete(s.tallies, t.key)
		s.placements.remove(t.place, t.key)
	}
}

// matching calls f for the tallies whose selector matches a pod.
func (s *spreads) matching(p *corev1.Pod, f func(*tally)) {
	if ns := s.namespaces[p.Namespace]; ns != nil {
		ns.selectors.each(p.Labels, func(key string) {
			if t := s.tallies[key]; t.selector.Matches(labels.Set(p.Labels)) {
				f(t)
			}
		})
	}
}

func (s *spreads) setNode(before, after *corev1.Node) (keys []string) {
	setNode(s.nodes, before, after)
	if before != nil {
		delete(s.closed, before.Name)
	}
	if after != nil && !s.takes(after) {
		s.closed[after.Name] = true
	}
	s.placements.setNode(before, after, func(key string) {
		keys = slices.AppendSeq(keys, maps.Keys(s.tallies[key].groups))
	})
	return keys
}

func (s *spreads) setPodNode(p *corev1.Pod, before, after *corev1.Node) []string {
	stays := true
	s.matching(p, func(t *tally) {
		was, wasIn := t.domain(before)
		is, isIn := t.domain(after)
		stays = stays && was == is && wasIn == isIn
	})
	if !stays {
		return unique(append(s.remove(member{p, before}), s.add(member{p, after})...))
	}
	s.namespaces[p.Namespace].members[p.UID] = member{p, after}
	return nil
}

// sameLabel reports whether two states of a node have the same value of a label, or both lack it.
func sameLabel(a, b *corev1.Node, key string) bool {
	x, inA := a.Labels[key]
	y, inB := b.Labels[key]
	return x == y && inA == inB
}

func (s *spreads) namespaceChanged(string) []string { return nil }

func (s *spreads) keysOf(m member) (keys []string) {
	s.matching(m.pod, func(t *tally) { keys = slices.AppendSeq(keys, maps.Keys(t.groups)) })
	return unique(keys)
}

// cooldownKeys includes the groups that the pod joins once it has a node.
func (s *spreads) cooldownKeys(p *corev1.Pod) []string {
	keys := s.keysOf(member{pod: p})
	for key, constraints := range s.constraintsOf(p) {
		if slices.ContainsFunc(constraints, func(c constraint) bool { return c.selector.Matches(labels.Set(p.Labels)) }) {
			keys = append(keys, key)
		}
	}
	return unique(keys)
}

func (s *spreads) keys() []string {
	return slices.DeleteFunc(slices.Collect(maps.Keys(s.groups)), func(key string) bool { return !s.has(key) })
}

func (s *spreads) has(key string) bool {
	g := s.groups[key]
	return g != nil && slices.ContainsFunc(g.tallies, (*tally).skewed)
}

// constraintsOf returns the distinct constraints of a pod by the key of their group, sorted by key. It omits invalid
// constraints, and constraints with a selector for all pods: the scheduler counts no pods for those, so they never have
// an effect.
func (s *spreads) constraintsOf(p *corev1.Pod) map[string][]constraint {
	var hard []constraint
	groups := map[string][]constraint{}
	for _, c := range s.constraints(p) {
		read, ok := newConstraint(p, c)
		switch {
		case !ok || read.selector.Empty():
		case c.WhenUnsatisfiable == corev1.ScheduleAnyway:
			groups[read.key] = []constraint{read}
		case !slices.ContainsFunc(hard, func(other constraint) bool { return other.key == read.key }):
			hard = append(hard, read)
		}
	}
	if len(hard) == 0 {
		return groups
	}
	slices.SortFunc(hard, func(a, b constraint) int { return strings.Compare(a.key, b.key) })
	key := hard[0].key
	if len(hard) > 1 {
		all := make([]string, len(hard))
		for i, c := range hard {
			all[i] = c.key
		}
		key = groupKey(p.Namespace, hard[0].spec.TopologyKey, hashOf(all))
	}
	groups[key] = hard
	return groups
}

func groupKey(namespace, topologyKey string, id hash) string {
	return namespace + "/" + topologyKey + "/" + hex.EncodeToString(id[:5])
}

// newConstraint parses a constraint of a pod. ok is false if its selector is invalid.
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
	read.requirement, id = newRequirement(p, affinity, taints, topologyKeys(p, c.WhenUnsatisfiable))
	read.place = hashOf(spec.TopologyKey, spec.WhenUnsatisfiable, id)
	read.key = groupKey(p.Namespace, spec.TopologyKey, hashOf(spec, id))
	return read, true
}

// topologyKeys returns the sorted topology keys of the constraints of a pod with the same action. The scheduler counts
// only pods on nodes that have all of these labels.
func topologyKeys(p *corev1.Pod, action corev1.UnsatisfiableConstraintAction) []string {
	var keys []string
	for i := range p.Spec.TopologySpreadConstraints {
		if c := &p.Spec.TopologySpreadConstraints[i]; c.WhenUnsatisfiable == action {
			keys = append(keys, c.TopologyKey)
		}
	}
	return unique(keys)
}

// withValues adds the pod's values of some label keys to a selector. It skips keys that the pod does not have.
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

// counts returns the domain in which the constraint counts a pod, if it does. It counts no terminating pods, and no
// pods on nodes that the node policies of the constraint exclude.
func (t *tally) counts(m member) (value string, counted bool) {
	value, in := t.domain(m.node)
	return value, in && m.pod.DeletionTimestamp == nil && t.selector.Matches(labels.Set(m.pod.Labels))
}

// skewed reports whether the domains differ by more than the constraint allows.
func (t *tally) skewed() bool {
	least, most := t.bounds()
	return most-least > int(t.spec.MaxSkew)
}

// bounds returns the number of pods in the emptiest domain, or 0 while there are too few domains, and in the fullest
// one.
func (t *tally) bounds() (least, most int) {
	first := true
	for value := range t.eligible {
		n := len(t.pods[value])
		if most = max(most, n); first || n < least {
			least, first = n, false
		}
	}
	if t.spec.MinDomains != nil && len(t.eligible) < int(*t.spec.MinDomains) {
		least = 0
	}
	return least, most
}
