package watcher

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/watcher/index"
)

// loads knows the real load of nodes and pods, as far as it was measured. Its methods may be called from many goroutines,
// and the lists that they return may be changed.
type loads interface {
	// Asked says whether it was tried once to measure.
	Asked(from policy.Load) bool
	// Node is the load of a node; nil if it is not known. pods, their number, is not in it.
	Node(from policy.Load, name string) corev1.ResourceList
	// Pod is the load of a pod; nil if it is not known.
	Pod(from policy.Load, namespace, name string) corev1.ResourceList
}

// usageOfNodes is what is used of every node, as far as the strategy looks at it. A node whose load is asked for and not
// known is left out: it is neither over-used nor a place to go to.
func (s scopes) usageOfNodes(e enabled) []schemas.NodeUsage {
	from, wanted := e.gauged.Load(), e.gauged.Resources()
	var all []index.NodeUsage
	s.groups.read(e, func(ix index.Index) { all = ix.(*index.Usage).Nodes() })
	nodes := make([]schemas.NodeUsage, 0, len(all))
	for _, n := range all {
		used, capacity := n.Requested, capacityOf(n.Node)
		if from.Source != policy.LoadRequests {
			load := s.loads.Node(from, n.Node.Name)
			if load == nil {
				continue
			}
			load[corev1.ResourcePods] = used[corev1.ResourcePods]
			used = load
		}
		if from.Source == policy.LoadPrometheus {
			capacity = corev1.ResourceList{schemas.LoadMetric: *resource.NewQuantity(100, resource.DecimalSI)}
		}
		nodes = append(nodes, schemas.NodeUsage{
			Name: n.Node.Name, Unschedulable: n.Node.Spec.Unschedulable, Taints: n.Node.Spec.Taints,
			Capacity: among(capacity, wanted), Used: among(used, wanted),
		})
	}
	return nodes
}

// usageOfPod is what a pod uses; nil if its load is asked for and not known.
func (s scopes) usageOfPod(e enabled, p *corev1.Pod) corev1.ResourceList {
	from := e.gauged.Load()
	used := index.Requests(p)
	if from.Source != policy.LoadRequests {
		used = s.loads.Pod(from, p.Namespace, p.Name)
		if used == nil {
			return nil
		}
	}
	used[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	return among(used, e.gauged.Resources())
}

// capacityOf is what pods can have of a node.
func capacityOf(n *corev1.Node) corev1.ResourceList {
	if len(n.Status.Allocatable) > 0 {
		return n.Status.Allocatable
	}
	return n.Status.Capacity
}

// among is a list without the resources that nobody asks about.
func among(list corev1.ResourceList, wanted []corev1.ResourceName) corev1.ResourceList {
	kept := make(corev1.ResourceList, len(wanted))
	for _, name := range wanted {
		if quantity, has := list[name]; has {
			kept[name] = quantity
		}
	}
	return kept
}
