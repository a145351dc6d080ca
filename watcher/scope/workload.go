package scope

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/fit"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// workloads groups pods by owner. The key is NAMESPACE/KIND/NAME. A pod with several owners belongs to several groups.
type workloads struct {
	every      bool // groups without two pods on a node count, too
	groups     map[string]*workload
	nodes      map[string]*corev1.Node
	placements placements
}

type workload struct {
	pods    map[types.UID]*corev1.Pod
	places  map[place]int
	crowded int // places with two or more pods
}

// place is a node and the images of a pod on it. Two pods with the same place are duplicates.
type place struct{ node, images string }

func newWorkloads(every bool) *workloads {
	return &workloads{every: every, groups: map[string]*workload{}, nodes: map[string]*corev1.Node{}, placements: placements{}}
}

func (w *workloads) add(m member) []string {
	keys := ownerKeys(m.pod)
	for _, key := range keys {
		g := w.groups[key]
		if g == nil {
			g = &workload{pods: map[types.UID]*corev1.Pod{}, places: map[place]int{}}
			w.groups[key] = g
		}
		had := w.has(key)
		g.pods[m.pod.UID] = m.pod
		at := placeOf(m)
		if g.places[at]++; g.places[at] == 2 {
			g.crowded++
		}
		switch {
		case had:
			w.require(key, m.pod)
		case w.has(key):
			w.require(key, slices.Collect(maps.Values(g.pods))...)
		}
	}
	return keys
}

func (w *workloads) remove(m member) []string {
	keys := ownerKeys(m.pod)
	for _, key := range keys {
		g := w.groups[key]
		if g == nil {
			continue
		}
		had := w.has(key)
		delete(g.pods, m.pod.UID)
		at := placeOf(m)
		switch g.places[at]--; g.places[at] {
		case 1:
			g.crowded--
		case 0:
			delete(g.places, at)
		}
		if len(g.pods) == 0 {
			delete(w.groups, key)
		}
		if had {
			w.release(key, m.pod)
		}
		if had && !w.has(key) {
			w.release(key, slices.Collect(maps.Values(g.pods))...)
		}
	}
	return keys
}

// require counts the requirements of the pods of a group with duplicates. Only such groups depend on nodes without
// their pods.
func (w *workloads) require(group string, pods ...*corev1.Pod) {
	for _, p := range pods {
		r, id := newRequirement(p, true, true, nil)
		w.placements.add(id, r, "", group, w.nodes)
	}
}

func (w *workloads) release(group string, pods ...*corev1.Pod) {
	for _, p := range pods {
		_, id := newRequirement(p, true, true, nil)
		w.placements.remove(id, group)
	}
}

// setNode returns the groups with duplicates whose set of possible nodes changed.
func (w *workloads) setNode(before, after *corev1.Node) (keys []string) {
	setNode(w.nodes, before, after)
	w.placements.setNode(before, after, func(group string) { keys = append(keys, group) })
	return keys
}

// setPodNode returns all groups of the pod for a declared strategy, which may read any node label that pods require.
func (w *workloads) setPodNode(p *corev1.Pod, _, _ *corev1.Node) []string {
	if w.every {
		return ownerKeys(p)
	}
	return nil
}

func (w *workloads) namespaceChanged(string) []string { return nil }

func (w *workloads) keysOf(m member) []string { return ownerKeys(m.pod) }

func (w *workloads) cooldownKeys(p *corev1.Pod) []string { return ownerKeys(p) }

func (w *workloads) keys() []string {
	return slices.DeleteFunc(slices.Collect(maps.Keys(w.groups)), func(key string) bool { return !w.has(key) })
}

func (w *workloads) has(key string) bool {
	g := w.groups[key]
	return g != nil && (g.crowded > 0 || w.every)
}

func (w *workloads) read(key string) func(*build) schemas.Payload {
	var pods []*corev1.Pod
	var nodes map[string]*corev1.Node
	if w.has(key) {
		pods, nodes = sorted(w.groups[key].pods), maps.Clone(w.nodes)
	}
	return func(b *build) schemas.Payload {
		scope := schemas.WorkloadScope{ScopeHead: b.head, Pods: []schemas.ScopedPod{}, Nodes: []schemas.NodeGroup{}}
		if b.Empty {
			return scope
		}
		for _, p := range pods {
			scope.Pods = append(scope.Pods, b.scoped(b.current(p)))
		}
		if b.strategy.Needs(policy.FactFit) {
			b.removeUnable(nodes, pods)
		}
		scope.Nodes = nodeGroups(nodes, requiredLabels(pods))
		return scope
	}
}

// removeUnable removes nodes that run none of the pods and have no capacity for one. It checks one pod for each set of
// images, because pods with the same images come from one template.
func (b *build) removeUnable(nodes map[string]*corev1.Node, pods []*corev1.Pod) {
	unable := maps.Clone(nodes)
	asked := map[string]bool{}
	for _, p := range pods {
		delete(unable, p.Spec.NodeName)
		images := imagesOf(p)
		if asked[images] {
			continue
		}
		asked[images] = true
		b.cluster.Ask(p, func(q *fit.Question) {
			maps.DeleteFunc(unable, func(name string, _ *corev1.Node) bool {
				v := q.On(name)
				return v.OK || !v.Judged
			})
		})
	}
	for name := range unable {
		delete(nodes, name)
	}
	if len(unable) > 0 {
		b.hash("", slices.Sorted(maps.Keys(unable)))
	}
}

// nodeGroups groups nodes with the same taints and the same values of some labels, ordered by their first names.
func nodeGroups(nodes map[string]*corev1.Node, keys []string) []schemas.NodeGroup {
	groups := map[string]*schemas.NodeGroup{}
	for name, n := range nodes {
		var id strings.Builder
		var g schemas.NodeGroup
		for _, key := range keys {
			if value, has := n.Labels[key]; has {
				if g.Labels == nil {
					g.Labels = map[string]string{}
				}
				g.Labels[key] = value
				id.WriteString(key + "=" + value + "\x00")
			}
		}
		for i := range n.Spec.Taints {
			if t := &n.Spec.Taints[i]; fit.KeepsAway(t) {
				g.Taints = append(g.Taints, *t)
				id.WriteString("\x00" + t.Key + "\x00" + t.Value + "\x00" + string(t.Effect))
			}
		}
		if groups[id.String()] == nil {
			groups[id.String()] = &g
		}
		groups[id.String()].Names = append(groups[id.String()].Names, name)
	}
	list := make([]schemas.NodeGroup, 0, len(groups))
	for _, g := range groups {
		slices.Sort(g.Names)
		list = append(list, *g)
	}
	slices.SortFunc(list, func(a, b schemas.NodeGroup) int { return strings.Compare(a.Names[0], b.Names[0]) })
	return list
}

// requiredLabels returns the sorted label keys in the node selectors and the required node affinities of pods.
func requiredLabels(pods []*corev1.Pod) []string {
	keys := map[string]bool{}
	for _, p := range pods {
		for key := range p.Spec.NodeSelector {
			keys[key] = true
		}
		if required := requiredTerms(p); required != nil {
			for _, term := range required.NodeSelectorTerms {
				for _, e := range term.MatchExpressions {
					keys[e.Key] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(keys))
}

func ownerKeys(p *corev1.Pod) []string {
	keys := make([]string, 0, len(p.OwnerReferences))
	for i := range p.OwnerReferences {
		key := p.Namespace + "/" + p.OwnerReferences[i].Kind + "/" + p.OwnerReferences[i].Name
		if !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

func placeOf(m member) place {
	return place{node: m.node.Name, images: imagesOf(m.pod)}
}

func imagesOf(p *corev1.Pod) string {
	images := make([]string, len(p.Spec.Containers))
	for i := range p.Spec.Containers {
		images[i] = p.Spec.Containers[i].Image
	}
	slices.Sort(images)
	return strings.Join(images, ",")
}

// setNode updates a map of nodes.
func setNode(nodes map[string]*corev1.Node, before, after *corev1.Node) {
	if before != nil {
		delete(nodes, before.Name)
	}
	if after != nil {
		nodes[after.Name] = after
	}
}

func sorted(pods map[types.UID]*corev1.Pod) []*corev1.Pod {
	return slices.SortedFunc(maps.Values(pods), byName)
}

func unique(keys []string) []string {
	slices.Sort(keys)
	return slices.Compact(keys)
}
