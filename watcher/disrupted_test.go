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
	target := func(status corev1.ConditionStatus, reason string, age time.Duration) *corev1.Pod {
		return placed("a", "n1", func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.DisruptionTarget, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(now.Add(-age)),
			}}
		})
	}
	const evicted, preempted = "EvictionByEvictionAPI", "PreemptionByScheduler"
	deleted := func(p *corev1.Pod) *corev1.Pod {
		p.DeletionTimestamp = &metav1.Time{Time: now}
		return p
	}
	going := []schemas.Protection{{Rule: "TerminatingPods", Detail: "it is being deleted already"}}
	soon := func(reason string) []schemas.Protection {
		return []schemas.Protection{{Rule: "TerminatingPods", Detail: "it is about to be deleted: " + reason}}
	}
	for _, c := range []struct {
		name  string
		pod   *corev1.Pod
		want  []schemas.Protection
		again time.Time
	}{
		{"a pod without the condition", placed("a", "n1"), nil, time.Time{}},
		{"the condition is false", target(corev1.ConditionFalse, evicted, 0), nil, time.Time{}},
		{"an eviction has just begun", target(corev1.ConditionTrue, evicted, time.Second), soon(evicted), now.Add(14 * time.Second)},
		{"the evicted pod is being deleted", deleted(target(corev1.ConditionTrue, evicted, time.Second)), going, time.Time{}},
		{"the eviction was interrupted", target(corev1.ConditionTrue, evicted, 15*time.Second), nil, time.Time{}},
		{"a preemption has just begun", target(corev1.ConditionTrue, preempted, time.Second), soon(preempted), now.Add(119 * time.Second)},
		{"the preemption was interrupted", target(corev1.ConditionTrue, preempted, 2*time.Minute), nil, time.Time{}},
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
