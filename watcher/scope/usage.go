package scope

import (
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/fit"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// Cluster is the only key of usage scopes.
const Cluster = "cluster"

// Loads provides the measured load of nodes and pods. Callers own the lists; nil means the load is unknown.
type Loads interface {
	// FirstRoundDone reports whether the first round of a source is complete.
	FirstRoundDone(from policy.Load) bool
	// Node returns the load of a node, without the number of its pods.
	Node(from policy.Load, name string) corev1.ResourceList
	Pod(from policy.Load, namespace, name string) corev1.ResourceList
}

// usage sums the requests of the pods on each node. It has one group. Every change replaces a sum: a copy of a large
// quantity shares memory with the original, and scopes are built from copies without the lock.
type usage map[string]*usedNode

type usedNode struct {
	node      *corev1.Node // nil if not usable
	pods      map[types.UID]*corev1.Pod
	requested corev1.ResourceList
}

func newUsage() usage { return usage{} }

func (u usage) add(m member) []string {
	n := u.on(m.node.Name)
	n.pods[m.pod.UID] = m.pod
	for name, quantity := range fit.Held(m.pod) {
		sum := n.requested[name].DeepCopy()
		sum.Add(quantity)
		n.requested[name] = sum
	}
	return []string{Cluster}
}

func (u usage) remove(m member) []string {
	n := u.on(m.node.Name)
	delete(n.pods, m.pod.UID)
	for name, quantity := range fit.Held(m.pod) {
		sum := n.requested[name].DeepCopy()
		sum.Sub(quantity)
		n.requested[name] = sum
	}
	u.tidy(m.node.Name)
	return []string{Cluster}
}

func (u usage) setNode(before, after *corev1.Node) []string {
	if before != nil {
		u.on(before.Name).node = nil
		u.tidy(before.Name)
	}
	if after != nil {
		u.on(after.Name).node = after
	}
	if before != nil && after != nil && sameUsage(before, after) {
		return nil
	}
	return []string{Cluster}
}

// sameUsage reports whether two states of a node have the same [schemas.NodeUsage].
func sameUsage(a, b *corev1.Node) bool {
	return a.Spec.Unschedulable == b.Spec.Unschedulable && reflect.DeepEqual(a.Spec.Taints, b.Spec.Taints) &&
		sameResources(a.Status.Allocatable, b.Status.Allocatable) && sameResources(a.Status.Capacity, b.Status.Capacity)
}

func (usage) setPodNode(*corev1.Pod, *corev1.Node, *corev1.Node) []string { return nil }

func (u usage) on(name string) *usedNode {
	n := u[name]
	if n == nil {
		n = &usedNode{pods: map[types.UID]*corev1.Pod{}, requested: corev1.ResourceList{}}
		u[name] = n
	}
	return n
}

func (u usage) tidy(name string) {
	if n := u[name]; n.node == nil && len(n.pods) == 0 {
		delete(u, name)
	}
}

func (usage) namespaceChanged(string) []string  { return nil }
func (usage) keysOf(member) []string            { return []string{Cluster} }
func (usage) cooldownKeys(*corev1.Pod) []string { return []string{Cluster} }
func (usage) keys() []string                    { return []string{Cluster} }
func (usage) has(key string) bool               { return key == Cluster }

// nodeRequests is a node with the requests and the number of its pods.
type nodeRequests struct {
	node      *corev1.Node
	requested corev1.ResourceList
}

// nodes returns the usable nodes by name.
func (u usage) nodes() []nodeRequests {
	all := make([]nodeRequests, 0, len(u))
	for _, name := range slices.Sorted(maps.Keys(u)) {
		n := u[name]
		if n.node == nil {
			continue
		}
		requested := maps.Clone(n.requested)
		requested[corev1.ResourcePods] = *resource.NewQuantity(int64(len(n.pods)), resource.DecimalSI)
		all = append(all, nodeRequests{n.node, requested})
	}
	return all
}

func (u usage) read(string) func(*build) schemas.Payload {
	all := u.nodes()
	return func(b *build) schemas.Payload {
		scope := schemas.UsageScope{ScopeHead: b.head, Nodes: []schemas.NodeUsage{}, Pods: []schemas.UsingPod{}}
		if b.Empty {
			return scope
		}
		nodes := b.nodeUsage(b.strategy, all)
		sources := b.strategy.Gauged.Sources(nodes)
		if len(sources) == 0 {
			b.Empty = true
			return scope
		}
		scope.Nodes = nodes
		var pods []*corev1.Pod
		b.mu.Lock()
		for _, name := range sources {
			if n := u[name]; n != nil {
				pods = append(pods, sorted(n.pods)...)
			}
		}
		b.mu.Unlock()
		for _, p := range pods {
			scope.Pods = append(scope.Pods, schemas.UsingPod{ScopedPod: b.scoped(b.current(p)), Used: b.podUsage(p)})
		}
		return scope
	}
}

// NodeUsage returns the usage of every usable node, for the resources that the strategy considers.
func (b *Builder) NodeUsage(s *Strategy) []schemas.NodeUsage {
	b.mu.Lock()
	all := b.groups.of(s).index.(usage).nodes()
	b.mu.Unlock()
	return b.nodeUsage(s, all)
}

// nodeUsage omits nodes whose measured load is unknown or absurd: pods neither leave such a node nor move to it.
func (b *Builder) nodeUsage(s *Strategy, all []nodeRequests) []schemas.NodeUsage {
	from, wanted := s.Gauged.Load(), s.Gauged.Resources()
	nodes := make([]schemas.NodeUsage, 0, len(all))
	for _, n := range all {
		used, capacity := n.requested, n.node.Status.Allocatable
		if len(capacity) == 0 {
			capacity = n.node.Status.Capacity
		}
		if from.Source != policy.LoadRequests {
			load := b.Loads.Node(from, n.node.Name)
			if load == nil || Absurd(load, n.node.Status) {
				continue
			}
			load[corev1.ResourcePods] = used[corev1.ResourcePods]
			used = load
		}
		if from.Source == policy.LoadPrometheus {
			capacity = corev1.ResourceList{schemas.LoadMetric: *resource.NewQuantity(100, resource.DecimalSI)}
		}
		nodes = append(nodes, schemas.NodeUsage{
			Name: n.node.Name, Unschedulable: n.node.Spec.Unschedulable, Taints: n.node.Spec.Taints,
			Capacity: only(capacity, wanted), Used: only(used, wanted),
		})
	}
	return nodes
}

// Absurd reports whether a load is more than twice the capacity of the node. Turbo frequencies and rounding explain
// smaller excesses.
func Absurd(load corev1.ResourceList, node corev1.NodeStatus) bool {
	for name, quantity := range load {
		most, has := node.Capacity[name]
		if !has {
			most, has = node.Allocatable[name]
		}
		if has && quantity.AsApproximateFloat64() > 2*most.AsApproximateFloat64() {
			return true
		}
	}
	return false
}

// podUsage returns the usage of a pod, or nil if it must be measured and is unknown.
func (b *build) podUsage(p *corev1.Pod) corev1.ResourceList {
	from, used := b.strategy.Gauged.Load(), fit.Held(p)
	if from.Source != policy.LoadRequests {
		if used = b.Loads.Pod(from, p.Namespace, p.Name); used == nil {
			return nil
		}
	}
	used[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	return only(used, b.strategy.Gauged.Resources())
}

// only returns the list without other resources.
func only(list corev1.ResourceList, wanted []corev1.ResourceName) corev1.ResourceList {
	kept := make(corev1.ResourceList, len(wanted))
	for _, name := range wanted {
		if quantity, has := list[name]; has {
			kept[name] = quantity
		}
	}
	return kept
}
