package watcher

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/rehome-dev/rehome/maintenance"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// maintained knows the maintenances and the drain rules, and which nodes each maintenance is about. The zero value knows
// none. Its methods may be called from many goroutines; objects that it returns may not be changed.
type maintained struct {
	// known: all that there is was shown to it. Before, nothing is decided.
	known atomic.Bool

	mu     sync.Mutex
	all    map[string]*v1alpha1.NodeMaintenance
	rules  map[string]map[string]schemas.DrainRuleFact // by namespace, which is empty for those of the cluster, then by name
	nodes  map[string]*corev1.Node
	counts schemas.ClusterFacts
	// What ties a maintenance to a node: it means it, its status has it, its status has it as one that is worked on, and the node
	// bears its mark or what it has said.
	meant, stored, working, borne ties
}

// node takes one change of a node into account, and names the maintenances that it concerns: those that are about the node,
// before or after. How many nodes there are and how the control plane is concerns all of them.
func (m *maintained) node(old, new *corev1.Node) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	name := newest(old, new).Name
	was := m.nodes[name]
	if was != nil && new != nil && m.same(was, new) {
		m.nodes[name] = new
		return nil
	}
	concerned := m.about(name)
	m.count(was, -1)
	m.count(new, 1)
	if m.nodes == nil {
		m.nodes = map[string]*corev1.Node{}
	}
	if m.nodes[name] = new; new == nil {
		delete(m.nodes, name)
	}
	for _, x := range m.all {
		m.meant.tie(x.Name, name, new != nil && maintenance.Selects(x.Spec.Nodes, new))
	}
	m.borne.maintenances(name, bearing(new))
	if was == nil || new == nil || was.UID != new.UID || !countsAlike(was, new) {
		return slices.Sorted(maps.Keys(m.all))
	}
	maps.Copy(concerned, m.about(name))
	return m.existing(concerned)
}

// count takes a node into account, or out of it.
func (m *maintained) count(n *corev1.Node, by int) {
	if n == nil {
		return
	}
	m.counts.Nodes += by
	if maintenance.ControlPlane(n) {
		m.counts.ControlPlane += by
		if maintenance.InService(n) {
			m.counts.ControlPlaneReady += by
		}
	}
}

// countsAlike says whether two nodes count in the same way.
func countsAlike(a, b *corev1.Node) bool {
	controls := maintenance.ControlPlane(a)
	return controls == maintenance.ControlPlane(b) && (!controls || maintenance.InService(a) == maintenance.InService(b))
}

// same says whether nothing of a node has changed that a maintenance looks at, but for the marks of other tools.
func (m *maintained) same(a, b *corev1.Node) bool {
	if a.UID != b.UID || a.Spec.Unschedulable != b.Spec.Unschedulable || !maps.Equal(a.Labels, b.Labels) ||
		!equality.Semantic.DeepEqual(a.Spec.Taints, b.Spec.Taints) ||
		!equality.Semantic.DeepEqual(a.Status.Conditions, b.Status.Conditions) {
		return false
	}
	for _, key := range m.annotations(a.Name) {
		x, has := a.Annotations[key]
		if y, hasToo := b.Annotations[key]; x != y || has != hasToo {
			return false
		}
	}
	return true
}

// annotations are the keys of those that are looked at on a node: those of Rehome, and those of gates.
func (m *maintained) annotations(node string) []string {
	keys := ownAnnotations()
	for name := range m.about(node) {
		keys = append(keys, gateAnnotations(m.all[name])...)
	}
	return keys
}

// about are the names of the maintenances that are about a node, also of those that are not there any more.
func (m *maintained) about(node string) map[string]bool {
	names := map[string]bool{}
	for _, t := range []*ties{&m.meant, &m.stored, &m.borne} {
		maps.Copy(names, t.byNode[node])
	}
	return names
}

// existing are the names of those that are there, sorted.
func (m *maintained) existing(names map[string]bool) []string {
	var list []string
	for name := range names {
		if m.all[name] != nil {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

// maintenance takes one change of a maintenance into account, and names the others that see something of it.
func (m *maintained) maintenance(old, new *v1alpha1.NodeMaintenance) (others []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name := newest(old, new).Name
	was, before := m.all[name], m.shown(name)
	if m.all == nil {
		m.all = map[string]*v1alpha1.NodeMaintenance{}
	}
	if m.all[name] = new; new == nil {
		delete(m.all, name)
	}
	m.tie(name, was, new)
	concerned := map[string]bool{}
	for _, node := range differing(before, m.shown(name)) {
		maps.Copy(concerned, m.about(node))
		if n := m.nodes[node]; n != nil && maintenance.ControlPlane(n) {
			m.aboutControlPlane(concerned)
		}
	}
	delete(concerned, name)
	return m.existing(concerned)
}

// tie ties a maintenance anew. Which nodes it means is only found out when its spec says other ones.
func (m *maintained) tie(name string, was, is *v1alpha1.NodeMaintenance) {
	stored, working := map[string]bool{}, map[string]bool{}
	if is != nil {
		for _, n := range is.Status.Nodes {
			stored[n.Name] = true
			if maintenance.WorkedOn(n.Stage) {
				working[n.Name] = true
			}
		}
	}
	m.stored.nodes(name, stored)
	m.working.nodes(name, working)
	if was != nil && is != nil && equality.Semantic.DeepEqual(was.Spec.Nodes, is.Spec.Nodes) {
		return
	}
	meant := map[string]bool{}
	for _, n := range m.nodes {
		if is != nil && maintenance.Selects(is.Spec.Nodes, n) {
			meant[n.Name] = true
		}
	}
	m.meant.nodes(name, meant)
}

// shown is what others see of a maintenance: all nodes that it means or has begun.
func (m *maintained) shown(name string) schemas.OtherMaintenance {
	x := m.all[name]
	if x == nil {
		return schemas.OtherMaintenance{}
	}
	o := schemas.OtherMaintenance{
		Name: name, Stage: x.Spec.Stage, Since: x.CreationTimestamp.UTC(), Refused: refused(x), Nodes: map[string]v1alpha1.NodeStage{},
	}
	if x.DeletionTimestamp != nil {
		o.Stage = v1alpha1.Complete
	}
	for node := range m.meant.byMaintenance[name] {
		o.Nodes[node] = ""
	}
	for _, n := range x.Status.Nodes {
		o.Nodes[n.Name] = n.Stage
	}
	return o
}

// differing are the nodes of which others see something else.
func differing(a, b schemas.OtherMaintenance) []string {
	all := a.Name != b.Name || a.Stage != b.Stage || !a.Since.Equal(b.Since) || a.Refused != b.Refused
	var list []string
	for node, stage := range a.Nodes {
		if other, has := b.Nodes[node]; all || !has || other != stage {
			list = append(list, node)
		}
	}
	for node := range b.Nodes {
		if _, had := a.Nodes[node]; all || !had {
			list = append(list, node)
		}
	}
	return list
}

// rule takes a drain rule into account, or out of it.
func (m *maintained) rule(r schemas.DrainRuleFact, there bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case !there:
		delete(m.rules[r.Namespace], r.Name)
		return
	case m.rules == nil:
		m.rules = map[string]map[string]schemas.DrainRuleFact{}
	}
	if m.rules[r.Namespace] == nil {
		m.rules[r.Namespace] = map[string]schemas.DrainRuleFact{}
	}
	m.rules[r.Namespace][r.Name] = r
}

// rulesOf are the rules of some namespaces, which are sorted, and then those of the cluster, each by name.
func (m *maintained) rulesOf(namespaces []string) []schemas.DrainRuleFact {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []schemas.DrainRuleFact
	for _, namespace := range append(slices.Clone(namespaces), "") {
		for _, name := range slices.Sorted(maps.Keys(m.rules[namespace])) {
			list = append(list, m.rules[namespace][name])
		}
	}
	return list
}

// names are those of all maintenances, sorted.
func (m *maintained) names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.all))
}

// aboutNode are the maintenances that are about a node, sorted.
func (m *maintained) aboutNode(node string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.existing(m.about(node))
}

// workingOn are the maintenances that work on one of these nodes, sorted.
func (m *maintained) workingOn(nodes ...string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.working.byNode) == 0 {
		return nil // as it is nearly always, for every change of a pod
	}
	names := map[string]bool{}
	for _, n := range nodes {
		maps.Copy(names, m.working.byNode[n])
	}
	return m.existing(names)
}

// atWork are the maintenances that work on any node, sorted.
func (m *maintained) atWork() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.working.byMaintenance))
}

// outline is a maintenance with the nodes that it is about, without what is on them. Of those that are only meant there are no
// more than tell that they are too many.
type outline struct {
	maintenance *v1alpha1.NodeMaintenance
	nodes       []*corev1.Node // by name
	meant       map[string]bool
	counts      schemas.ClusterFacts
	others      []schemas.OtherMaintenance // by name
}

// outline is that of one maintenance. false: it is not there.
func (m *maintained) outline(name string) (outline, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.all[name]
	if x == nil {
		return outline{}, false
	}
	o := outline{maintenance: x, meant: maps.Clone(m.meant.byMaintenance[name]), counts: m.counts}
	others := map[string]bool{}
	names := m.someMeant(name)
	maps.Copy(names, m.stored.byMaintenance[name])
	for node := range m.borne.byMaintenance[name] { // by its name; another one may have had that before
		if n := m.nodes[node]; n != nil && maintenance.Bears(x, n, markOn(n)) {
			names[node] = true
		}
	}
	maps.DeleteFunc(names, func(node string, _ bool) bool { return m.nodes[node] == nil })
	for _, node := range slices.Sorted(maps.Keys(names)) {
		o.nodes = append(o.nodes, m.nodes[node])
		maps.Copy(others, m.meant.byNode[node])
		maps.Copy(others, m.stored.byNode[node])
	}
	o.others = m.others(name, names, others)
	return o, true
}

// others are what a maintenance sees of those that are about its nodes, and of those that hold a node of the control plane if it
// is about one, too.
func (m *maintained) others(name string, nodes, about map[string]bool) (list []schemas.OtherMaintenance) {
	controls := false
	for node := range nodes {
		controls = controls || maintenance.ControlPlane(m.nodes[node])
	}
	for node := range m.working.byNode {
		if n := m.nodes[node]; controls && n != nil && maintenance.ControlPlane(n) {
			maps.Copy(about, m.working.byNode[node])
		}
	}
	delete(about, name)
	for _, other := range m.existing(about) {
		s := m.shown(other)
		if controls {
			s.ControlPlane = m.holding(s)
		}
		maps.DeleteFunc(s.Nodes, func(node string, _ v1alpha1.NodeStage) bool { return !nodes[node] })
		if len(s.Nodes)+len(s.ControlPlane) > 0 {
			list = append(list, s)
		}
	}
	return list
}

// holding are the nodes of the control plane that a maintenance holds, with how far it is. nil: none.
func (m *maintained) holding(o schemas.OtherMaintenance) map[string]v1alpha1.NodeStage {
	var list map[string]v1alpha1.NodeStage
	for node, stage := range o.Nodes {
		if n := m.nodes[node]; n == nil || !maintenance.ControlPlane(n) || !maintenance.Holds(stage) {
			continue
		}
		if list == nil {
			list = map[string]v1alpha1.NodeStage{}
		}
		list[node] = stage
	}
	return list
}

// aboutControlPlane adds the maintenances that are about a node of the control plane.
func (m *maintained) aboutControlPlane(names map[string]bool) {
	for _, n := range m.nodes {
		if maintenance.ControlPlane(n) {
			maps.Copy(names, m.about(n.Name))
		}
	}
}

// refused says whether a maintenance is not accepted, by its status.
func refused(x *v1alpha1.NodeMaintenance) bool {
	return meta.IsStatusConditionFalse(x.Status.Conditions, v1alpha1.Accepted)
}

// someMeant are the nodes that a maintenance means. Of too many, they are the first by name that tell so.
func (m *maintained) someMeant(name string) map[string]bool {
	all, some := m.meant.byMaintenance[name], map[string]bool{}
	if len(all) <= maintenance.MostNodes {
		maps.Copy(some, all)
		return some
	}
	for _, node := range slices.Sorted(maps.Keys(all))[:maintenance.MostNodes+1] {
		some[node] = true
	}
	return some
}

// markOn is who has cordoned a node. nil: no maintenance did. A mark that cannot be read is none.
func markOn(n *corev1.Node) *schemas.CordonMark {
	text, set := n.Annotations[schemas.AnnotationMaintenance]
	var mark schemas.CordonMark
	if !set || json.Unmarshal([]byte(text), &mark) != nil || mark.UID == "" {
		return nil
	}
	return &mark
}

// bearing are the names of the maintenances whose mark is on a node, or that have said something on it that is true.
func bearing(n *corev1.Node) map[string]bool {
	names := map[string]bool{}
	if n == nil {
		return names
	}
	if mark := markOn(n); mark != nil {
		names[mark.Name] = true
	}
	const signature = " (maintenance "
	for _, c := range n.Status.Conditions {
		at := strings.LastIndex(c.Message, signature)
		if at < 0 || c.Status != corev1.ConditionTrue {
			continue
		}
		if name := strings.TrimSuffix(c.Message[at+len(signature):], ")"); maintenance.Said(c, name) {
			names[name] = true
		}
	}
	return names
}

// ownAnnotations are the keys of the annotations of nodes that every maintenance looks at.
func ownAnnotations() []string {
	return []string{schemas.AnnotationMaintenance, schemas.AnnotationMaintained}
}

// gateAnnotations are the keys of the annotations of nodes that the gates of a maintenance look at; of nil there are none.
func gateAnnotations(x *v1alpha1.NodeMaintenance) []string {
	var keys []string
	if x != nil {
		for _, g := range x.Spec.Gates {
			if g.Annotation != nil {
				keys = append(keys, g.Annotation.Key)
			}
		}
	}
	return keys
}
