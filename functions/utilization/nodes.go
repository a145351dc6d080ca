package utilization

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/schemas"
)

// Nodes are all nodes of a scope in plain numbers, in the order of their names.
type Nodes struct {
	resources []corev1.ResourceName
	all       []Node
}

// Node is one of [Nodes].
type Node struct {
	*schemas.NodeUsage
	figures []figure // in the order of the resources
	highest float64  // the highest of the shares
}

// figure is how much of one resource a node has and how much of it is used.
type figure struct {
	capacity int64 // -1: the node does not know the resource
	used     int64
	share    float64 // used of capacity in percent; 0 when there is no capacity
}

// Measure reads what the nodes have and use of the resources. The nodes may be in any order; they are not changed.
func Measure(nodes []schemas.NodeUsage, resources []corev1.ResourceName) Nodes {
	n := Nodes{resources: resources, all: make([]Node, len(nodes))}
	figures := make([]figure, len(nodes)*len(resources))
	for i := range nodes {
		node := Node{NodeUsage: &nodes[i], figures: figures[:len(resources):len(resources)]}
		figures = figures[len(resources):]
		for j, name := range resources {
			f := measure(&nodes[i], name)
			node.figures[j] = f
			node.highest = max(node.highest, f.share)
		}
		n.all[i] = node
	}
	byName := func(a, b Node) int { return strings.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(n.all, byName) {
		slices.SortFunc(n.all, byName)
	}
	return n
}

func measure(node *schemas.NodeUsage, name corev1.ResourceName) figure {
	f := figure{capacity: -1}
	if amount, known := node.Capacity[name]; known {
		f.capacity = whole(name, amount)
	} else if name == schemas.LoadMetric {
		f.capacity = 100
	}
	f.used = whole(name, node.Used[name])
	if f.capacity > 0 {
		f.share = float64(f.used) / float64(f.capacity) * 100
	}
	return f
}

// upTo is how much of the resource is a limit of the node: all of it without a limit, and nothing of what the node does
// not know. What is below one is cut off, as in the peer.
func (f figure) upTo(l limit) int64 {
	if f.capacity < 0 {
		return 0
	}
	if !l.given {
		return f.capacity
	}
	return int64(l.percent * 0.01 * float64(f.capacity)) // in this order, so that a figure on the edge is the peer's
}

// Split returns the nodes that are of the first kind, then those that are not but are of the second, each in the order of
// names.
func (n Nodes) Split(first, second func(Node) bool) (firsts, seconds []Node) {
	for _, node := range n.all {
		switch {
		case first(node):
			firsts = append(firsts, node)
		case second(node):
			seconds = append(seconds, node)
		}
	}
	return firsts, seconds
}
