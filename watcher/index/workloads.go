package index

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Workloads groups pods by owner. The key is NAMESPACE/KIND/NAME. A pod with several owners belongs to several groups.
type Workloads struct {
	// Every counts groups of any shape. Else only those count that have replicas which crowd a node.
	Every bool

	groups     map[string]*workload
	nodes      map[string]*corev1.Node
	placements placements
}

type workload struct {
	unrest
	pods    map[types.UID]*corev1.Pod
	spots   map[spot]int
	crowded int // spots with two pods or more
}

// spot is where replicas of the same images are.
type spot struct{ node, images string }

// NewWorkloads makes an empty index.
func NewWorkloads() *Workloads {
	return &Workloads{groups: map[string]*workload{}, nodes: map[string]*corev1.Node{}, placements: placements{}}
}

// Add implements [Index].
func (w *Workloads) Add(m Member) []string {
	keys := ownerKeys(m.Pod)
	d, of := newDemand(m.Pod, true, true)
	id, _ := digest(of...)
	for _, key := range keys {
		w.placements.add(id, d, "", key, w.nodes)
		g := w.group(key)
		g.pods[m.Pod.UID] = m.Pod
		at := spotOf(m)
		if g.spots[at]++; g.spots[at] == 2 {
			g.crowded++
		}
	}
	return keys
}

// Remove implements [Index].
func (w *Workloads) Remove(m Member) []string {
	keys := ownerKeys(m.Pod)
	_, of := newDemand(m.Pod, true, true)
	id, _ := digest(of...)
	for _, key := range keys {
		w.placements.remove(id, key)
		g := w.group(key)
		delete(g.pods, m.Pod.UID)
		at := spotOf(m)
		switch g.spots[at]--; g.spots[at] {
		case 1:
			g.crowded--
		case 0:
			delete(g.spots, at)
		}
		w.tidy(key, g)
	}
	return keys
}

// Of implements [Index].
func (w *Workloads) Of(m Member) []string { return ownerKeys(m.Pod) }

// SetNode implements [Index]. It names the groups whose replicas crowd a node, and can be placed on other nodes than before.
func (w *Workloads) SetNode(before, after *corev1.Node) []string {
	if before != nil {
		delete(w.nodes, before.Name)
	}
	if after != nil {
		w.nodes[after.Name] = after
	}
	var keys []string
	w.placements.setNode(before, after, func(group string) {
		if w.Has(group) {
			keys = append(keys, group)
		}
	})
	return unique(keys)
}

// Waits implements [Index].
func (w *Workloads) Waits(p *corev1.Pod, waits bool, now time.Time) {
	for _, key := range ownerKeys(p) {
		g := w.group(key)
		g.waits(p.UID, waits, now)
		w.tidy(key, g)
	}
}

// Left implements [Index].
func (w *Workloads) Left(p *corev1.Pod, now time.Time) {
	for _, key := range ownerKeys(p) {
		if g := w.groups[key]; g != nil {
			g.left = now
		}
	}
}

// Keys implements [Index].
func (w *Workloads) Keys() []string {
	var keys []string
	for key, g := range w.groups {
		if w.counts(g) {
			keys = append(keys, key)
		}
	}
	return keys
}

// Has implements [Index].
func (w *Workloads) Has(key string) bool {
	g := w.groups[key]
	return g != nil && w.counts(g)
}

func (w *Workloads) counts(g *workload) bool { return g.crowded > 0 || w.Every && len(g.pods) > 0 }

// Rest implements [Index].
func (w *Workloads) Rest(key string) time.Time {
	if g := w.groups[key]; g != nil {
		return g.until()
	}
	return time.Time{}
}

// Pods are those of a group, in the order of their names.
func (w *Workloads) Pods(key string) []*corev1.Pod {
	g := w.groups[key]
	if g == nil {
		return nil
	}
	pods := make([]*corev1.Pod, 0, len(g.pods))
	for _, p := range g.pods {
		pods = append(pods, p)
	}
	sortPods(pods)
	return pods
}

// Nodes are all that count, in no order.
func (w *Workloads) Nodes() map[string]*corev1.Node { return w.nodes }

func (w *Workloads) group(key string) *workload {
	g := w.groups[key]
	if g == nil {
		g = &workload{pods: map[types.UID]*corev1.Pod{}, spots: map[spot]int{}}
		w.groups[key] = g
	}
	return g
}

// tidy drops a group without pods, once nothing that is remembered of it matters.
func (w *Workloads) tidy(key string, g *workload) {
	if len(g.pods) == 0 && len(g.waiting) == 0 {
		delete(w.groups, key)
	}
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

func spotOf(m Member) spot {
	images := make([]string, len(m.Pod.Spec.Containers))
	for i := range m.Pod.Spec.Containers {
		images[i] = m.Pod.Spec.Containers[i].Image
	}
	slices.Sort(images)
	return spot{node: m.Node.Name, images: strings.Join(images, ",")}
}

// sortPods sorts by namespace, then name, then UID.
func sortPods(pods []*corev1.Pod) {
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		if c := strings.Compare(a.Namespace, b.Namespace); c != 0 {
			return c
		}
		if c := strings.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		return strings.Compare(string(a.UID), string(b.UID))
	})
}
