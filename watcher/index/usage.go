package index

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Cluster is the only key of [Usage].
const Cluster = "cluster"

// Usage keeps what the pods on each node request together. It has one group.
type Usage struct {
	// Settles is how long after a move the group is at rest at the earliest. Zero: when the pod has been replaced.
	Settles time.Duration
	unrest
	nodes map[string]*using
}

type using struct {
	node      *corev1.Node // nil: does not count
	pods      map[types.UID]*corev1.Pod
	requested corev1.ResourceList
}

// NewUsage makes an empty index.
func NewUsage() *Usage { return &Usage{nodes: map[string]*using{}} }

// Add implements [Index].
func (u *Usage) Add(m Member) []string {
	n := u.on(m.Node.Name)
	n.pods[m.Pod.UID] = m.Pod
	for name, quantity := range Requests(m.Pod) {
		sum := n.requested[name]
		sum.Add(quantity)
		n.requested[name] = sum
	}
	return []string{Cluster}
}

// Remove implements [Index].
func (u *Usage) Remove(m Member) []string {
	n := u.on(m.Node.Name)
	delete(n.pods, m.Pod.UID)
	for name, quantity := range Requests(m.Pod) {
		sum := n.requested[name]
		sum.Sub(quantity)
		n.requested[name] = sum
	}
	u.tidy(m.Node.Name)
	return []string{Cluster}
}

// Of implements [Index].
func (u *Usage) Of(Member) []string { return []string{Cluster} }

// SetNode implements [Index].
func (u *Usage) SetNode(before, after *corev1.Node) []string {
	if before != nil {
		u.on(before.Name).node = nil
	}
	if after != nil {
		u.on(after.Name).node = after
	}
	if before != nil {
		u.tidy(before.Name)
	}
	return []string{Cluster}
}

// Waits implements [Index]. Pods that wait use nothing, so only those matter that can be replacements of moved ones.
func (u *Usage) Waits(p *corev1.Pod, waits bool, now time.Time) {
	if !waits || !u.left.IsZero() && now.Sub(u.left) < whileWaiting {
		u.waits(p.UID, waits, now)
	}
}

// Left implements [Index]. Pods come and go all the time; only moves count, see [Usage.Moved].
func (u *Usage) Left(*corev1.Pod, time.Time) {}

// Moved says that a pod was moved because of what the nodes use. The group is not at rest until that has settled.
func (u *Usage) Moved(at time.Time) {
	if at.After(u.left) {
		u.left = at
	}
}

// Rest implements [Index].
func (u *Usage) Rest(string) time.Time {
	rest := u.until()
	if settled := u.left.Add(u.Settles); u.Settles > 0 && !u.left.IsZero() && settled.After(rest) {
		return settled
	}
	return rest
}

// Keys implements [Index].
func (u *Usage) Keys() []string { return []string{Cluster} }

// Has implements [Index].
func (u *Usage) Has(key string) bool { return key == Cluster }

// NodeUsage is a node with what the pods on it request.
type NodeUsage struct {
	Node *corev1.Node
	// Requested includes pods, their number.
	Requested corev1.ResourceList
}

// Nodes are all that count, in the order of their names. The caller must not change the lists.
func (u *Usage) Nodes() []NodeUsage {
	all := make([]NodeUsage, 0, len(u.nodes))
	for _, name := range slices.Sorted(maps.Keys(u.nodes)) {
		n := u.nodes[name]
		if n.node == nil {
			continue
		}
		requested := maps.Clone(n.requested)
		requested[corev1.ResourcePods] = *resource.NewQuantity(int64(len(n.pods)), resource.DecimalSI)
		all = append(all, NodeUsage{Node: n.node, Requested: requested})
	}
	return all
}

// Pods are those on a node, in the order of their namespaces and names.
func (u *Usage) Pods(node string) []*corev1.Pod {
	n := u.nodes[node]
	if n == nil {
		return nil
	}
	pods := make([]*corev1.Pod, 0, len(n.pods))
	for _, p := range n.pods {
		pods = append(pods, p)
	}
	sortPods(pods)
	return pods
}

func (u *Usage) on(name string) *using {
	n := u.nodes[name]
	if n == nil {
		n = &using{pods: map[types.UID]*corev1.Pod{}, requested: corev1.ResourceList{}}
		u.nodes[name] = n
	}
	return n
}

func (u *Usage) tidy(name string) {
	if n := u.nodes[name]; n.node == nil && len(n.pods) == 0 {
		delete(u.nodes, name)
	}
}

// Requests are what a pod requests as the scheduler counts it: init and sidecar containers, overhead and requests of the
// pod as a whole included.
func Requests(p *corev1.Pod) corev1.ResourceList {
	return resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
}
