package fit

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// tally counts pods that have something in common, by node name.
type tally[T any] struct {
	common T
	on     map[string]int
}

// tallies are tallies by the common property of their pods.
type tallies[K comparable, T any] map[K]*tally[T]

// enter adds a pod.
func (t tallies[K, T]) enter(key K, common T, node string) {
	own := t[key]
	if own == nil {
		own = &tally[T]{common: common, on: map[string]int{}}
		t[key] = own
	}
	own.on[node]++
}

// leave removes a pod.
func (t tallies[K, T]) leave(key K, node string) {
	decrease(t[key].on, node)
	if len(t[key].on) == 0 {
		delete(t, key)
	}
}

// cohort are the pods that no selector can distinguish: same namespace, same labels, and same terminating state. Rules
// between pods are evaluated once for each cohort and not for each pod.
type cohort struct {
	labels      labels.Set
	terminating bool
}

// cohortKey returns the same key for pods of a namespace in the same cohort.
func cohortKey(of labels.Set, terminating bool) string {
	var b strings.Builder
	if terminating {
		b.WriteString("terminating")
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		b.WriteByte(0)
		b.WriteString(name)
		b.WriteByte('=')
		b.WriteString(of[name])
	}
	return b.String()
}

// enterTallies adds a pod to the tallies of pods like it.
func (c *Cluster) enterTallies(p *placed) {
	if c.cohorts[p.namespace] == nil {
		c.cohorts[p.namespace] = tallies[string, cohort]{}
	}
	c.cohorts[p.namespace].enter(p.cohort, cohort{p.labels, p.terminating}, p.node)
	for i, key := range p.repels {
		c.repulsions.enter(key, p.terms[i], p.node)
	}
	for _, w := range p.preferences {
		c.attractions.enter(w.key, w, p.node)
	}
	if p.controller != "" && !p.terminating {
		c.controllers.enter(p.controller, struct{}{}, p.node)
	}
}

func (c *Cluster) leaveTallies(p *placed) {
	c.cohorts[p.namespace].leave(p.cohort, p.node)
	if len(c.cohorts[p.namespace]) == 0 {
		delete(c.cohorts, p.namespace)
	}
	for _, key := range p.repels {
		c.repulsions.leave(key, p.node)
	}
	for _, w := range p.preferences {
		c.attractions.leave(w.key, p.node)
	}
	if p.controller != "" && !p.terminating {
		c.controllers.leave(p.controller, p.node)
	}
}

// decrease decrements a count and deletes zero.
func decrease[K comparable](counts map[K]int, key K) {
	if counts[key]--; counts[key] == 0 {
		delete(counts, key)
	}
}
