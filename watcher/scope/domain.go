package scope

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/fit"
	"github.com/rehome-dev/rehome/schemas"
)

// domains groups the pods of a topology domain that are subject to required anti-affinity. The key is
// TOPOLOGYKEY=VALUE. A node without the label is in no domain, so the scheduler allows conflicting pods there.
type domains struct {
	terms     map[string]*antiTerm
	selectors selectors                         // by the key of the term
	members   sets[string, types.UID, member]   // by namespace
	labelsOf  func(namespace string) labels.Set // nil if unknown
	at        sets[string, string, bool]        // the terms that affect pods of a domain
}

// antiTerm is one anti-affinity term, with the pods that have it and the pods that it repels, by domain.
type antiTerm struct {
	fit.Term
	holders            int
	carriers, repelled podSets
}

func newDomains(labelsOf func(namespace string) labels.Set) *domains {
	return &domains{
		terms: map[string]*antiTerm{}, selectors: newSelectors(), members: sets[string, types.UID, member]{}, labelsOf: labelsOf,
		at: sets[string, string, bool]{},
	}
}

func (d *domains) add(m member) []string {
	d.members.add(m.pod.Namespace, m.pod.UID, m)
	var keys []string
	for _, t := range termsOf(m.pod) {
		term := d.terms[t.Key()]
		if term == nil {
			term = d.newTerm(t, m.pod.UID)
		}
		term.holders++
		keys = append(keys, d.enter(term, term.carriers, m)...)
	}
	d.repelling(m.pod, func(t *antiTerm) { keys = append(keys, d.enter(t, t.repelled, m)...) })
	return unique(keys)
}

func (d *domains) remove(m member) []string {
	d.members.remove(m.pod.Namespace, m.pod.UID)
	var keys []string
	d.listing(m, func(t *antiTerm) { keys = append(keys, d.leave(t, t.repelled, m)...) })
	for _, t := range termsOf(m.pod) {
		term := d.terms[t.Key()]
		if term == nil {
			continue
		}
		keys = append(keys, d.leave(term, term.carriers, m)...)
		if term.holders--; term.holders > 0 {
			continue
		}
		d.selectors.remove(labelOf(t.ByLabel()), t.Key())
		delete(d.terms, t.Key())
		for domain := range term.repelled {
			d.at.remove(domain, t.Key())
		}
	}
	return unique(keys)
}

// newTerm returns a term with all members that it repels, except the pod being added.
func (d *domains) newTerm(t fit.Term, adding types.UID) *antiTerm {
	term := &antiTerm{Term: t, carriers: podSets{}, repelled: podSets{}}
	d.terms[t.Key()] = term
	namespaces, only := t.Namespaces()
	if !only {
		namespaces = slices.Collect(maps.Keys(d.members))
	}
	for _, namespace := range namespaces {
		of := d.labelsOf(namespace)
		for uid, m := range d.members[namespace] {
			if uid != adding && t.Matches(namespace, of, m.pod.Labels) {
				d.enter(term, term.repelled, m)
			}
		}
	}
	d.selectors.add(labelOf(t.ByLabel()), t.Key(), true)
	return term
}

func (d *domains) repels(t *antiTerm, p *corev1.Pod) bool {
	return t.Matches(p.Namespace, d.labelsOf(p.Namespace), labels.Set(p.Labels))
}

// repelling calls f for the terms that repel a pod, by the current labels of its namespace.
func (d *domains) repelling(p *corev1.Pod, f func(*antiTerm)) {
	d.selectors.each(p.Labels, func(key string) {
		if t := d.terms[key]; d.repels(t, p) {
			f(t)
		}
	})
}

// listing calls f for the terms that list a member as repelled. They differ from repelling while the event of a namespace with
// new labels has not arrived.
func (d *domains) listing(m member, f func(*antiTerm)) {
	d.selectors.each(m.pod.Labels, func(key string) {
		t := d.terms[key]
		if _, listed := t.repelled[domainOf(t.TopologyKey, m.node)][m.pod.UID]; listed {
			f(t)
		}
	})
}

// enter adds a pod to one side of a term and returns the domain, if the node is in one.
func (d *domains) enter(t *antiTerm, side podSets, m member) []string {
	domain := domainOf(t.TopologyKey, m.node)
	if domain == "" {
		return nil
	}
	side.add(domain, m.pod.UID, m.pod)
	d.at.add(domain, t.Key(), true)
	return []string{domain}
}

func (d *domains) leave(t *antiTerm, side podSets, m member) []string {
	domain := domainOf(t.TopologyKey, m.node)
	if domain == "" {
		return nil
	}
	side.remove(domain, m.pod.UID)
	if len(t.carriers[domain])+len(t.repelled[domain]) == 0 {
		d.at.remove(domain, t.Key())
	}
	return []string{domain}
}

// setNode returns no keys: a node without pods is in no group.
func (d *domains) setNode(_, _ *corev1.Node) []string { return nil }

func (d *domains) setPodNode(p *corev1.Pod, before, after *corev1.Node) []string {
	stays := true
	check := func(t *antiTerm) { stays = stays && sameLabel(before, after, t.TopologyKey) }
	for _, t := range termsOf(p) {
		stays = stays && sameLabel(before, after, t.TopologyKey)
	}
	d.repelling(p, check)
	d.listing(member{p, before}, check)
	if !stays {
		return unique(append(d.remove(member{p, before}), d.add(member{p, after})...))
	}
	d.members.add(p.Namespace, p.UID, member{p, after})
	return nil
}

// namespaceChanged evaluates the terms that select namespaces by label.
func (d *domains) namespaceChanged(name string) []string {
	var keys []string
	for _, t := range d.terms {
		if !t.SelectsNamespaces() {
			continue
		}
		for _, m := range d.members[name] {
			if d.repels(t, m.pod) {
				keys = append(keys, d.enter(t, t.repelled, m)...)
			} else {
				keys = append(keys, d.leave(t, t.repelled, m)...)
			}
		}
	}
	return unique(keys)
}

func (d *domains) keysOf(m member) []string {
	var keys []string
	for _, t := range termsOf(m.pod) {
		keys = append(keys, domainOf(t.TopologyKey, m.node))
	}
	d.repelling(m.pod, func(t *antiTerm) { keys = append(keys, domainOf(t.TopologyKey, m.node)) })
	return slices.DeleteFunc(unique(keys), func(key string) bool { return key == "" })
}

// cooldownKeys returns no keys: fewer pods in a domain do not make other pods move.
func (d *domains) cooldownKeys(*corev1.Pod) []string { return nil }

func (d *domains) keys() []string {
	return slices.DeleteFunc(slices.Collect(maps.Keys(d.at)), func(key string) bool { return !d.has(key) })
}

// has reports whether a pod of a domain repels another one there.
func (d *domains) has(key string) bool {
	for t := range d.at[key] {
		carriers, repelled := d.terms[t].carriers[key], d.terms[t].repelled[key]
		if len(carriers) == 0 || len(repelled) == 0 {
			continue
		}
		for uid := range repelled {
			if _, itself := carriers[uid]; !itself || len(carriers) > 1 || len(repelled) > 1 {
				return true
			}
		}
	}
	return false
}

// contender is a pod with the names of the pods in its domain that its own terms repel.
type contender struct {
	pod    *corev1.Pod
	repels []*corev1.Pod
}

// contenders returns the pods of a domain that repel another one or are repelled, by name.
func (d *domains) contenders(key string) []contender {
	repels := sets[*corev1.Pod, types.UID, *corev1.Pod]{}
	pods := map[types.UID]*corev1.Pod{}
	for t := range d.at[key] {
		for _, carrier := range d.terms[t].carriers[key] {
			for uid, other := range d.terms[t].repelled[key] {
				if uid == carrier.UID {
					continue
				}
				repels.add(carrier, uid, other)
				pods[carrier.UID], pods[uid] = carrier, other
			}
		}
	}
	list := make([]contender, 0, len(pods))
	for _, p := range sorted(pods) {
		list = append(list, contender{p, sorted(repels[p])})
	}
	return list
}

func (d *domains) read(key string) func(*build) schemas.Payload {
	contenders := d.contenders(key)
	return func(b *build) schemas.Payload {
		topologyKey, _, _ := strings.Cut(key, "=")
		scope := schemas.DomainScope{ScopeHead: b.head, TopologyKey: topologyKey, Pods: []schemas.ContendingPod{}}
		if b.Empty {
			return scope
		}
		for _, c := range contenders {
			pod := schemas.ContendingPod{ScopedPod: b.scoped(b.current(c.pod))}
			for _, other := range c.repels {
				pod.Repels = append(pod.Repels, other.UID)
			}
			scope.Pods = append(scope.Pods, pod)
		}
		return scope
	}
}

// domainOf returns the key of the domain of a node, or "" if it is in none.
func domainOf(topologyKey string, n *corev1.Node) string {
	if value, has := n.Labels[topologyKey]; has {
		return topologyKey + "=" + value
	}
	return ""
}

// termsOf returns the distinct terms of a pod, or none if one is invalid.
func termsOf(p *corev1.Pod) []fit.Term {
	terms, ok := fit.AntiAffinity(p)
	if !ok {
		return nil
	}
	slices.SortFunc(terms, func(a, b fit.Term) int { return strings.Compare(a.Key(), b.Key()) })
	return slices.CompactFunc(terms, func(a, b fit.Term) bool { return a.Key() == b.Key() })
}
