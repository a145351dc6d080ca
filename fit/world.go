package fit

import (
	"slices"

	"k8s.io/apimachinery/pkg/labels"
)

// world is one state of the cluster in which a pod must fit: without the pod itself, and with pods that will arrive.
type world struct {
	question *Question
	// base is the same state without nominated pods, or nil if there are none.
	base *world
	// coming are pods that the cluster does not have yet. gone are pods that have left it, including the pod itself.
	coming, gone []*placed
	// changed are the hosts of these pods, with the changes applied.
	changed map[string]*host
	// domains are the counts of the spread constraints, in order.
	domains []domains
	// attracts and repels count the matches of the pod's own terms; repelled counts the terms of others that match it.
	attracts, repels, repelled pairs
	// first means that no pod matches all terms of the pod's affinity, except the pod itself.
	first bool
	// inUse is a claim that only one pod may use and that another pod has, or empty.
	inUse string
}

// pairs counts pods by topology key and value.
type pairs map[string]map[string]int

func (p pairs) add(key, value string, n int) {
	if p[key] == nil {
		p[key] = map[string]int{}
	}
	p[key][value] += n
}

// newWorld returns the cluster without the pod itself and with the coming pods. It adds these changes to base, unless
// base is nil.
func (q *Question) newWorld(base *world, coming []*placed) *world {
	var gone []*placed
	if base != nil {
		coming, gone = slices.Concat(base.coming, coming), base.gone
	} else if q.gone != nil {
		gone = []*placed{q.gone}
	}
	return q.world(base, coming, gone)
}

func (q *Question) world(base *world, coming, gone []*placed) *world {
	w := &world{question: q, base: base, coming: coming, gone: gone}
	w.change()
	w.inUse = w.claimInUse()
	w.countDomains()
	w.countAffinity()
	return w
}

// change computes the hosts that differ from the cluster's.
func (w *world) change() {
	c := w.question.cluster
	for _, p := range w.gone {
		w.changing(c.hosts[p.node]).leave(p)
	}
	for _, p := range w.coming {
		if h := c.hosts[p.node]; h != nil && h.node != nil {
			w.changing(h).enter(p)
		}
	}
}

func (w *world) changing(h *host) *host {
	if w.changed[h.name] == nil {
		if w.changed == nil {
			w.changed = map[string]*host{}
		}
		w.changed[h.name] = h.clone()
	}
	return w.changed[h.name]
}

// on judges a known node in this world.
func (w *world) on(h *host) Verdict {
	if changed := w.changed[h.name]; changed != nil {
		h = changed
	}
	if v := w.question.hosting(h); v.Reason != "" {
		return v
	}
	if w.inUse != "" {
		return no(ClaimInUse, w.inUse)
	}
	if v := w.spreads(h.node.Labels); v.Reason != "" {
		return v
	}
	if v := w.suits(h.node.Labels); v.Reason != "" {
		return v
	}
	return yes()
}

// labelsOf returns the labels of a node. ok is false if it is unknown.
func (c *Cluster) labelsOf(node string) (labels.Set, bool) {
	h := c.hosts[node]
	if h == nil || h.node == nil {
		return nil, false
	}
	return h.node.Labels, true
}

// tally calls add for all matching pods in this world, once for each cohort and node, with their number. A nil
// namespace means all namespaces. It omits unknown nodes, and terminating pods unless withTerminating.
func (w *world) tally(m matcher, add func(node labels.Set, name string, n int)) {
	c := w.question.cluster
	for namespace, in := range c.cohorts {
		if !m.namespace(namespace) {
			continue
		}
		for _, own := range in {
			if own.common.terminating && !m.withTerminating || !m.pod(namespace, own.common.labels) {
				continue
			}
			for name, n := range own.on {
				if node, known := c.labelsOf(name); known {
					add(node, name, n)
				}
			}
		}
	}
	w.adjust(func(p *placed, n int) {
		if p.terminating && !m.withTerminating || !m.namespace(p.namespace) || !m.pod(p.namespace, p.labels) {
			return
		}
		if node, known := c.labelsOf(p.node); known {
			add(node, p.node, n)
		}
	})
}

// matcher selects the pods to count.
type matcher struct {
	namespace       func(string) bool
	pod             func(namespace string, of labels.Set) bool
	withTerminating bool
}

// adjust calls add with 1 for each pod that only this world has, and with -1 for each pod that only the cluster has.
func (w *world) adjust(add func(p *placed, n int)) {
	for _, p := range w.gone {
		add(p, -1)
	}
	for _, p := range w.coming {
		add(p, 1)
	}
}
