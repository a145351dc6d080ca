package actuator

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/kubeevents"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

func TestKubernetesEventsOnPods(t *testing.T) {
	const taints = "RemovePodsViolatingNodeTaints"
	pod := podReference(wish().Pod)
	deployment := &corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "web", Name: "api", UID: "d"}
	onPod := func(kind, reason, text string) kubeevents.Event {
		return event(pod, nil, kind, reason, text)
	}
	onOwner := func(kind, text string) kubeevents.Event {
		return event(deployment, pod, kind, taints, text)
	}
	const why = "does not tolerate dedicated=gpu:NoSchedule"
	evicted := onPod("Normal", taints, "evicted from node worker-1 by rehome: "+why)
	const restarting = "move off node worker-1 by rehome requested, rollout-restart: the message (" + why + ")"
	moved := wish().Pod.Name
	tests := []struct {
		outcome  schemas.Outcome
		reason   schemas.ReasonCode
		failures bool // evictionFailureEventNotification
		want     []kubeevents.Event
	}{
		{schemas.Evicted, "", false, []kubeevents.Event{evicted}},
		{schemas.Evicted, "", true, []kubeevents.Event{evicted}},
		{schemas.Restarted, "", false, []kubeevents.Event{onPod("Normal", taints, restarting), onOwner("Normal", restarting)}},
		{schemas.Deferred, "", false, []kubeevents.Event{
			onPod("Normal", taints, "eviction from node worker-1 by rehome deferred: the message ("+why+")")}},
		{schemas.Failed, "", false, []kubeevents.Event{
			onPod("Warning", taints, "eviction from node worker-1 by rehome failed: the message ("+why+")")}},
		{schemas.Deferred, "", true, []kubeevents.Event{
			onPod("Warning", "EvictionFailed", "eviction from node worker-1 by rehome deferred: the message ("+why+")")}},
		{schemas.Failed, "", true, []kubeevents.Event{
			onPod("Warning", "EvictionFailed", "eviction from node worker-1 by rehome failed: the message ("+why+")")}},
		{schemas.Settled, schemas.ReasonReplaced, false, []kubeevents.Event{
			event(deployment, nil, "Normal", taints, "moved by rehome: the replacement is ready")}},
		{schemas.Settled, schemas.ReasonCameBack, false, []kubeevents.Event{
			onOwner("Warning", "pod "+moved+" was moved off node worker-1 by rehome, without success: CameBack: the message")}},
		{schemas.Settled, schemas.ReasonTakenBack, true, []kubeevents.Event{
			onPod("Warning", taints, "move of pod "+moved+" off node worker-1 by rehome failed and was taken back: the message"),
			onOwner("Warning", "move of pod "+moved+" off node worker-1 by rehome failed and was taken back: the message")}},
		{schemas.Settled, schemas.ReasonMoveFailed, true, []kubeevents.Event{
			onPod("Warning", taints, "move of pod "+moved+" off node worker-1 by rehome failed: the message"),
			onOwner("Warning", "move of pod "+moved+" off node worker-1 by rehome failed: the message")}},
		{schemas.Rejected, "", true, nil},
		{schemas.Withdrawn, "", true, nil},
		{schemas.Expired, "", false, nil},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%s %s, failures told as such: %v", tt.outcome, tt.reason, tt.failures), func(t *testing.T) {
			v := wish().Verdict(tt.outcome, tt.reason, "the message")
			v.Method, v.Workload = schemas.MethodRestart, &schemas.ObjectRef{Kind: "Deployment", Namespace: "web", Name: "api", UID: "d"}
			expect.Equal(t, "notices", kubernetesEvents(v, tt.failures), tt.want)
			v.DryRun = true
			expect.Equal(t, "notices of a dry run", kubernetesEvents(v, tt.failures), nil)
		})
	}
}

func TestLogNamesOtherMethod(t *testing.T) {
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
			expect.Equal(t, "fields", fields(v), slices.Concat(plain, tt.more))
			expect.Equal(t, "logged as", level(v), tt.level)
		})
	}
}

// TestPublisher settles as many intents as one message can have while the bus does not answer.
func TestPublisher(t *testing.T) {
	const verdicts = 50_000
	var p publisher
	var stored atomic.Int64
	before, answers := runtime.NumGoroutine(), make(chan struct{})
	for range verdicts {
		p.Go(func() { <-answers; stored.Add(1) })
	}
	if n := runtime.NumGoroutine() - before; n > numPublishers {
		t.Errorf("%d goroutines for %d verdicts, want at most %d", n, verdicts, numPublishers)
	}
	close(answers)
	p.Wait()
	expect.Equal(t, "stored verdicts", stored.Load(), verdicts)
}

// The last verdict waits until the bus has stored the others.
func TestVerdictHasTimeOfDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var uids []types.UID
		for i := range 2*numPublishers + 1 {
			uids = append(uids, types.UID(fmt.Sprint(i)))
		}
		m := newMemory()
		slow := policy.Policy{Rate: policy.Rate{EvictionsPerSecond: 0.001, Burst: 1}}
		a := New(Config{Bus: slowPublisher{m}, Ledger: m, Source: "/test/actuator", Policy: slow})
		b := &bench{Actuator: a, bus: m, start: time.Now()}
		end := leads(t, a, always(schemas.Evicted, schemas.ReasonEvictionAccepted, 0))
		b.put("A", 1, uids...)
		time.Sleep(5 * time.Second)
		b.put("A", 2)
		time.Sleep(5 * time.Second)
		withdrawn := map[time.Duration]int{}
		for _, h := range m.heard(t, b.start) {
			if h.Reason == schemas.ReasonSuperseded {
				withdrawn[h.After]++
			}
		}
		expect.Equal(t, "withdrawn", withdrawn, map[time.Duration]int{5 * time.Second: 2 * numPublishers})
		end()
	})
}

// The next leader finds the message, so its drop did not fail.
func TestDropAtEndOfSession(t *testing.T) {
	inBubble(t, Config{Policy: fast}, nil, func(t *testing.T, b *bench) {
		b.bus.mu.Lock()
		b.bus.refuse = errors.New("no response")
		b.bus.mu.Unlock()
		go b.session.Load().drop(schemas.Event{ID: "1", Subject: "node/worker-1"})
		time.Sleep(time.Second)
		b.stop()
		synctest.Wait()
		expect.Equal(t, "an error is logged", strings.Contains(b.log.String(), "level=ERROR"), false)
	})
}
