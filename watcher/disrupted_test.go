package watcher

import (
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas"
)

func TestDisruptedPod(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	target := func(status corev1.ConditionStatus, age time.Duration) *corev1.Pod {
		return placed("a", "n1", func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.DisruptionTarget, Status: status, Reason: "EvictionByEvictionAPI",
				LastTransitionTime: metav1.NewTime(now.Add(-age)),
			}}
		})
	}
	deleted := func(p *corev1.Pod) *corev1.Pod {
		p.DeletionTimestamp = &metav1.Time{Time: now}
		return p
	}
	going := []schemas.Protection{{Rule: "TerminatingPods", Detail: "it is being deleted already"}}
	soon := []schemas.Protection{{Rule: "TerminatingPods", Detail: "it is about to be deleted: EvictionByEvictionAPI"}}
	for _, c := range []struct {
		name  string
		pod   *corev1.Pod
		want  []schemas.Protection
		again time.Time
	}{
		{"a pod without the condition", placed("a", "n1"), nil, time.Time{}},
		{"the condition is false", target(corev1.ConditionFalse, 0), nil, time.Time{}},
		{"an eviction has just begun", target(corev1.ConditionTrue, time.Second), soon, now.Add(119 * time.Second)},
		{"the evicted pod is being deleted", deleted(target(corev1.ConditionTrue, time.Second)), going, time.Time{}},
		{"the eviction has come to nothing", target(corev1.ConditionTrue, 2*time.Minute), nil, time.Time{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := view(t, taintPolicy(""), []*corev1.Node{named("n1"), named("n2")}, []*corev1.Pod{c.pod})
			r, err := s.scopes.Build(key("n1"), nil, now)
			got, _ := r.Scope.(schemas.NodeScope)
			if err != nil || len(got.Pods) != 1 || !reflect.DeepEqual(got.Pods[0].Protected, c.want) || !r.Again.Equal(c.again) {
				t.Errorf("got %+v, %v, again at %v, want %+v, again at %v", got.Pods, err, r.Again, c.want, c.again)
			}
		})
	}
}
