package cluster

import (
	"reflect"
	"strings"
	"sync"
	"weak"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// templates shares equal parts among the pods of one controller: pods of one template have most of their spec in
// common. The zero value is ready to use.
type templates struct {
	mu sync.Mutex
	// last is the latest pod of each controller.
	last map[types.UID]weak.Pointer[corev1.Pod]
	// sweep is the size that triggers the removal of entries of deleted pods.
	sweep int
	// strings are shared by many pods, such as node names and condition types.
	strings map[string]string
}

// share replaces parts of a pod by the equal parts of another pod of its controller.
func (t *templates) share(p *corev1.Pod) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shareStrings(p)
	owner := metav1.GetControllerOfNoCopy(p)
	if owner == nil {
		return
	}
	if other := t.last[owner.UID].Value(); other != nil {
		shareParts(p, other)
	}
	if t.last == nil {
		t.last = map[types.UID]weak.Pointer[corev1.Pod]{}
	}
	t.last[owner.UID] = weak.Make(p)
	if len(t.last) < t.sweep {
		return
	}
	for uid, pod := range t.last {
		if pod.Value() == nil {
			delete(t.last, uid)
		}
	}
	t.sweep = max(1024, 2*len(t.last))
}

func shareParts(p, other *corev1.Pod) {
	one(&p.Labels, other.Labels)
	one(&p.Annotations, other.Annotations)
	one(&p.OwnerReferences, other.OwnerReferences)
	one(&p.GenerateName, other.GenerateName)
	one(&p.Finalizers, other.Finalizers)
	s, o := &p.Spec, &other.Spec
	one(&s.Volumes, o.Volumes)
	one(&s.InitContainers, o.InitContainers)
	one(&s.Containers, o.Containers)
	one(&s.NodeSelector, o.NodeSelector)
	one(&s.Affinity, o.Affinity)
	one(&s.Tolerations, o.Tolerations)
	one(&s.TopologySpreadConstraints, o.TopologySpreadConstraints)
	one(&s.TerminationGracePeriodSeconds, o.TerminationGracePeriodSeconds)
	one(&s.Priority, o.Priority)
	one(&s.PriorityClassName, o.PriorityClassName)
	one(&s.Overhead, o.Overhead)
	one(&s.Resources, o.Resources)
}

// one makes two equal values share memory.
func one[T any](mine *T, other T) {
	if reflect.DeepEqual(*mine, other) {
		*mine = other
	}
}

// mostStrings bounds the table of strings. A full table is emptied.
const mostStrings = 100_000

func (t *templates) shareStrings(p *corev1.Pod) {
	if len(t.strings) >= mostStrings || t.strings == nil {
		t.strings = map[string]string{}
	}
	intern(t.strings, &p.Namespace)
	intern(t.strings, &p.Spec.NodeName)
	intern(t.strings, &p.Spec.SchedulerName)
	intern(t.strings, &p.Status.Phase)
	intern(t.strings, &p.Status.QOSClass)
	for i := range p.Status.Conditions {
		c := &p.Status.Conditions[i]
		intern(t.strings, &c.Type)
		intern(t.strings, &c.Status)
		intern(t.strings, &c.Reason)
	}
	for _, statuses := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range statuses {
			intern(t.strings, &statuses[i].Name)
		}
	}
}

func intern[S ~string](known map[string]string, s *S) {
	k, ok := known[string(*s)]
	if !ok {
		k = strings.Clone(string(*s))
		known[k] = k
	}
	*s = S(k)
}
