package watcher

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/maintenance"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// maintenanceRules say what forbids to move a pod of a maintenance.
type maintenanceRules interface {
	Protects(pod *corev1.Pod, now time.Time) []schemas.Protection
}

// scope builds the scope of a maintenance. There is none of one that is not there.
func (m *maintaining) scope(head schemas.ScopeHead) (built, error) {
	o, there := m.in.outline(head.Key)
	if !there {
		return built{}, nil
	}
	scope := schemas.MaintenanceScope{
		ScopeHead: head, Maintenance: *o.maintenance, Nodes: []schemas.MaintainedNode{}, Cluster: o.counts, Others: o.others,
	}
	open, next, err := maintenance.Open(o.maintenance.Spec.Window, o.maintenance.CreationTimestamp.Time, head.Now)
	if err == nil { // a schedule that cannot be read is refused by who decides, who reads it too
		scope.InWindow = open
		if !next.IsZero() {
			scope.NextWindow = next.UTC()
		}
	}
	d := decision{m: m, o: &o, scope: &scope, stages: map[string]v1alpha1.NodeStage{}, queries: map[string]bool{}}
	for _, n := range o.maintenance.Status.Nodes {
		d.stages[n.Name] = n.Stage
	}
	namespaces := map[string]map[string]string{}
	for _, n := range o.nodes {
		node, err := d.node(n)
		if err != nil {
			return built{}, err
		}
		for _, p := range node.Pods {
			namespaces[p.Pod.Namespace] = namespaceLabels(m.l.w.cluster)(p.Pod.Namespace)
		}
		scope.Nodes = append(scope.Nodes, node)
	}
	if len(namespaces) > 0 {
		scope.Namespaces, scope.Rules = namespaces, m.in.rulesOf(slices.Sorted(maps.Keys(namespaces)))
	}
	m.gates.want(head.Key, d.queries)
	b := built{scope: scope}
	b.later(maintenance.Due(scope), head.Now)
	return b, nil
}

// decision is what a scope is being built of.
type decision struct {
	m       *maintaining
	o       *outline
	scope   *schemas.MaintenanceScope
	stages  map[string]v1alpha1.NodeStage // as they are stored
	queries map[string]bool               // that the maintenance waits for
}

func (d decision) node(n *corev1.Node) (schemas.MaintainedNode, error) {
	stage := d.stages[n.Name]
	node := schemas.MaintainedNode{
		Node: slimNode(n, d.o.maintenance), Meant: d.o.meant[n.Name], ControlPlane: maintenance.ControlPlane(n), Mark: markOn(n),
		Gates: d.gates(n, stage), Locks: d.m.l.scopes.plan.locks(n),
	}
	if !maintenance.WorkedOn(stage) {
		return node, nil
	}
	pods := d.m.l.w.cluster.PodsOnNode(n.Name)
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, p := range pods {
		if schemas.Ended(p) {
			continue
		}
		is := d.m.tried.of(p.UID)
		pod := schemas.MaintainedPod{ScopedPod: schemas.ScopedPod{Pod: slimPod(p)}, Held: is.held, Moving: is.moving}
		if rules := d.m.l.scopes.plan.maintenance; rules != nil {
			pod.Protected = rules.Protects(p, d.scope.Now)
		}
		node.Pods = append(node.Pods, pod)
	}
	return node, nil
}

// gates are those of the maintenance for a node. A query is only asked while the answer counts.
func (d decision) gates(n *corev1.Node, stage v1alpha1.NodeStage) []schemas.GateFact {
	var list []schemas.GateFact
	for _, g := range d.o.maintenance.Spec.Gates {
		if g.Query == "" {
			open, message := maintenance.GateOpen(g, n)
			list = append(list, schemas.GateFact{Name: g.Name, Open: open, Message: message})
			continue
		}
		query := queryFor(g, n.Name)
		if d.counts(n, stage) {
			d.queries[query] = true
		}
		list = append(list, d.m.gates.fact(g, query))
	}
	return list
}

// counts says whether it depends on gates what becomes of the node now: whether it is begun, or its pods move.
func (d decision) counts(n *corev1.Node, stage v1alpha1.NodeStage) bool {
	x := d.o.maintenance
	if x.DeletionTimestamp != nil || x.Spec.Stage != v1alpha1.Cordon && x.Spec.Stage != v1alpha1.Drain {
		return false
	}
	switch stage {
	case "", v1alpha1.Waiting:
		return d.scope.InWindow && d.o.meant[n.Name]
	case v1alpha1.Claimed, v1alpha1.Cordoned, v1alpha1.Draining:
		return x.Spec.Stage == v1alpha1.Drain
	case v1alpha1.IsDrained, v1alpha1.Held, v1alpha1.Returning, v1alpha1.Returned, v1alpha1.Gone:
	}
	return false
}

// slimNode is what a maintenance looks at of a node: a thousand of them fit into one scope.
func slimNode(n *corev1.Node, x *v1alpha1.NodeMaintenance) corev1.Node {
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: n.Name, UID: n.UID, CreationTimestamp: n.CreationTimestamp, DeletionTimestamp: n.DeletionTimestamp, Labels: n.Labels,
			Annotations: chosen(n.Annotations, append(ownAnnotations(), gateAnnotations(x)...)),
		},
		Spec:   corev1.NodeSpec{Unschedulable: n.Spec.Unschedulable, Taints: n.Spec.Taints},
		Status: corev1.NodeStatus{Conditions: n.Status.Conditions},
	}
}

// slimPod is what a maintenance looks at of a pod.
func slimPod(p *corev1.Pod) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Name, UID: p.UID, CreationTimestamp: p.CreationTimestamp,
			DeletionTimestamp: p.DeletionTimestamp, DeletionGracePeriodSeconds: p.DeletionGracePeriodSeconds,
			Labels: p.Labels, OwnerReferences: p.OwnerReferences, Finalizers: p.Finalizers,
			Annotations: chosen(p.Annotations, []string{corev1.MirrorPodAnnotationKey}),
		},
		Spec: corev1.PodSpec{
			NodeName: p.Spec.NodeName, Tolerations: p.Spec.Tolerations, Priority: p.Spec.Priority,
			PriorityClassName: p.Spec.PriorityClassName, TerminationGracePeriodSeconds: p.Spec.TerminationGracePeriodSeconds,
		},
		Status: corev1.PodStatus{Phase: p.Status.Phase},
	}
}

// chosen are the annotations of some keys; nil for none.
func chosen(annotations map[string]string, keys []string) map[string]string {
	var kept map[string]string
	for _, key := range keys {
		if value, set := annotations[key]; set {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[key] = value
		}
	}
	return kept
}
