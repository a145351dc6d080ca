package watcher

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// usableNodes counts the nodes that the policy looks at. With fewer than two there is nowhere to move a pod to, and
// nothing is moved, as in kubernetes-sigs/descheduler.
type usableNodes struct {
	mu   sync.Mutex
	plan *plan
	// enough is with how many of them pods are moved: 2, or 1 offline, unless two are asked for there too.
	enough int
	nodes  map[string]*corev1.Node // all of them, so that they can be counted again under another plan
	count  int
}

// changed takes one change of a node into account, and says whether the answer of tooFew changed.
func (u *usableNodes) changed(old, new *corev1.Node) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.nodes == nil {
		u.nodes = map[string]*corev1.Node{}
	}
	before := u.count < u.enough
	if old != nil {
		u.count -= u.counts(u.nodes[old.Name])
		delete(u.nodes, old.Name)
	}
	if new != nil {
		u.count += u.counts(new) - u.counts(u.nodes[new.Name])
		u.nodes[new.Name] = new
	}
	return before != (u.count < u.enough)
}

// follow counts again under another plan.
func (u *usableNodes) follow(p *plan) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.plan, u.count = p, 0
	for _, n := range u.nodes {
		u.count += u.counts(n)
	}
}

// counts is 1 for a node from which pods may be moved, and 0 for none.
func (u *usableNodes) counts(n *corev1.Node) int {
	if n == nil || u.plan.unusable(n) != "" {
		return 0
	}
	return 1
}

// tooFew says whether no pod could be moved anywhere.
func (u *usableNodes) tooFew() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.count < u.enough
}
