// Package functionstest builds the pods and nodes that tests of strategies decide about. Only tests import it.
package functionstest

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// PodOption changes a pod that is being built.
type PodOption = func(*schemas.ScopedPod)

// Pod is the running pod web/NAME on node-1 with the UID uid-NAME, of the quality of service Burstable, that nothing
// protects; with the options applied in their order.
func Pod(name string, options ...PodOption) schemas.ScopedPod {
	p := schemas.ScopedPod{Pod: corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, UID: types.UID("uid-" + name)},
		Spec:       corev1.PodSpec{NodeName: "node-1"},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable},
	}}
	for _, option := range options {
		option(&p)
	}
	return p
}

// Copy is an equal pod that shares nothing with the other.
func Copy(p schemas.ScopedPod) schemas.ScopedPod {
	p.Pod, p.Protected = *p.Pod.DeepCopy(), slices.Clone(p.Protected)
	if p.Elsewhere != nil {
		elsewhere := *p.Elsewhere
		p.Elsewhere = &elsewhere
	}
	return p
}

// Intent is what a strategy answers to move the pod web/NAME from a node, for a reason.
func Intent(name, node, reason string) schemas.Intent {
	return IntentIn("web", name, node, reason)
}

// IntentIn is [Intent] for a pod of any namespace.
func IntentIn(namespace, name, node, reason string) schemas.Intent {
	pod := schemas.PodRef{Namespace: namespace, Name: name, UID: types.UID("uid-" + name)}
	return schemas.Intent{Pod: pod, Node: node, Reason: reason}
}

// In puts the pod into a namespace.
func In(namespace string) PodOption {
	return func(p *schemas.ScopedPod) { p.Pod.Namespace = namespace }
}

// On puts the pod on a node.
func On(node string) PodOption {
	return func(p *schemas.ScopedPod) { p.Pod.Spec.NodeName = node }
}

// Labelled adds a label.
func Labelled(key, value string) PodOption {
	return func(p *schemas.ScopedPod) { p.Pod.Labels = with(p.Pod.Labels, key, value) }
}

// Priority sets the priority, which pods do not have otherwise.
func Priority(value int32) PodOption {
	return func(p *schemas.ScopedPod) { p.Pod.Spec.Priority = &value }
}

// Quality sets the quality of service.
func Quality(class corev1.PodQOSClass) PodOption {
	return func(p *schemas.ScopedPod) { p.Pod.Status.QOSClass = class }
}

// Phase sets the phase.
func Phase(phase corev1.PodPhase) PodOption {
	return func(p *schemas.ScopedPod) { p.Pod.Status.Phase = phase }
}

// ReluctantToMove gives the pod the annotation that asks to move others first.
func ReluctantToMove() PodOption {
	return func(p *schemas.ScopedPod) { p.Pod.Annotations = with(p.Pod.Annotations, policy.PreferNoEviction, "") }
}

// Protected protects the pod by a rule.
func Protected(rule string) PodOption {
	return func(p *schemas.ScopedPod) {
		p.Protected = append(p.Protected, schemas.Protection{Rule: rule, Detail: "for the test"})
	}
}

// Terminating marks the pod as being deleted, and protects it as that does.
func Terminating() PodOption {
	return func(p *schemas.ScopedPod) {
		Deleted()(p)
		Protected(policy.TerminatingPods)(p)
	}
}

// Deleted marks the pod as being deleted, and does not protect it: that it stays is up to the strategy alone.
func Deleted() PodOption {
	return func(p *schemas.ScopedPod) { p.Pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1_790_000_000, 0)} }
}

// OwnedBy adds an owner.
func OwnedBy(kind, name string) PodOption {
	return func(p *schemas.ScopedPod) {
		p.Pod.OwnerReferences = append(p.Pod.OwnerReferences, metav1.OwnerReference{Kind: kind, Name: name})
	}
}

// Images adds a container for each image.
func Images(images ...string) PodOption {
	return func(p *schemas.ScopedPod) {
		p.Pod.Spec.Containers = append(p.Pod.Spec.Containers, containers(images)...)
	}
}

// InitImages adds an init container for each image.
func InitImages(images ...string) PodOption {
	return func(p *schemas.ScopedPod) {
		p.Pod.Spec.InitContainers = append(p.Pod.Spec.InitContainers, containers(images)...)
	}
}

func containers(images []string) []corev1.Container {
	var list []corev1.Container
	for _, image := range images {
		list = append(list, corev1.Container{Name: image, Image: image})
	}
	return list
}

// Tolerating adds tolerations.
func Tolerating(tolerations ...corev1.Toleration) PodOption {
	return func(p *schemas.ScopedPod) { p.Pod.Spec.Tolerations = append(p.Pod.Spec.Tolerations, tolerations...) }
}

// ToleratingKeys adds a toleration of every taint with the key for each of the keys; the empty key is any key.
func ToleratingKeys(keys ...string) PodOption {
	return func(p *schemas.ScopedPod) {
		for _, key := range keys {
			Tolerating(corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})(p)
		}
	}
}

// with is the map with one more entry.
func with(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}

// Taint reads KEY[=VALUE]:EFFECT.
func Taint(text string) corev1.Taint {
	rest, effect, _ := strings.Cut(text, ":")
	key, value, _ := strings.Cut(rest, "=")
	return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}
}
