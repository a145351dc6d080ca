package watcher

import (
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/watcher/index"
)

// groups keeps the indexes of the strategies that decide about groups of pods. It shows them the cluster as the policy
// sees it: without the nodes from which nothing may be moved, and without pods that have ended. Its methods may be called
// from many goroutines.
type groups struct {
	plan *plan
	mu   sync.Mutex
	// indexes are those of the plan's strategies, by their position; nil for one that does not decide about groups.
	indexes []index.Index
	any     bool // one of them is not nil
	nodes   map[string]*corev1.Node
	pods    map[types.UID]*corev1.Pod
	onNode  map[string]map[types.UID]*corev1.Pod
	// settled is when groups are at rest that pods left before anything was known.
	settled time.Time
}

// touched are the keys of groups that a change concerns, by the position of the strategy in the plan.
type touched map[int][]string

func (t touched) add(at int, keys []string) {
	for _, key := range keys {
		if !slices.Contains(t[at], key) {
			t[at] = append(t[at], key)
		}
	}
}

// newGroups makes the indexes that the plan needs, empty. labelsOf gives the labels of a namespace, nil if they are not
// known.
func newGroups(p *plan, labelsOf func(string) labels.Set) *groups {
	g := &groups{
		plan: p, indexes: make([]index.Index, len(p.all)), nodes: map[string]*corev1.Node{},
		pods: map[types.UID]*corev1.Pod{}, onNode: map[string]map[types.UID]*corev1.Pod{},
	}
	for i, e := range p.all {
		switch e.strategy.Scope {
		case schemas.WorkloadKind:
			workloads := index.NewWorkloads()
			workloads.Every = e.opaque
			g.indexes[i] = workloads
		case schemas.SpreadKind:
			g.indexes[i] = index.NewSpreads(e.spreading.Constraints)
		case schemas.DomainKind:
			g.indexes[i] = index.NewDomains(labelsOf)
		case schemas.UsageKind:
			usage := index.NewUsage()
			if e.measured() {
				usage.Settles = loadSettles
			}
			g.indexes[i] = usage
		default:
			continue
		}
		g.any = true
	}
	return g
}

// fill takes in everything that list returns. It lists under the lock, so that a change meanwhile is taken in after it: a pod
// that is listed and then deleted would stay in the indexes otherwise.
func (g *groups) fill(list func() ([]*corev1.Node, []*corev1.Pod), now time.Time) {
	if !g.any {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	nodes, pods := list()
	for _, n := range nodes {
		g.setNode(n.Name, n)
	}
	for _, p := range pods {
		g.setPod(nil, p, now)
	}
}

// nodeChanged takes in one change of a node.
func (g *groups) nodeChanged(old, new *corev1.Node) touched {
	if !g.any {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if new == nil {
		return g.setNode(old.Name, nil)
	}
	return g.setNode(new.Name, new)
}

// podChanged takes in one change of a pod.
func (g *groups) podChanged(old, new *corev1.Pod, now time.Time) touched {
	if !g.any {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.setPod(old, new, now)
}

// setNode shows the indexes a node, with its pods taken away before and put back after. The caller holds mu.
func (g *groups) setNode(name string, node *corev1.Node) touched {
	before, after := g.nodes[name], g.view(node)
	if before == nil && after == nil || before != nil && after != nil && sameNode(before, after) {
		return nil
	}
	found := touched{}
	for i, ix := range g.indexes {
		if ix == nil {
			continue
		}
		for _, p := range g.onNode[name] {
			if before != nil {
				found.add(i, ix.Remove(index.Member{Pod: p, Node: before}))
			}
		}
		found.add(i, ix.SetNode(before, after))
		for _, p := range g.onNode[name] {
			if after != nil {
				found.add(i, ix.Add(index.Member{Pod: p, Node: after}))
			}
		}
	}
	if after == nil {
		delete(g.nodes, name)
	} else {
		g.nodes[name] = after
	}
	return found
}

// view is a node as the policy sees it: without the taints that its signals hide; nil if nothing may be moved from it.
func (g *groups) view(node *corev1.Node) *corev1.Node {
	if node == nil || g.plan.unusable(node) != "" {
		return nil
	}
	shown := *node
	shown.Spec.Taints = g.plan.signals.Taints(node.Spec.Taints)
	return &shown
}

// setPod shows the indexes a pod; one that has ended is gone. The caller holds mu.
func (g *groups) setPod(old, new *corev1.Pod, now time.Time) touched {
	found := touched{}
	if old != nil && (new == nil || new.UID != old.UID) {
		g.drop(found, g.pods[old.UID], now, true)
	}
	if new == nil {
		return found
	}
	before := g.pods[new.UID]
	if schemas.Ended(new) {
		g.drop(found, before, now, true)
		return found
	}
	if before != nil && samePod(before, new) {
		return found
	}
	g.drop(found, before, now, before != nil && before.DeletionTimestamp == nil && new.DeletionTimestamp != nil)
	g.pods[new.UID] = new
	if new.Spec.NodeName == "" {
		g.each(func(_ int, ix index.Index) { ix.Waits(new, true, now) })
		return found
	}
	if g.onNode[new.Spec.NodeName] == nil {
		g.onNode[new.Spec.NodeName] = map[types.UID]*corev1.Pod{}
	}
	g.onNode[new.Spec.NodeName][new.UID] = new
	if n := g.nodes[new.Spec.NodeName]; n != nil {
		g.each(func(i int, ix index.Index) { found.add(i, ix.Add(index.Member{Pod: new, Node: n})) })
	}
	return found
}

// drop takes a pod out of the indexes. left: it is gone or on its way out. The caller holds mu.
func (g *groups) drop(found touched, p *corev1.Pod, now time.Time, left bool) {
	if p == nil {
		return
	}
	delete(g.pods, p.UID)
	if on := g.onNode[p.Spec.NodeName]; on != nil {
		delete(on, p.UID)
		if len(on) == 0 {
			delete(g.onNode, p.Spec.NodeName)
		}
	}
	n := g.nodes[p.Spec.NodeName]
	g.each(func(i int, ix index.Index) {
		if p.Spec.NodeName == "" {
			ix.Waits(p, false, now)
		} else if n != nil {
			found.add(i, ix.Remove(index.Member{Pod: p, Node: n}))
		}
		if left {
			ix.Left(p, now)
		}
	})
}

func (g *groups) each(f func(int, index.Index)) {
	for i, ix := range g.indexes {
		if ix != nil {
			f(i, ix)
		}
	}
}

// namespaceChanged takes in other labels of a namespace.
func (g *groups) namespaceChanged(name string) touched {
	if !g.any {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	found := touched{}
	g.each(func(i int, ix index.Index) {
		if d, ok := ix.(*index.Domains); ok {
			found.add(i, d.NamespaceChanged(name))
		}
	})
	return found
}

// read calls f with the index of one strategy, which f must not keep. Nothing changes meanwhile, and informer handlers wait: f
// copies what it needs and returns.
func (g *groups) read(e enabled, f func(index.Index)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f(g.indexes[e.at])
}

// keys are the groups of one strategy that can have something to move now.
func (g *groups) keys(e enabled) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.indexes[e.at].Keys()
}

// of are the groups of one strategy that a pod belongs to.
func (g *groups) of(e enabled, p *corev1.Pod) touched {
	g.mu.Lock()
	defer g.mu.Unlock()
	found := touched{}
	if n := g.nodes[p.Spec.NodeName]; n != nil {
		found.add(e.at, g.indexes[e.at].Of(index.Member{Pod: p, Node: n}))
	}
	return found
}

// rest is when the group is at rest if nothing happens until then.
func (g *groups) rest(e enabled, key string) time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	if rest := g.indexes[e.at].Rest(key); rest.After(g.settled) {
		return rest
	}
	return g.settled
}

// settle treats all groups as if a pod had just left each: another leader, or another policy, was in force until now.
func (g *groups) settle(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.settled = now.Add(index.AfterLeaving)
}

// moved says that a pod was moved because of a group, which is not at rest until that has settled.
func (g *groups) moved(e enabled, at time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if u, ok := g.indexes[e.at].(*index.Usage); ok {
		u.Moved(at)
	}
}

// loadMoves remembers when each strategy that goes by load moved a pod last. It outlives policies. The zero value is ready.
type loadMoves struct {
	mu   sync.Mutex
	last map[evaluation]time.Time
}

func (m *loadMoves) note(e enabled, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last == nil {
		m.last = map[evaluation]time.Time{}
	}
	if ev := e.evaluation(index.Cluster); at.After(m.last[ev]) {
		m.last[ev] = at
	}
}

func (m *loadMoves) of(e enabled) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last[e.evaluation(index.Cluster)]
}

// sameNode says whether two states of a node are the same as far as a group can depend on it.
func sameNode(a, b *corev1.Node) bool {
	return a.Spec.Unschedulable == b.Spec.Unschedulable && maps.Equal(a.Labels, b.Labels) &&
		reflect.DeepEqual(a.Spec.Taints, b.Spec.Taints) &&
		sameResources(a.Status.Allocatable, b.Status.Allocatable) && sameResources(a.Status.Capacity, b.Status.Capacity)
}

func sameResources(a, b corev1.ResourceList) bool {
	return maps.EqualFunc(a, b, func(x, y resource.Quantity) bool { return x.Cmp(y) == 0 })
}

// samePod says whether two states of a pod are the same as far as its groups can depend on it.
func samePod(a, b *corev1.Pod) bool {
	return maps.Equal(a.Labels, b.Labels) && (a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil) &&
		reflect.DeepEqual(a.OwnerReferences, b.OwnerReferences) && reflect.DeepEqual(a.Spec, b.Spec)
}
