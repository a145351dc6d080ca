package index

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/fit"
)

// Domains groups the pods of one topology domain that required anti-affinity concerns. The key is TOPOLOGYKEY=VALUE, or
// TOPOLOGYKEY@NODE for a node that lacks the label: pods on one node are never apart.
type Domains struct {
	terms   map[string]*antiTerm
	byLabel *lookup[string]
	// members are all pods, so that a new term finds those that it keeps away.
	members map[types.UID]Member
	// labelsOf gives the labels of a namespace, nil if they are not known.
	labelsOf func(namespace string) labels.Set
	// at are the terms that concern pods of a domain.
	at map[string]map[string]bool
}

// antiTerm is one term and the pods that it concerns, by domain.
type antiTerm struct {
	fit.Term
	holders  int
	carriers map[string]map[types.UID]*corev1.Pod
	repelled map[string]map[types.UID]*corev1.Pod
}

// NewDomains makes an empty index. labelsOf gives the labels of a namespace, nil if they are not known.
func NewDomains(labelsOf func(namespace string) labels.Set) *Domains {
	return &Domains{
		terms: map[string]*antiTerm{}, byLabel: newLookup[string](), members: map[types.UID]Member{}, labelsOf: labelsOf,
		at: map[string]map[string]bool{},
	}
}

// Add implements [Index].
func (d *Domains) Add(m Member) []string {
	d.members[m.Pod.UID] = m
	var keys []string
	for _, t := range termsOf(m.Pod) {
		term := d.terms[t.Key()]
		if term == nil {
			term = d.found(t, m.Pod.UID)
		}
		term.holders++
		keys = append(keys, d.enter(term, term.carriers, m))
	}
	d.concerning(m.Pod, func(t *antiTerm) { keys = append(keys, d.enter(t, t.repelled, m)) })
	return unique(keys)
}

// Remove implements [Index].
func (d *Domains) Remove(m Member) []string {
	delete(d.members, m.Pod.UID)
	var keys []string
	d.concerning(m.Pod, func(t *antiTerm) { keys = append(keys, d.leave(t, t.repelled, m)) })
	for _, t := range termsOf(m.Pod) {
		term := d.terms[t.Key()]
		if term == nil {
			continue
		}
		keys = append(keys, d.leave(term, term.carriers, m))
		if term.holders--; term.holders == 0 {
			d.dissolve(term)
		}
	}
	return unique(keys)
}

// Of implements [Index].
func (d *Domains) Of(m Member) []string {
	var keys []string
	for _, t := range termsOf(m.Pod) {
		keys = append(keys, domainOf(t.TopologyKey(), m.Node))
	}
	d.concerning(m.Pod, func(t *antiTerm) { keys = append(keys, domainOf(t.TopologyKey(), m.Node)) })
	return unique(keys)
}

// SetNode implements [Index]. A node without pods is in no group.
func (d *Domains) SetNode(_, _ *corev1.Node) []string { return nil }

// Waits implements [Index]. Fewer pods in a domain do not make others move, so a domain is always at rest.
func (d *Domains) Waits(*corev1.Pod, bool, time.Time) {}

// Left implements [Index].
func (d *Domains) Left(*corev1.Pod, time.Time) {}

// Rest implements [Index].
func (d *Domains) Rest(string) time.Time { return time.Time{} }

// Keys implements [Index].
func (d *Domains) Keys() []string {
	var keys []string
	for key := range d.at {
		if d.Has(key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// Has implements [Index].
func (d *Domains) Has(key string) bool {
	for t := range d.at[key] {
		if d.terms[t].contended(key) {
			return true
		}
	}
	return false
}

// NamespaceChanged counts again whom the terms keep away that select namespaces by their labels, and returns the keys of
// the groups that this concerns.
func (d *Domains) NamespaceChanged(name string) []string {
	var keys []string
	for _, t := range d.terms {
		if !t.SelectsNamespaces() {
			continue
		}
		for _, m := range d.members {
			if m.Pod.Namespace != name {
				continue
			}
			if t.Repels(name, d.labelsOf(name), labels.Set(m.Pod.Labels)) {
				keys = append(keys, d.enter(t, t.repelled, m))
			} else {
				keys = append(keys, d.leave(t, t.repelled, m))
			}
		}
	}
	return unique(keys)
}

// found makes a term, with all members that it keeps away but the one that is being added.
func (d *Domains) found(t fit.Term, adding types.UID) *antiTerm {
	term := &antiTerm{
		Term: t, carriers: map[string]map[types.UID]*corev1.Pod{}, repelled: map[string]map[types.UID]*corev1.Pod{},
	}
	d.terms[t.Key()] = term
	for uid, m := range d.members {
		if uid != adding && t.Repels(m.Pod.Namespace, d.labelsOf(m.Pod.Namespace), labels.Set(m.Pod.Labels)) {
			d.enter(term, term.repelled, m)
		}
	}
	key, value, exact := t.ByLabel()
	d.byLabel.add(t.Key(), key, value, exact)
	return term
}

func (d *Domains) dissolve(t *antiTerm) {
	key, value, exact := t.ByLabel()
	d.byLabel.remove(t.Key(), key, value, exact)
	delete(d.terms, t.Key())
	for domain := range t.repelled {
		d.unlink(domain, t)
	}
}

// concerning calls f for the terms that keep a pod away, wherever it is.
func (d *Domains) concerning(p *corev1.Pod, f func(*antiTerm)) {
	of := labels.Set(p.Labels)
	ofNamespace := d.labelsOf(p.Namespace)
	d.byLabel.each(of, func(key string) {
		if t := d.terms[key]; t.Repels(p.Namespace, ofNamespace, of) {
			f(t)
		}
	})
}

// enter adds a pod to one side of a term and returns the domain.
func (d *Domains) enter(t *antiTerm, side map[string]map[types.UID]*corev1.Pod, m Member) string {
	domain := domainOf(t.TopologyKey(), m.Node)
	if side[domain] == nil {
		side[domain] = map[types.UID]*corev1.Pod{}
	}
	side[domain][m.Pod.UID] = m.Pod
	if d.at[domain] == nil {
		d.at[domain] = map[string]bool{}
	}
	d.at[domain][t.Key()] = true
	return domain
}

func (d *Domains) leave(t *antiTerm, side map[string]map[types.UID]*corev1.Pod, m Member) string {
	domain := domainOf(t.TopologyKey(), m.Node)
	delete(side[domain], m.Pod.UID)
	if len(side[domain]) == 0 {
		delete(side, domain)
	}
	if len(t.carriers[domain])+len(t.repelled[domain]) == 0 {
		d.unlink(domain, t)
	}
	return domain
}

func (d *Domains) unlink(domain string, t *antiTerm) {
	delete(d.at[domain], t.Key())
	if len(d.at[domain]) == 0 {
		delete(d.at, domain)
	}
}

// contended says whether a pod of a domain keeps away another one there.
func (t *antiTerm) contended(domain string) bool {
	carriers, repelled := t.carriers[domain], t.repelled[domain]
	if len(carriers) == 0 || len(repelled) == 0 {
		return false
	}
	if len(repelled) > 1 {
		return true
	}
	for uid := range repelled {
		_, itself := carriers[uid]
		return !itself || len(carriers) > 1
	}
	return false
}

// domainOf is the key of the domain that a node is in.
func domainOf(topologyKey string, n *corev1.Node) string {
	if value, has := n.Labels[topologyKey]; has {
		return topologyKey + "=" + value
	}
	return topologyKey + "@" + n.Name
}

// TopologyKey is the topology key in the key of a domain.
func TopologyKey(domain string) string {
	if i := strings.IndexAny(domain, "=@"); i >= 0 {
		return domain[:i]
	}
	return domain
}

// termsOf are the terms of a pod, each once; none if one is not valid.
func termsOf(p *corev1.Pod) []fit.Term {
	terms, ok := fit.AntiAffinity(p)
	if !ok {
		return nil
	}
	return slices.CompactFunc(slices.SortedFunc(slices.Values(terms), func(a, b fit.Term) int {
		return strings.Compare(a.Key(), b.Key())
	}), func(a, b fit.Term) bool { return a.Key() == b.Key() })
}

func unique(keys []string) []string {
	slices.Sort(keys)
	return slices.Compact(keys)
}
