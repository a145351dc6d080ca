package candidate

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/policy"
)

func pod(name string, priority int32, class corev1.PodQOSClass, annotations ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name}, Status: corev1.PodStatus{QOSClass: class}}
	if priority != 0 {
		p.Spec.Priority = &priority
	}
	for _, key := range annotations {
		p.Annotations = map[string]string{key: "false"}
	}
	return p
}

func TestMoveOrder(t *testing.T) {
	const best, burst, guaranteed = corev1.PodQOSBestEffort, corev1.PodQOSBurstable, corev1.PodQOSGuaranteed
	other := pod("a", 2, guaranteed)
	other.Namespace = "x"
	younger := pod("b", 2, guaranteed)
	younger.UID = "1"
	want := []*corev1.Pod{
		pod("z", 0, guaranteed, policy.PreferNoEviction), // no priority at all
		pod("y", -1, guaranteed),
		pod("x", 1, best),
		pod("v", 1, burst),
		pod("u", 1, guaranteed),
		pod("w", 1, best, policy.PreferNoEviction),
		pod("a", 2, guaranteed),
		pod("b", 2, guaranteed),
		younger,
		other,
	}
	for i, a := range want {
		for j, b := range want {
			expected := max(-1, min(1, i-j))
			if got := Compare(a, b); got != expected {
				t.Errorf("Compare(%s/%s, %s/%s) = %d, want %d", a.Namespace, a.Name, b.Namespace, b.Name, got, expected)
			}
		}
	}
}
