package workload

import (
	"cmp"
	"strings"
	"time"
	"unique"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
)

// object is what an informer has to know of what it keeps. It is no Kubernetes object, since even an empty Pod takes
// more than a kilobyte. What many objects have in common is a handle, so that it is in memory once.
type object struct {
	namespace unique.Handle[string]
	name      string
	uid       types.UID
	version   string
}

func keepObject(m metav1.Object) object {
	return object{unique.Make(m.GetNamespace()), m.GetName(), m.GetUID(), m.GetResourceVersion()}
}

// GetObjectMeta is what an informer tells objects apart by.
func (o *object) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: o.namespace.Value(), Name: o.name, UID: o.uid, ResourceVersion: o.version}
}

// GetUID is the UID of the object.
func (o *object) GetUID() types.UID { return o.uid }

// keptPod is what is kept of a Pod.
type keptPod struct {
	object
	// owner is its controller; the zero reference: it has none.
	owner  unique.Handle[schemas.ObjectRef]
	node   unique.Handle[string]
	labels unique.Handle[string] // as [labels.Set] writes them
	why    unique.Handle[string]
	qos    unique.Handle[corev1.PodQOSClass]

	created               time.Time
	seen                  uint64 // set by the index
	priority              int32
	ready, leaving, ended bool
}

func keepPod(p *corev1.Pod) *keptPod {
	k := &keptPod{
		object: keepObject(p), owner: unique.Make(controllerOf(p, "")), node: unique.Make(p.Spec.NodeName),
		labels: unique.Make(labels.Set(p.Labels).String()), why: unique.Make(why(p)), qos: unique.Make(p.Status.QOSClass),
		created: p.CreationTimestamp.Time, leaving: p.DeletionTimestamp != nil,
		ended: p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
	}
	k.ready = !k.leaving && !k.ended && isTrue(podCondition(p, corev1.PodReady))
	if p.Spec.Priority != nil {
		k.priority = *p.Spec.Priority
	}
	return k
}

// controllerOf is the controller of an object, if it is of the kind, or of any for an empty one. Else the zero
// reference.
func controllerOf(m metav1.Object, kind string) schemas.ObjectRef {
	owner := metav1.GetControllerOfNoCopy(m)
	if owner == nil || kind != "" && (owner.Kind != kind || !strings.HasPrefix(owner.APIVersion, appsv1.GroupName+"/")) {
		return schemas.ObjectRef{}
	}
	return schemas.ObjectRef{Kind: owner.Kind, Namespace: m.GetNamespace(), Name: owner.Name, UID: owner.UID}
}

func podCondition(p *corev1.Pod, of corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == of {
			return c
		}
	}
	return nil
}

func isTrue(c *corev1.PodCondition) bool { return c != nil && c.Status == corev1.ConditionTrue }

// longest is how many bytes are kept of what a waiting container says: it can hold all that a registry answered.
const longest = 160

// why says why a pod has no node or is not ready.
func why(p *corev1.Pod) string {
	if p.Spec.NodeName == "" {
		return message(podCondition(p, corev1.PodScheduled))
	}
	ready := podCondition(p, corev1.PodReady)
	if isTrue(ready) {
		return ""
	}
	for _, statuses := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range statuses {
			if w := statuses[i].State.Waiting; w != nil {
				return cut(strings.TrimSuffix(w.Reason+": "+w.Message, ": "))
			}
		}
	}
	return message(ready)
}

// message is what a condition says; where it says nothing, its reason.
func message(c *corev1.PodCondition) string {
	if c == nil {
		return ""
	}
	return cmp.Or(c.Message, c.Reason)
}

// cut shortens a text to what is kept of it, and marks where it was cut.
func cut(text string) string {
	if len(text) <= longest {
		return text
	}
	return strings.ToValidUTF8(text[:longest], "") + "…"
}

// keptController is what is kept of a controller that says how many pods it wants.
type keptController struct {
	object
	ref      schemas.ObjectRef
	replicas int
	// deployment is what controls a ReplicaSet, if it is a Deployment, else the zero reference.
	deployment schemas.ObjectRef
}

func keepController(kind string, m metav1.Object, replicas *int32) *keptController {
	k := &keptController{object: keepObject(m), replicas: 1}
	k.ref = schemas.ObjectRef{Kind: kind, Namespace: m.GetNamespace(), Name: m.GetName(), UID: m.GetUID()}
	if replicas != nil {
		k.replicas = int(*replicas)
	}
	return k
}

func keepReplicaSet(s *appsv1.ReplicaSet) *keptController {
	k := keepController("ReplicaSet", s, s.Spec.Replicas)
	k.deployment = controllerOf(s, "Deployment")
	return k
}

// keptBudget is what is kept of a PodDisruptionBudget: nil for a selector that selects nothing, or cannot be read.
type keptBudget struct {
	object
	selector labels.Selector
}

func keepBudget(b *policyv1.PodDisruptionBudget) *keptBudget {
	k := &keptBudget{object: keepObject(b)}
	if b.Spec.Selector == nil {
		return k
	}
	if selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector); err == nil {
		k.selector = selector
	}
	return k
}

// taint tells the taints of a node apart, as the API server does. The zero value is being cordoned.
type taint struct {
	key    string
	effect corev1.TaintEffect
}

// cordons says whether the taint is being cordoned, or the one that comes with that.
func (t taint) cordons() bool { return t == taint{} || t.key == corev1.TaintNodeUnschedulable }

// keptNode is what is kept of a Node.
type keptNode struct {
	object
	ready bool
	// maintained: it has the mark of a maintenance.
	maintained bool
	// taints are those that keep pods away, and when each is said to have been added; zero: that is not said.
	taints map[taint]time.Time
}

func keepNode(n *corev1.Node) *keptNode {
	_, marked := n.Annotations[schemas.AnnotationMaintenance]
	k := &keptNode{object: keepObject(n), maintained: marked, taints: map[taint]time.Time{}}
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady {
			k.ready = c.Status == corev1.ConditionTrue
		}
	}
	if n.Spec.Unschedulable {
		k.taints[taint{}] = time.Time{}
	}
	for _, t := range n.Spec.Taints {
		if t.Effect != corev1.TaintEffectNoSchedule && t.Effect != corev1.TaintEffectNoExecute {
			continue
		}
		var added time.Time
		if t.TimeAdded != nil {
			added = t.TimeAdded.Time
		}
		k.taints[taint{t.Key, t.Effect}] = added
	}
	return k
}
