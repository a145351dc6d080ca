package maintenance

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// Kinds returns the kinds of objects that the role needs in its view of the cluster.
func Kinds() []cluster.Kind {
	return []cluster.Kind{cluster.Nodes, cluster.Pods, cluster.PodDisruptionBudgets, cluster.Namespaces}
}

// addHandlers registers the handlers that enqueue the keys affected by a change of the cache.
func (c *Controller) addHandlers(view *cluster.Cache) {
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

// tableChanged handles every change of the table.
func (c *Controller) tableChanged(name string, is *v1alpha1.NodeMaintenance) {
	node, valid := schemas.InTable(name)
	if !valid {
		c.log.Error("ignoring a maintenance on the bus with an invalid name", "name", name)
		return
	}
	c.maintenanceChanged(name, is)
	if s := c.session.Load(); s != nil {
		s.enqueue(triggerKey, node)
		s.requests.maintenanceChanged(name)
	}
}

// maintenanceChanged handles every change of a maintenance; nil means that it is gone.
func (c *Controller) maintenanceChanged(name string, is *v1alpha1.NodeMaintenance) {
	old := c.objects.set(name, is)
	if s := c.session.Load(); s != nil {
		s.enqueue(maintenanceKey, name)
		if !reflect.DeepEqual(shared(old), shared(is)) {
			s.enqueue(maintenanceKey, c.objects.names()...)
		}
	}
}

// shared returns the part of a maintenance that decisions about other maintenances depend on.
func shared(m *v1alpha1.NodeMaintenance) any {
	if m == nil {
		return nil
	}
	refused := meta.IsStatusConditionFalse(m.Status.Conditions, v1alpha1.Accepted)
	return []any{m.UID, m.Spec.Nodes, m.Spec.Stage, m.Spec.Window, m.DeletionTimestamp != nil, refused, plan.Stages(m.Status)}
}

// ruleChanged handles every change of a drain rule. A cluster rule has no namespace.
func (c *Controller) ruleChanged(r plan.Rule, exists bool) {
	if exists {
		_ = c.objects.rules.Update(r)
	} else {
		_ = c.objects.rules.Delete(r)
	}
	if r.Namespace != "" {
		c.namespaceChanged(r.Namespace)
	} else if s := c.session.Load(); s != nil {
		s.enqueue(maintenanceKey, c.objects.names()...)
	}
}

// namespaceChanged enqueues the maintenances that have a node in progress with a pod of the namespace.
func (c *Controller) namespaceChanged(namespace string) {
	if s := c.session.Load(); s != nil {
		nodes := map[string]bool{}
		for _, p := range c.cfg.View.PodsInNamespace(namespace) {
			nodes[p.Spec.NodeName] = true
		}
		s.enqueue(maintenanceKey, c.objects.workingOn(slices.Collect(maps.Keys(nodes))...)...)
	}
}

// nodeChanged enqueues the maintenances of a node. Any maintenance can depend on the number of nodes, and on how many nodes
// of the control plane are in service.
func (c *Controller) nodeChanged(old, new *corev1.Node) {
	s := c.session.Load()
	if s == nil || old != nil && new != nil && !nodeDiffers(old, new) {
		return
	}
	names := c.objects.names()
	if old != nil && new != nil && plan.ControlPlane(old) == plan.ControlPlane(new) &&
		(!plan.ControlPlane(new) || plan.InService(old) == plan.InService(new)) {
		names = c.objects.affectedBy(old, new)
	}
	s.enqueue(maintenanceKey, names...)
	s.enqueue(triggerKey, cmp.Or(new, old).Name)
}

// nodeDiffers reports whether a change of a node can matter to a maintenance.
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
		s.drains.podGone(old.UID)
	}
	var nodes []string
	for _, p := range []*corev1.Pod{old, new} {
		if p != nil && p.Spec.NodeName != "" {
			nodes = append(nodes, p.Spec.NodeName)
		}
	}
	names := c.objects.workingOn(nodes...)
	if len(names) > 0 && (old == nil || new == nil || podDiffers(old, new)) {
		s.enqueue(maintenanceKey, names...)
	}
}

// podDiffers reports whether a change of a pod can matter to a maintenance.
func podDiffers(a, b *corev1.Pod) bool {
	return a.UID != b.UID || a.Spec.NodeName != b.Spec.NodeName || schemas.Ended(a) != schemas.Ended(b) ||
		!a.DeletionTimestamp.Equal(b.DeletionTimestamp) || !slices.Equal(a.Finalizers, b.Finalizers) ||
		!maps.Equal(a.Labels, b.Labels) || !maps.Equal(a.Annotations, b.Annotations) ||
		!reflect.DeepEqual(a.OwnerReferences, b.OwnerReferences)
}

// budgetChanged retries the pods that the budget blocked, if it allows a disruption now.
func (c *Controller) budgetChanged(b *policyv1.PodDisruptionBudget) {
	if s := c.session.Load(); s != nil && b != nil && cluster.Allows(b) {
		budget := schemas.ObjectRef{Kind: "PodDisruptionBudget", Namespace: b.Namespace, Name: b.Name}
		s.enqueue(maintenanceKey, s.drains.freed(budget)...)
	}
}
