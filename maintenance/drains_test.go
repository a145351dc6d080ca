package maintenance

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/bustest"
	"github.com/rehome-dev/rehome/test/expect"
)

// A move that was undone is an attempt: the next one waits, and the status names the reason.
func TestMoveTakenBack(t *testing.T) {
	b := natsBus{bustest.New(t)}
	view, err := cluster.NewOffline(Kinds()...)
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{Bus: b, Source: "/test/maintenance", View: view}).newSession(nil)
	if err := s.load(t.Context(), "kernel"); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	wanted := []schemas.Intent{{Pod: schemas.PodRef{Namespace: "shop", Name: "cart", UID: "cart"}, Node: "n1"}}
	if err := s.publish(t.Context(), "kernel", wanted, nil, now); err != nil {
		t.Fatal(err)
	}
	e := s.drains.of("kernel").entries["cart"]
	verdict := func(outcome schemas.Outcome, reason schemas.ReasonCode, message string) {
		t.Helper()
		v := schemas.Verdict{
			Outcome: outcome, Reason: reason, Message: message, Strategy: schemas.MaintenanceStrategy, Intent: e.intent,
			Scope: schemas.ScopeRef{Kind: schemas.MaintenanceKind, Key: "kernel"},
		}
		event, err := schemas.NewEvent("/test/actuator", v, now, schemas.Event{})
		if err != nil {
			t.Fatal(err)
		}
		s.verdict(event)
	}
	verdict(schemas.Restarted, schemas.ReasonRestartAccepted, "")
	if err := s.publish(t.Context(), "kernel", nil, map[types.UID]bool{"cart": true}, now); err != nil { // lists the pod in flight again
		t.Fatal(err)
	}
	verdict(schemas.Settled, schemas.ReasonTakenBack, "the rollout is stuck")
	last, moving := s.drains.lastVerdict("kernel", "cart")
	if last == nil {
		t.Fatal("the drain has no last verdict")
	}
	last.Since = time.Time{}
	expect.Equal(t, "last verdict", *last, plan.LastVerdict{Outcome: schemas.Settled, Reason: schemas.ReasonTakenBack, Message: "the rollout is stuck"})
	expect.Equal(t, "moving, may still move", []bool{moving, e.mayMove()}, []bool{false, false})
	expect.Equal(t, "attempts", e.attempts, 1)
	if !e.retryAt.After(now) {
		t.Errorf("the next try is at %v, want after %v", e.retryAt, now)
	}
}
