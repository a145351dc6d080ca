package actuator

import (
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/schemas"
)

func TestPeopleAreToldWhatHappenedToAPodAndNothingElse(t *testing.T) {
	const taints = "RemovePodsViolatingNodeTaints"
	pod := podReference(wish().Intent.Pod)
	deployment := &corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "web", Name: "api", UID: "d"}
	onPod := func(kind, reason, text string) notice {
		return notice{regarding: pod, kind: kind, reason: reason, text: text}
	}
	onOwner := func(kind, text string) notice {
		return notice{regarding: deployment, related: pod, kind: kind, reason: taints, text: text}
	}
	const why = "does not tolerate dedicated=gpu:NoSchedule"
	evicted := onPod("Normal", taints, "evicted from node worker-1 by rehome: "+why)
	const restarting = "move off node worker-1 by rehome requested, rollout-restart: the message (" + why + ")"
	moved := wish().Intent.Pod.Name
	tests := []struct {
		outcome  schemas.Outcome
		reason   schemas.ReasonCode
		failures bool // evictionFailureEventNotification
		want     []notice
	}{
		{schemas.Evicted, "", false, []notice{evicted}},
		{schemas.Evicted, "", true, []notice{evicted}},
		{schemas.Restarted, "", false, []notice{onPod("Normal", taints, restarting), onOwner("Normal", restarting)}},
		{schemas.Deferred, "", false, []notice{
			onPod("Normal", taints, "eviction from node worker-1 by rehome deferred: the message ("+why+")")}},
		{schemas.Failed, "", false, []notice{
			onPod("Warning", taints, "eviction from node worker-1 by rehome failed: the message ("+why+")")}},
		{schemas.Deferred, "", true, []notice{
			onPod("Warning", "EvictionFailed", "eviction from node worker-1 by rehome deferred: the message ("+why+")")}},
		{schemas.Failed, "", true, []notice{
			onPod("Warning", "EvictionFailed", "eviction from node worker-1 by rehome failed: the message ("+why+")")}},
		{schemas.Settled, schemas.ReasonReplaced, false, []notice{
			{regarding: deployment, kind: "Normal", reason: taints, text: "moved by rehome: the replacement is ready"}}},
		{schemas.Settled, schemas.ReasonCameBack, false, []notice{
			onOwner("Warning", "pod "+moved+" was moved off node worker-1 by rehome, without success: CameBack: the message")}},
		{schemas.Settled, schemas.ReasonTakenBack, true, []notice{
			onPod("Warning", taints, "move of pod "+moved+" off node worker-1 by rehome failed and was taken back: the message"),
			onOwner("Warning", "move of pod "+moved+" off node worker-1 by rehome failed and was taken back: the message")}},
		{schemas.Rejected, "", true, nil},
		{schemas.Withdrawn, "", true, nil},
		{schemas.Expired, "", false, nil},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%s %s, failures told as such: %v", tt.outcome, tt.reason, tt.failures), func(t *testing.T) {
			v := wish().Verdict(tt.outcome, tt.reason, "the message")
			v.Method, v.Workload = schemas.MethodRestart, &schemas.ObjectRef{Kind: "Deployment", Namespace: "web", Name: "api", UID: "d"}
			check(t, "notices", kubernetesEvents(v, tt.failures), tt.want)
			v.DryRun = true
			check(t, "notices of a dry run", kubernetesEvents(v, tt.failures), nil)
		})
	}
}

func TestTheLogSaysWhyAPodWentAnotherWayThanWasWanted(t *testing.T) {
	v := wish().Verdict(schemas.Evicted, schemas.ReasonEvictionAccepted, "evicted")
	plain := fields(v)
	for _, tt := range []struct {
		name  string
		why   *schemas.Instead
		more  []any
		level slog.Level
	}{
		{"it went the way that was wanted", nil, nil, slog.LevelInfo},
		{"a right is missing", &schemas.Instead{Method: schemas.MethodSurge, Reason: schemas.ReasonForbidden, Message: "may not"},
			[]any{"insteadOf", schemas.MethodSurge, "insteadReason", schemas.ReasonForbidden, "insteadMessage", "may not"}, slog.LevelWarn},
		{"nobody answered", &schemas.Instead{Method: schemas.MethodEvictionRequest, Reason: schemas.ReasonTakenBack, Message: "silence"},
			[]any{"insteadOf", schemas.MethodEvictionRequest, "insteadReason", schemas.ReasonTakenBack, "insteadMessage", "silence"},
			slog.LevelInfo},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v.Instead = tt.why
			if got, want := fields(v), slices.Concat(plain, tt.more); !reflect.DeepEqual(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
			if got := level(v); got != tt.level {
				t.Errorf("logged as %v, want %v", got, tt.level)
			}
		})
	}
}

func TestANoteIsNoLongerThanTheAPIServerTakes(t *testing.T) {
	for n := maxNote - 4; n < maxNote+4; n++ {
		got := truncate(strings.Repeat("x", n)+"öööö", maxNote)
		if len(got) > maxNote || !utf8.ValidString(got) || !strings.HasSuffix(got, "…") {
			t.Errorf("%d x and four ö become %d bytes ending in %q", n, len(got), got[len(got)-5:])
		}
	}
	check(t, "a short note", truncate("öö", 4), "öö")
}
