package fit

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// cohort are the pods that no selector can tell apart: same namespace, same labels, and terminating or not. Rules
// between pods are asked once for each cohort and not once for each pod.
type cohort struct {
	key         string
	namespace   string
	labels      labels.Set
	terminating bool
	// on counts its pods by node name.
	on map[string]int
}

// cohortKey is the same for pods of the same cohort.
func cohortKey(namespace string, of labels.Set, terminating bool) string {
	var b strings.Builder
	b.WriteString(namespace)
	if terminating {
		b.WriteString("\x00terminating")
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		b.WriteByte(0)
		b.WriteString(name)
		b.WriteByte('=')
		b.WriteString(of[name])
	}
	return b.String()
}

// cohorts are all cohorts by namespace, then by key.
type cohorts map[string]map[string]*cohort

// enter counts a pod in.
func (c cohorts) enter(p *placed) {
	in := c[p.namespace]
	if in == nil {
		in = map[string]*cohort{}
		c[p.namespace] = in
	}
	own := in[p.cohort]
	if own == nil {
		own = &cohort{
			key: p.cohort, namespace: p.namespace, labels: p.labels, terminating: p.terminating, on: map[string]int{},
		}
		in[p.cohort] = own
	}
	own.on[p.node]++
}

// leave counts it out.
func (c cohorts) leave(p *placed) {
	own := c[p.namespace][p.cohort]
	decrease(own.on, p.node)
	if len(own.on) > 0 {
		return
	}
	delete(c[p.namespace], p.cohort)
	if len(c[p.namespace]) == 0 {
		delete(c, p.namespace)
	}
}

// controllers count the pods of each controller by node name, terminating ones left out.
type controllers map[types.UID]map[string]int

func (c controllers) enter(p *placed) {
	if p.controller == "" || p.terminating {
		return
	}
	if c[p.controller] == nil {
		c[p.controller] = map[string]int{}
	}
	c[p.controller][p.node]++
}

func (c controllers) leave(p *placed) {
	if p.controller == "" || p.terminating {
		return
	}
	decrease(c[p.controller], p.node)
	if len(c[p.controller]) == 0 {
		delete(c, p.controller)
	}
}

// repulsion are the pods that have the same required anti-affinity term.
type repulsion struct {
	term term
	// on counts them by node name.
	on map[string]int
}

// repulsions are all repulsions by the key of their term.
type repulsions map[string]*repulsion

func (r repulsions) enter(p *placed) {
	for i, key := range p.repels {
		own := r[key]
		if own == nil {
			own = &repulsion{term: p.terms[i], on: map[string]int{}}
			r[key] = own
		}
		own.on[p.node]++
	}
}

func (r repulsions) leave(p *placed) {
	for _, key := range p.repels {
		decrease(r[key].on, p.node)
		if len(r[key].on) == 0 {
			delete(r, key)
		}
	}
}

// decrease counts one down and forgets zero.
func decrease[K comparable](counts map[K]int, key K) {
	if counts[key]--; counts[key] == 0 {
		delete(counts, key)
	}
}
