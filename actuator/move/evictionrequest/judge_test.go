package evictionrequest

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	lifecycle "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func condition(kind lifecycle.EvictionConditionType, status metav1.ConditionStatus,
	reason lifecycle.EvictionConditionReason, message string) metav1.Condition {
	return metav1.Condition{Type: string(kind), Status: status, Reason: string(reason), Message: message}
}

// awaiting returns the conditions of a request in progress.
func awaiting() []metav1.Condition {
	return []metav1.Condition{
		condition(lifecycle.EvictionConditionTargetEvicted, metav1.ConditionFalse, lifecycle.EvictionConditionReasonAwaitingEviction, ""),
		condition(lifecycle.EvictionConditionFailed, metav1.ConditionFalse, lifecycle.EvictionConditionReasonAwaitingEviction, ""),
	}
}

func TestJudge(t *testing.T) {
	gone := condition(lifecycle.EvictionConditionTargetEvicted, metav1.ConditionTrue,
		lifecycle.EvictionConditionReasonPodDeleted, "")
	ended := condition(lifecycle.EvictionConditionFailed, metav1.ConditionTrue,
		lifecycle.EvictionConditionReasonNoFurtherResponder, "the last of 2 gave up")
	at := metav1.NewTime(time.Date(2026, 11, 21, 13, 0, 0, 0, time.UTC))
	active := lifecycle.EvictionStatus{
		Conditions: awaiting(),
		TargetResponders: []lifecycle.TargetResponder{
			{Name: "example.org/migrate", Priority: new(int32(10000)), State: lifecycle.ResponderStateInterrupted},
			{Name: lifecycle.EvictionResponderImperativeEviction, Priority: new(int32(100)), State: lifecycle.ResponderStateActive},
		},
		Responders: []lifecycle.ResponderStatus{
			{Name: "example.org/migrate", Message: new("stopped")},
			{Name: lifecycle.EvictionResponderImperativeEviction, Message: new("a budget holds it"), ExpectedCompletionTime: &at},
		},
	}
	for _, tt := range []struct {
		name      string
		request   []metav1.Condition
		evictions []lifecycle.EvictionStatus
		want      standing
		words     string
	}{
		{"nothing at all", nil, nil, silent, ""},
		{"it is accepted, and there is no Eviction yet", awaiting(), nil, working, ""},
		{"an Eviction is an answer", nil, []lifecycle.EvictionStatus{{}}, working, ""},
		{"the active responder has a message and a heartbeat", awaiting(), []lifecycle.EvictionStatus{active}, working,
			""},
		{"the request says that the pod was evicted", []metav1.Condition{gone}, nil, evicted, ""},
		{"an Eviction says it first", awaiting(), []lifecycle.EvictionStatus{active, {Conditions: []metav1.Condition{gone}}},
			evicted, ""},
		{"the request says that it failed", []metav1.Condition{ended}, []lifecycle.EvictionStatus{active}, failed,
			"NoFurtherResponder: the last of 2 gave up"},
		{"evicted after all", []metav1.Condition{ended, gone}, nil, evicted, ""},
		{"an Eviction failed, and the request goes on", awaiting(), []lifecycle.EvictionStatus{{Conditions: []metav1.Condition{ended}}},
			working, ""},
		{"an Eviction failed, and the request says nothing", nil, []lifecycle.EvictionStatus{{Conditions: []metav1.Condition{ended}}},
			silent, ""},
		{"an Eviction failed, and another one is at work", nil,
			[]lifecycle.EvictionStatus{{Conditions: []metav1.Condition{ended}}, active}, working,
			""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &lifecycle.EvictionRequest{Status: lifecycle.EvictionRequestStatus{Conditions: tt.request}}
			var evictions []lifecycle.Eviction
			for _, s := range tt.evictions {
				evictions = append(evictions, lifecycle.Eviction{Status: s})
			}
			if got, words := judge(r, evictions); got != tt.want || words != tt.words {
				t.Errorf("got %d %q, want %d %q", got, words, tt.want, tt.words)
			}
		})
	}
}

func TestUnservedPodsUnfit(t *testing.T) {
	owner := func(version, kind string) metav1.ObjectMeta {
		return metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{
			{APIVersion: version, Kind: kind, Name: "owner", UID: "2", Controller: new(true)},
		}}
	}
	for _, tt := range []struct {
		name string
		pod  *corev1.Pod
		want string
	}{
		{"a pod of a ReplicaSet", &corev1.Pod{ObjectMeta: owner("apps/v1", "ReplicaSet")}, ""},
		{"a pod without an owner", &corev1.Pod{}, ""},
		{"a pod of a DaemonSet", &corev1.Pod{ObjectMeta: owner("apps/v1", "DaemonSet")},
			"a pod of a DaemonSet: no responder would answer"},
		{"a mirror pod", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "1"}}},
			"a mirror pod: its kubelet would keep it"},
		{"a pod of a scheduling group", &corev1.Pod{Spec: corev1.PodSpec{SchedulingGroup: &corev1.PodSchedulingGroup{PodGroupName: new("g")}}},
			"a pod of a scheduling group: the API does not serve them"},
		{"a pod that has failed", &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed}},
			"a pod that has ended: no responder would answer"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := unfit(tt.pod); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
