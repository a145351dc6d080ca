package scope

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/schemas"
)

// member is a pod that has not ended, with its node. The index must get the same values to remove as to add.
type member struct {
	pod  *corev1.Pod
	node *corev1.Node
}

// index groups the pods of one strategy. The caller holds the lock of the builder. Methods that return keys return the
// groups whose scopes the change can affect.
type index interface {
	add(m member) []string
	remove(m member) []string
	// setNode handles a change of a node. nil is a node that the index does not see; its pods are removed before, or
	// added after.
	setNode(before, after *corev1.Node) []string
	// setPodNode handles a change of the node of a pod, after setNode.
	setPodNode(p *corev1.Pod, before, after *corev1.Node) []string
	namespaceChanged(name string) []string
	// keysOf returns the groups of a member, and cooldownKeys the groups that wait until a pod is replaced.
	keysOf(m member) []string
	cooldownKeys(p *corev1.Pod) []string
	// keys returns the groups that may have a movable pod, in no order. has reports whether one group may.
	keys() []string
	has(key string) bool
	// read copies a group and returns a function that builds its scope without the lock. The key may be unknown.
	read(key string) func(*build) schemas.Payload
}

// groups holds the indexes of all strategies that evaluate groups. The indexes see nodes without the taints that the
// policy ignores, and the pods that have not ended.
type groups struct {
	policy  *CompiledPolicy
	indexes []*indexed
	nodes   map[string]seenNode
	usable  int // the number of usable nodes
	pods    map[types.UID]*corev1.Pod
	onNode  podSets
}

// seenNode is a node without the taints that the policy ignores. The zero value is no node.
type seenNode struct {
	*corev1.Node
	usable bool // pods may leave it
	takes  bool // see CompiledPolicy.Takes
}

// indexed is the index of one strategy, with the cooldowns of its groups.
type indexed struct {
	index
	strategy *Strategy
	// allNodes means that the index sees every node, because the scheduler counts the pods on all of them. The other
	// indexes see only usable nodes.
	allNodes    bool
	cooldowns   map[string]*cooldown
	cooldownFor time.Duration // after a pod left
}

// sees returns the node, or nil if the index does not see it.
func (ix *indexed) sees(n seenNode) *corev1.Node {
	if ix.allNodes || n.usable {
		return n.Node
	}
	return nil
}

// GroupKeys are the affected groups by strategy.
type GroupKeys map[*Strategy][]string

func (k GroupKeys) add(s *Strategy, keys []string) {
	if len(keys) > 0 {
		k[s] = append(k[s], keys...)
	}
}

func newGroups(b *Builder) *groups {
	g := &groups{
		policy: b.policy, nodes: map[string]seenNode{}, pods: map[types.UID]*corev1.Pod{}, onNode: podSets{},
	}
	for _, s := range b.policy.Strategies {
		ix := &indexed{strategy: s, cooldowns: map[string]*cooldown{}, cooldownFor: Cooldown}
		switch s.Scope {
		case schemas.WorkloadKind:
			ix.index = newWorkloads(s.Opaque)
		case schemas.SpreadKind:
			// Without a check of room, a node that takes no replacement must not count as an empty place.
			ix.index, ix.allNodes = newSpreads(s.Spreading.Constraints, b.policy.Takes), s.Spreading.NeedsRoom()
		case schemas.DomainKind:
			ix.index, ix.allNodes = newDomains(b.namespaceLabels), true
		case schemas.UsageKind:
			ix.index = newUsage()
			if s.Measured() {
				ix.cooldownFor = LoadCooldown
			}
		default:
			continue
		}
		g.indexes = append(g.indexes, ix)
	}
	return g
}

func (b *Builder) namespaceLabels(name string) labels.Set {
	of, _ := b.cluster.NamespaceLabels(name)
	return of
}

// Rebuild builds all indexes from the cache. Concurrent changes update both the old indexes and the new ones. Cooldowns
// remain.
func (b *Builder) Rebuild(now time.Time) {
	b.mu.Lock()
	b.journal = []func(*groups) GroupKeys{}
	b.mu.Unlock()
	fresh := newGroups(b)
	for _, n := range b.cluster.AllNodes(labels.Everything()) {
		fresh.setNode(n.Name, n)
	}
	for _, p := range b.cluster.AllPods() {
		fresh.setPod(nil, p, p.CreationTimestamp.Time)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, change := range b.journal {
		change(fresh)
	}
	b.journal = nil
	for i, ix := range b.groups.indexes {
		for key, c := range ix.cooldowns {
			if ix.until(c).After(now) {
				fresh.indexes[i].cooldowns[key] = c
			}
		}
	}
	b.groups = fresh
}

// change applies a change to the indexes. minNodesCrossed reports that the number of usable nodes reached, or fell below, the
// minimum for moves.
func (b *Builder) change(f func(*groups) GroupKeys) (affected GroupKeys, minNodesCrossed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.groups.usable < minNodes
	affected = f(b.groups)
	for s, keys := range affected {
		affected[s] = unique(keys)
	}
	if b.journal != nil {
		b.journal = append(b.journal, f)
	}
	return affected, before != (b.groups.usable < minNodes)
}

// NodeChanged handles a change of a node. minNodesCrossed reports that the number of usable nodes reached, or fell below, the
// minimum for moves.
func (b *Builder) NodeChanged(old, new *corev1.Node) (affected GroupKeys, minNodesCrossed bool) {
	return b.change(func(g *groups) GroupKeys { return g.setNode(cmp.Or(new, old).Name, new) })
}

// PodChanged handles a change of a pod.
func (b *Builder) PodChanged(old, new *corev1.Pod, now time.Time) GroupKeys {
	affected, _ := b.change(func(g *groups) GroupKeys { return g.setPod(old, new, now) })
	return affected
}

// NamespaceChanged handles a change of the labels of a namespace.
func (b *Builder) NamespaceChanged(name string) GroupKeys {
	affected, _ := b.change(func(g *groups) GroupKeys {
		affected := GroupKeys{}
		for _, ix := range g.indexes {
			affected.add(ix.strategy, ix.namespaceChanged(name))
		}
		return affected
	})
	return affected
}

// Keys returns the groups of a strategy that may have a movable pod.
func (b *Builder) Keys(s *Strategy) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.groups.of(s).keys()
}

// KeysOf returns the groups of a strategy that a pod belongs to.
func (b *Builder) KeysOf(s *Strategy, p *corev1.Pod) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	ix := b.groups.of(s)
	if n := ix.sees(b.groups.nodes[p.Spec.NodeName]); n != nil {
		return ix.keysOf(member{p, n})
	}
	return nil
}

// EarliestBuild returns when the cooldown of a group ends.
func (b *Builder) EarliestBuild(s *Strategy, key string) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	ix := b.groups.of(s)
	if c := ix.cooldowns[key]; c != nil && ix.until(c).After(b.cooled) {
		return ix.until(c)
	}
	return b.cooled
}

// CoolDown starts the cooldown of all groups, because another leader or policy was in force until now.
func (b *Builder) CoolDown(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cooled = now.Add(Cooldown)
}

// Moved records that a usage strategy moved a pod.
func (b *Builder) Moved(s *Strategy, at time.Time) {
	if s.Scope == schemas.UsageKind {
		b.change(func(g *groups) GroupKeys {
			g.of(s).cooldown(Cluster).left(at)
			return nil
		})
	}
}

// group builds the scope of a group. The scope of a group without movable pods is empty, which withdraws an earlier
// answer.
func (b *build) group() {
	b.mu.Lock()
	ix := b.groups.of(b.strategy)
	b.Empty = b.groups.usable < minNodes || !ix.has(b.head.Key)
	scope := ix.read(b.head.Key)
	b.mu.Unlock()
	b.Scope = scope(b)
	b.Empty = b.Empty || ix.allNodes && !b.usable
}

// current returns the newest state of a pod. An index can hold an older state, because not every change affects its
// group.
func (b *Builder) current(p *corev1.Pod) *corev1.Pod {
	if newest := b.cluster.PodByUID(p.UID); newest != nil {
		return newest
	}
	return p
}

// of returns the index of a strategy.
func (g *groups) of(s *Strategy) *indexed {
	return g.indexes[slices.IndexFunc(g.indexes, func(ix *indexed) bool { return ix.strategy == s })]
}

func (g *groups) setNode(name string, node *corev1.Node) GroupKeys {
	before, after := g.nodes[name], g.view(node)
	if before.Node == nil && after.Node == nil || sameNode(before, after) {
		return nil
	}
	affected := GroupKeys{}
	for _, ix := range g.indexes {
		was, is := ix.sees(before), ix.sees(after)
		if was != nil && is != nil && (before.usable != after.usable || before.takes != after.takes) {
			g.changeNode(ix, name, was, nil, affected) // affects all groups that count the node
			was = nil
		}
		g.changeNode(ix, name, was, is, affected)
	}
	if before.usable {
		g.usable--
	}
	if after.usable {
		g.usable++
	}
	if after.Node == nil {
		delete(g.nodes, name)
	} else {
		g.nodes[name] = after
	}
	return affected
}

// changeNode tells an index about a change of a node. nil is a node that it does not see.
func (g *groups) changeNode(ix *indexed, name string, before, after *corev1.Node, affected GroupKeys) {
	if before == nil && after == nil {
		return
	}
	if after == nil {
		for _, p := range g.onNode[name] {
			affected.add(ix.strategy, ix.remove(member{p, before}))
		}
	}
	affected.add(ix.strategy, ix.setNode(before, after))
	for _, p := range g.onNode[name] {
		switch {
		case after == nil:
		case before == nil:
			affected.add(ix.strategy, ix.add(member{p, after}))
		default:
			affected.add(ix.strategy, ix.setPodNode(p, before, after))
		}
	}
}

// view returns a node as the policy sees it.
func (g *groups) view(node *corev1.Node) seenNode {
	if node == nil {
		return seenNode{}
	}
	view := *node
	view.Spec.Taints = g.policy.Signals.Taints(node.Spec.Taints)
	return seenNode{Node: &view, usable: g.policy.Unusable(node) == "", takes: g.policy.Takes(&view)}
}

func (g *groups) setPod(old, new *corev1.Pod, now time.Time) GroupKeys {
	affected := GroupKeys{}
	if len(g.indexes) == 0 {
		return affected
	}
	if old != nil && (new == nil || new.UID != old.UID) {
		g.drop(affected, g.pods[old.UID], now, true)
	}
	if new == nil {
		return affected
	}
	before := g.pods[new.UID]
	if schemas.Ended(new) {
		g.drop(affected, before, now, true)
		return affected
	}
	if before != nil && samePod(before, new) {
		return affected
	}
	g.drop(affected, before, now, before != nil && before.DeletionTimestamp == nil && new.DeletionTimestamp != nil)
	g.pods[new.UID] = new
	if new.Spec.NodeName == "" {
		for _, ix := range g.indexes {
			ix.pending(new, true, now)
		}
		return affected
	}
	g.onNode.add(new.Spec.NodeName, new.UID, new)
	for _, ix := range g.indexes {
		if n := ix.sees(g.nodes[new.Spec.NodeName]); n != nil {
			affected.add(ix.strategy, ix.add(member{new, n}))
		}
	}
	return affected
}

// drop removes a pod from the indexes. left reports that it is gone or terminating.
func (g *groups) drop(affected GroupKeys, p *corev1.Pod, now time.Time, left bool) {
	if p == nil {
		return
	}
	delete(g.pods, p.UID)
	g.onNode.remove(p.Spec.NodeName, p.UID)
	for _, ix := range g.indexes {
		if p.Spec.NodeName == "" {
			ix.pending(p, false, now)
		} else if n := ix.sees(g.nodes[p.Spec.NodeName]); n != nil {
			affected.add(ix.strategy, ix.remove(member{p, n}))
		}
		if left && ix.strategy.Scope != schemas.UsageKind { // only moves count there
			for _, key := range ix.cooldownKeys(p) {
				ix.cooldown(key).left(now)
			}
		}
	}
}

// sameNode and samePod report whether two states are equal for all groups. A pod that is being resized is always different.
func sameNode(a, b seenNode) bool {
	return a.Node != nil && b.Node != nil && a.usable == b.usable && a.takes == b.takes &&
		maps.Equal(a.Labels, b.Labels) && sameUsage(a.Node, b.Node)
}

func sameResources(a, b corev1.ResourceList) bool {
	return maps.EqualFunc(a, b, func(x, y resource.Quantity) bool { return x.Cmp(y) == 0 })
}

func samePod(a, b *corev1.Pod) bool {
	return maps.Equal(a.Labels, b.Labels) && a.DeletionTimestamp.Equal(b.DeletionTimestamp) &&
		reflect.DeepEqual(a.OwnerReferences, b.OwnerReferences) && reflect.DeepEqual(a.Spec, b.Spec) &&
		!cluster.Resizing(a) && !cluster.Resizing(b)
}
