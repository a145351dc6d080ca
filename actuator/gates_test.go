package actuator

import (
	"cmp"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// wish returns an open intent for pod web/api-0 on worker-1 that expires ten minutes after noon.
func wish() Intent {
	return Intent{
		Profile: "default", Strategy: "RemovePodsViolatingNodeTaints",
		Scope: schemas.ScopeRef{Kind: schemas.NodeKind, Key: "worker-1", Event: "scope-7", Sequence: 7, Since: noon.Add(-time.Second)},
		Intent: schemas.Intent{
			ID: "scope-7.uid-0", Pod: schemas.PodRef{Namespace: "web", Name: "api-0", UID: "uid-0"}, Node: "worker-1",
			Reason: "does not tolerate dedicated=gpu:NoSchedule", Expires: noon.Add(10 * time.Minute),
		},
		Message: schemas.Event{ID: "answer-7", CorrelationID: "delta-1"},
	}
}

// calm returns a situation in which every gate passes wish.
func calm() Situation {
	return Situation{
		Now: noon, Intent: wish(), Enabled: true,
		Pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "api-0", UID: "uid-0"},
			Spec:       corev1.PodSpec{NodeName: "worker-1"},
			Status:     corev1.PodStatus{Phase: corev1.PodRunning},
		},
	}
}

// decidedOn returns the expected verdict on wish.
func decidedOn(o Intent, outcome schemas.Outcome, reason schemas.ReasonCode, message string) schemas.Verdict {
	return schemas.Verdict{
		Outcome: outcome, Reason: reason, Message: message,
		Profile: o.Profile, Strategy: o.Strategy, Scope: o.Scope, Intent: o.Intent,
	}
}

func TestGateOrder(t *testing.T) {
	gone := func(s *Situation) { s.Pod = nil }
	terminating := func(s *Situation) { s.Pod.DeletionTimestamp = &metav1.Time{Time: noon.Add(30 * time.Second)} }
	moved := func(s *Situation) { s.Pod.Spec.NodeName = "worker-2" }
	protected := func(s *Situation) {
		s.Protections = []schemas.Protection{
			{Rule: "DaemonSetPods", Detail: "owned by DaemonSet proxy"},
			{Rule: "PodsWithLocalStorage", Detail: "volume tmp is an emptyDir"},
		}
	}
	succeeded := func(s *Situation) { s.Pod.Status.Phase = corev1.PodSucceeded }
	unknown := func(s *Situation) { s.Enabled = false }
	late := func(s *Situation) { s.Now = noon.Add(11 * time.Minute) }

	tests := []struct {
		name    string
		but     []func(*Situation)
		outcome schemas.Outcome // empty means no rejection
		reason  schemas.ReasonCode
		message string
	}{
		{name: "a running pod on its node is evicted"},
		{"one nanosecond before it expires an intent still counts", []func(*Situation){func(s *Situation) {
			s.Now = noon.Add(10*time.Minute - 1)
		}}, "", "", ""},
		{"an intent is expired from the moment that it names", []func(*Situation){func(s *Situation) {
			s.Now = noon.Add(10 * time.Minute)
		}}, schemas.Expired, schemas.ReasonExpired, "expired at 2026-03-01T12:10:00Z before its turn came"},
		{"a strategy that the policy no longer enables moves nothing", []func(*Situation){unknown},
			schemas.Rejected, schemas.ReasonProfileUnknown,
			`the policy has no profile "default" with strategy "RemovePodsViolatingNodeTaints"`},
		{"a pod that is gone is left alone", []func(*Situation){gone},
			schemas.Rejected, schemas.ReasonPodGone, "the pod is gone"},
		{"another pod of the same name is left alone", []func(*Situation){func(s *Situation) { s.Pod.UID = "uid-1" }},
			schemas.Rejected, schemas.ReasonPodGone, "the pod is gone; another one of its name has UID uid-1"},
		{"a pod that is being deleted is left alone", []func(*Situation){terminating},
			schemas.Rejected, schemas.ReasonPodTerminating, "the pod is being deleted, until 2026-03-01T12:00:30Z"},
		{"a pod that has succeeded is left alone", []func(*Situation){succeeded},
			schemas.Rejected, schemas.ReasonPodEnded, "the pod has succeeded"},
		{"a pod that has failed is left alone", []func(*Situation){func(s *Situation) { s.Pod.Status.Phase = corev1.PodFailed }},
			schemas.Rejected, schemas.ReasonPodEnded, "the pod has failed"},
		{"a pod on another node is left alone", []func(*Situation){moved},
			schemas.Rejected, schemas.ReasonPodMoved, `the pod is on node "worker-2", not on "worker-1"`},
		{"a protected pod is left alone, and every rule is named", []func(*Situation){protected},
			schemas.Rejected, schemas.ReasonProtected,
			"DaemonSetPods: owned by DaemonSet proxy; PodsWithLocalStorage: volume tmp is an emptyDir"},
		{"expiry comes before everything else", []func(*Situation){protected, gone, unknown, late},
			schemas.Expired, schemas.ReasonExpired, "expired at 2026-03-01T12:10:00Z before its turn came"},
		{"the policy comes before the pod", []func(*Situation){protected, gone, unknown},
			schemas.Rejected, schemas.ReasonProfileUnknown,
			`the policy has no profile "default" with strategy "RemovePodsViolatingNodeTaints"`},
		{"gone comes before protected", []func(*Situation){protected, gone},
			schemas.Rejected, schemas.ReasonPodGone, "the pod is gone"},
		{"terminating comes before ended", []func(*Situation){succeeded, terminating},
			schemas.Rejected, schemas.ReasonPodTerminating, "the pod is being deleted, until 2026-03-01T12:00:30Z"},
		{"ended comes before moved", []func(*Situation){moved, succeeded},
			schemas.Rejected, schemas.ReasonPodEnded, "the pod has succeeded"},
		{"moved comes before protected", []func(*Situation){protected, moved},
			schemas.Rejected, schemas.ReasonPodMoved, `the pod is on node "worker-2", not on "worker-1"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := calm()
			for _, change := range tt.but {
				change(&s)
			}
			no := Judge(s)
			if (no != nil) != (tt.outcome != "") {
				t.Fatalf("got %+v, want a refusal: %v", no, tt.outcome != "")
			}
			got := New(Config{}).refused(s.Intent, cmp.Or(no, new(move.Refusal)))
			want := decidedOn(wish(), tt.outcome, tt.reason, tt.message)
			expect.Equal(t, "verdict", got, want)
		})
	}
}

func TestRemoveEndedPod(t *testing.T) {
	for _, phase := range []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed} {
		s := calm()
		s.Pod.Status.Phase = phase
		s.Intent.Ended = true
		if no := Judge(s); no != nil {
			t.Errorf("%s: refused with %+v", phase, no)
		}
	}
}

func BenchmarkGates(b *testing.B) {
	s := calm()
	b.ReportAllocs()
	for b.Loop() {
		if Judge(s) != nil {
			b.Fatal("a gate refuses a calm situation")
		}
	}
}
