package utilization

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Plan says which nodes pods are to leave, how far, and how much room there is for them elsewhere. The zero value moves
// nothing.
type Plan struct {
	resources []corev1.ResourceName
	sources   []source
	// room is what the targets together can still take of each resource.
	room []int64
	// doors are the taints of the targets.
	doors doors
	// why begins the reason of every move.
	why complaint
}

// source is a node that pods are to leave.
type source struct {
	Node
	// keep is how much of each resource may stay in use; nil: nothing, all pods leave.
	keep []int64
}

// Relieve plans to move pods from the nodes over to the nodes under, until nothing of the former is above the limits or
// the latter are filled up to them. The node with the highest share of any resource comes first; of equal ones, the first
// by name.
func (n Nodes) Relieve(over, under []Node, limits Limits) Plan {
	p := n.plan(over, under, limits, complaint{is: "over-used", resources: n.resources, limits: limits, beyond: true})
	for i := range p.sources {
		s := &p.sources[i]
		s.keep = make([]int64, len(s.figures))
		for j, f := range s.figures {
			s.keep[j] = f.upTo(limits[j])
		}
	}
	slices.SortFunc(p.sources, func(a, b source) int {
		return cmp.Or(cmp.Compare(b.highest, a.highest), strings.Compare(a.Name, b.Name))
	})
	return p
}

// Empty plans to move all pods from the nodes under to the targets, until those are full. The node of which the highest
// share of any resource is the lowest comes first; of equal ones, the first by name. limits are what the nodes under are
// under.
func (n Nodes) Empty(under, targets []Node, limits Limits) Plan {
	none := make(Limits, len(n.resources))
	p := n.plan(under, targets, none, complaint{is: "under-used", resources: n.resources, limits: limits})
	slices.SortFunc(p.sources, func(a, b source) int {
		return cmp.Or(cmp.Compare(a.highest, b.highest), strings.Compare(a.Name, b.Name))
	})
	return p
}

// plan is the zero Plan when nothing could move: there is no source, no target, or no room from the beginning.
func (n Nodes) plan(sources, targets []Node, fill Limits, why complaint) Plan {
	if len(sources) == 0 || len(targets) == 0 {
		return Plan{}
	}
	p := Plan{resources: n.resources, room: make([]int64, len(n.resources)), why: why}
	for _, t := range targets {
		for i, f := range t.figures {
			p.room[i] += f.upTo(fill[i]) - f.used
		}
	}
	if full(p.room) {
		return Plan{}
	}
	p.sources = make([]source, len(sources))
	for i := range sources {
		p.sources[i].Node = sources[i]
	}
	p.doors = doorsOf(targets)
	return p
}

// full says whether there is no room left of one of the resources.
func full(room []int64) bool {
	return slices.ContainsFunc(room, func(left int64) bool { return left <= 0 })
}

// Sources are the names of the nodes that pods are to leave, in the order in which they are to.
func (p Plan) Sources() []string {
	names := make([]string, len(p.sources))
	for i := range p.sources {
		names[i] = p.sources[i].Name
	}
	return names
}
