package maintenance

import (
	"maps"
	"reflect"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// Kinds are the kinds of objects that the role needs in its view of the cluster.
func Kinds() []cluster.Kind {
	return []cluster.Kind{cluster.Nodes, cluster.Pods, cluster.PodDisruptionBudgets, cluster.Namespaces}
}

// Watch lets the changes of a cache enqueue what they concern.
func (c *Controller) Watch(view *cluster.Cache) {
	cluster.AddHandler(view, func(old, new *corev1.Node, _ bool) { c.nodeChanged(old, new) })
	cluster.AddHandler(view, func(old, new *corev1.Pod, initial bool) {
		if !initial {
			c.podChanged(old, new)
		}
	})
	cluster.AddHandler(view, func(_, new *policyv1.PodDisruptionBudget, _ bool) { c.budgetChanged(new) })
	cluster.AddHandler(view, func(old, new *corev1.Namespace, initial bool) {
		if !initial && old != nil && new != nil && !maps.Equal(old.Labels, new.Labels) {
			c.namespaceChanged(new.Name)
		}
	})
}

// index holds the maintenances and the drain rules. Its methods may be called from many goroutines; objects that it returns must
// not be changed.
type index struct {
	mu  sync.Mutex
	all map[string]*v1alpha1.NodeMaintenance
	// rules are by namespace, which is empty for those of the cluster, then by name.
	rules map[string]map[string]plan.Rule
	// inProgress are the maintenances that have a node in progress by their status, by node.
	inProgress map[string]map[string]bool
}

func newIndex() *index {
	return &index{
		all: map[string]*v1alpha1.NodeMaintenance{}, rules: map[string]map[string]plan.Rule{}, inProgress: map[string]map[string]bool{},
	}
}

// set replaces a maintenance; nil: it is gone.
func (x *index) set(name string, m *v1alpha1.NodeMaintenance) (old *v1alpha1.NodeMaintenance) {
	x.mu.Lock()
	defer x.mu.Unlock()
	old = x.all[name]
	if old != nil {
		for _, n := range old.Status.Nodes {
			delete(x.inProgress[n.Name], name)
			if len(x.inProgress[n.Name]) == 0 {
				delete(x.inProgress, n.Name)
			}
		}
	}
	if m == nil {
		delete(x.all, name)
		return old
	}
	x.all[name] = m
	for _, n := range m.Status.Nodes {
		if plan.WorkedOn(n.Stage) {
			if x.inProgress[n.Name] == nil {
				x.inProgress[n.Name] = map[string]bool{}
			}
			x.inProgress[n.Name][name] = true
		}
	}
	return old
}

func (x *index) get(name string) *v1alpha1.NodeMaintenance {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.all[name]
}

// names are the names of all maintenances, sorted.
func (x *index) names() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Sorted(maps.Keys(x.all))
}

// list are all maintenances by name.
func (x *index) list() []*v1alpha1.NodeMaintenance {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.SortedFunc(maps.Values(x.all), func(a, b *v1alpha1.NodeMaintenance) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
}

// workingOn are the maintenances with one of these nodes in progress, sorted.
func (x *index) workingOn(nodes ...string) []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.inProgress) == 0 {
		return nil
	}
	names := map[string]bool{}
	for _, n := range nodes {
		maps.Copy(names, x.inProgress[n])
	}
	return slices.Sorted(maps.Keys(names))
}

// setRule replaces a drain rule, or removes it.
func (x *index) setRule(r plan.Rule, exists bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !exists {
		delete(x.rules[r.Namespace], r.Name)
		return
	}
	if x.rules[r.Namespace] == nil {
		x.rules[r.Namespace] = map[string]plan.Rule{}
	}
	x.rules[r.Namespace][r.Name] = r
}

// rulesOf are the rules of some namespaces, and then those of the cluster, each by name.
func (x *index) rulesOf(namespaces []string) []plan.Rule {
	x.mu.Lock()
	defer x.mu.Unlock()
	var list []plan.Rule
	for _, namespace := range append(slices.Clone(namespaces), "") {
		for _, name := range slices.Sorted(maps.Keys(x.rules[namespace])) {
			list = append(list, x.rules[namespace][name])
		}
	}
	return list
}

// tableChanged is called for every change of the table.
func (c *Controller) tableChanged(name string, is *v1alpha1.NodeMaintenance) {
	node, valid := schemas.InTable(name)
	if !valid {
		c.log.Error("a maintenance of the bus has an invalid name and is ignored", "name", name)
		return
	}
	c.maintenanceChanged(name, is)
	if s := c.session.Load(); s != nil {
		s.enqueue(triggerKey, node)
		s.requests.maintenanceChanged(name)
	}
}

// maintenanceChanged is called for every change of a maintenance; nil: it is gone.
func (c *Controller) maintenanceChanged(name string, is *v1alpha1.NodeMaintenance) {
	old := c.index.set(name, is)
	s := c.session.Load()
	if s == nil {
		return
	}
	s.enqueue(maintenanceKey, name)
	if !reflect.DeepEqual(shown(old), shown(is)) {
		s.enqueue(maintenanceKey, c.index.names()...)
	}
}

// shown is the part of a maintenance that other maintenances depend on.
func shown(m *v1alpha1.NodeMaintenance) any {
	if m == nil {
		return nil
	}
	stages := map[string]v1alpha1.NodeStage{}
	for _, n := range m.Status.Nodes {
		stages[n.Name] = n.Stage
	}
	return []any{m.UID, m.Spec.Nodes, m.Spec.Stage, m.DeletionTimestamp != nil, refused(m), stages}
}

// ruleChanged is called for every change of a drain rule. A rule of the cluster has no namespace.
func (c *Controller) ruleChanged(r plan.Rule, exists bool) {
	c.index.setRule(r, exists)
	if r.Namespace != "" {
		c.namespaceChanged(r.Namespace)
	} else if s := c.session.Load(); s != nil {
		s.enqueue(maintenanceKey, c.index.names()...)
	}
}

// namespaceChanged enqueues the maintenances that have a node in progress with a pod of the namespace.
func (c *Controller) namespaceChanged(namespace string) {
	s := c.session.Load()
	if s == nil {
		return
	}
	nodes := map[string]bool{}
	for _, p := range c.cfg.View.PodsInNamespace(namespace) {
		nodes[p.Spec.NodeName] = true
	}
	s.enqueue(maintenanceKey, c.index.workingOn(slices.Collect(maps.Keys(nodes))...)...)
}

// nodeChanged enqueues every maintenance: a node concerns those that select it, those that hold it, and by the state of the
// control plane any other.
func (c *Controller) nodeChanged(old, new *corev1.Node) {
	s := c.session.Load()
	if s == nil || old != nil && new != nil && !nodeDiffers(old, new) {
		return
	}
	s.enqueue(maintenanceKey, c.index.names()...)
	if new == nil {
		s.enqueue(triggerKey, old.Name)
	} else {
		s.enqueue(triggerKey, new.Name)
	}
}

// nodeDiffers says whether something of a node has changed that a maintenance may look at.
func nodeDiffers(a, b *corev1.Node) bool {
	return a.UID != b.UID || a.Spec.Unschedulable != b.Spec.Unschedulable || a.Spec.ProviderID != b.Spec.ProviderID ||
		!maps.Equal(a.Labels, b.Labels) || !maps.Equal(a.Annotations, b.Annotations) ||
		!equality.Semantic.DeepEqual(a.Spec.Taints, b.Spec.Taints) ||
		!equality.Semantic.DeepEqual(a.Status.Conditions, b.Status.Conditions)
}

// podChanged enqueues the maintenances that have the pod's node in progress.
func (c *Controller) podChanged(old, new *corev1.Pod) {
	s := c.session.Load()
	if s == nil {
		return
	}
	if old != nil && (new == nil || new.UID != old.UID) {
		s.pods.forget(old.UID)
	}
	var nodes []string
	for _, p := range []*corev1.Pod{old, new} {
		if p != nil && p.Spec.NodeName != "" {
			nodes = append(nodes, p.Spec.NodeName)
		}
	}
	names := c.index.workingOn(nodes...)
	if len(names) > 0 && (old == nil || new == nil || podDiffers(old, new)) {
		s.enqueue(maintenanceKey, names...)
	}
}

// podDiffers says whether something of a pod has changed that a maintenance looks at.
func podDiffers(a, b *corev1.Pod) bool {
	return a.UID != b.UID || a.Spec.NodeName != b.Spec.NodeName || schemas.Ended(a) != schemas.Ended(b) ||
		!a.DeletionTimestamp.Equal(b.DeletionTimestamp) || !slices.Equal(a.Finalizers, b.Finalizers) ||
		!maps.Equal(a.Labels, b.Labels) || !maps.Equal(a.Annotations, b.Annotations) ||
		!reflect.DeepEqual(a.OwnerReferences, b.OwnerReferences)
}

// budgetChanged retries the pods that the budget held, if it allows a disruption now.
func (c *Controller) budgetChanged(b *policyv1.PodDisruptionBudget) {
	if s := c.session.Load(); s != nil && b != nil && allows(b) {
		s.enqueue(maintenanceKey, s.drains.freed(blocker("PodDisruptionBudget", b.Namespace, b.Name))...)
	}
}

func allows(b *policyv1.PodDisruptionBudget) bool {
	return b.Status.DisruptionsAllowed > 0 && b.Status.ObservedGeneration >= b.Generation
}
