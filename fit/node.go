package fit

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// host is a node with the sums over its pods. Pods may be bound to a node before it is known, or after it is gone.
type host struct {
	name string
	// node is nil as long as the node is not known.
	node        *corev1.Node
	allocatable amounts
	// room is how many pods the node may have.
	room      int64
	requested amounts
	pods      map[types.UID]*placed
	// ports counts the host ports that are occupied.
	ports map[port]int
	// withVolumes are those of its pods that have claims or exclusive disks.
	withVolumes map[types.UID]*placed
}

func newHost(name string) *host {
	return &host{name: name, pods: map[types.UID]*placed{}}
}

// become takes over what a Node object says, nil if it is gone.
func (h *host) become(node *corev1.Node) {
	h.node, h.allocatable, h.room = node, amounts{}, 0
	if node != nil {
		h.allocatable.add(node.Status.Allocatable, 1)
		h.room = node.Status.Allocatable.Pods().Value()
	}
}

func (h *host) enter(p *placed) {
	h.pods[p.uid] = p
	h.requested.merge(&p.holds, 1)
	for _, occupied := range p.ports {
		if h.ports == nil {
			h.ports = map[port]int{}
		}
		h.ports[occupied]++
	}
	if len(p.claims)+len(p.disks) > 0 {
		if h.withVolumes == nil {
			h.withVolumes = map[types.UID]*placed{}
		}
		h.withVolumes[p.uid] = p
	}
}

func (h *host) leave(p *placed) {
	delete(h.pods, p.uid)
	h.requested.merge(&p.holds, -1)
	for _, occupied := range p.ports {
		decrease(h.ports, occupied)
	}
	if len(h.ports) == 0 {
		h.ports = nil
	}
	delete(h.withVolumes, p.uid)
	if len(h.withVolumes) == 0 {
		h.withVolumes = nil
	}
}

// clone copies what enter and leave change.
func (h *host) clone() *host {
	c := *h
	c.requested.others = maps.Clone(h.requested.others)
	c.pods = maps.Clone(h.pods)
	c.ports = maps.Clone(h.ports)
	c.withVolumes = maps.Clone(h.withVolumes)
	return &c
}
