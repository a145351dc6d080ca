// Package functionstest builds pods and nodes for tests of strategies. Only tests import it.
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

// PodOption changes a pod under construction.
type PodOption = func(*schemas.ScopedPod)

// Pod returns the running, unprotected pod web/NAME on node-1 with the UID uid-NAME and the quality of service Burstable, after
// applying the options.
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

// Copy returns a deep copy of a pod.
func Copy(p schemas.ScopedPod) schemas.ScopedPod {
	p.Pod, p.Protected = *p.Pod.DeepCopy(), slices.Clone(p.Protected)
	if p.Elsewhere != nil {
		elsewhere := *p.Elsewhere
		p.Elsewhere = &elsewhere
	}
	return p
}

// Intent returns an intent to move the pod web/NAME off a node.
func Intent(name, node, reason string) schemas.Intent {
	return IntentIn("web", name, node, reason)
}

// IntentIn is [Intent] for any namespace.
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

// Priority sets the priority. Pods have none by default.
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

// ReluctantToMove adds the annotation that prefers to move other pods first.
func ReluctantToMove() PodOption {
	return func(p *schemas.ScopedPod) { p.Pod.Annotations = with(p.Pod.Annotations, policy.PreferNoEviction, "") }
}

// Protected protects the pod by a rule.
func Protected(rule string) PodOption {
	return func(p *schemas.ScopedPod) {
		p.Protected = append(p.Protected, schemas.Protection{Rule: rule, Detail: "for the test"})
	}
}

// Terminating marks the pod as terminating, with the protection for that.
func Terminating() PodOption {
	return func(p *schemas.ScopedPod) {
		Deleted()(p)
		Protected(policy.TerminatingPods)(p)
	}
}

// Deleted marks the pod as terminating without a protection, so that only the strategy can keep it.
func Deleted() PodOption {
	return func(p *schemas.ScopedPod) { p.Pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1_790_000_000, 0)} }
}

// Stuck marks the pod as being deleted since long ago, and protects it as that does.
func Stuck() PodOption {
	return func(p *schemas.ScopedPod) {
		Terminating()(p)
		p.Pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(900, 0)}
	}
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

// ToleratingKeys adds a toleration of every taint with one of the keys. The empty key matches all.
func ToleratingKeys(keys ...string) PodOption {
	return func(p *schemas.ScopedPod) {
		for _, key := range keys {
			Tolerating(corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})(p)
		}
	}
}

// with returns a copy of the map with one more entry.
func with(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}

// Taint parses KEY[=VALUE]:EFFECT.
func Taint(text string) corev1.Taint {
	rest, effect, _ := strings.Cut(text, ":")
	key, value, _ := strings.Cut(rest, "=")
	return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}
}
