package watcher

import (
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
)

func deferral(uid, budget string) schemas.Verdict {
	v := schemas.Verdict{Outcome: schemas.Deferred, Intent: schemas.Intent{Pod: schemas.PodRef{UID: types.UID(uid)}}}
	if budget != "" {
		v.Blockers = []schemas.ObjectRef{{Kind: "PodDisruptionBudget", Namespace: "web", Name: budget}}
	}
	return v
}

func budget(name string) schemas.ObjectRef { return holder("PodDisruptionBudget", "web", name) }

func never(types.NamespacedName) bool  { return false }
func always(types.NamespacedName) bool { return true }

// at0 is the time of these tests.
var at0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestAPodThatIsHeldUntilAKnownTimeIsLookedAtAgainThen(t *testing.T) {
	h := newHeld()
	v := deferral("p", "")
	v.Reason = schemas.ReasonLimitNode
	var got []time.Duration
	for _, again := range []time.Duration{4 * time.Second, 4 * time.Second, time.Hour, -time.Second} {
		v.Again = at0.Add(again)
		got = append(got, h.deferred(v, key("n"), never, at0))
	}
	if want := []time.Duration{4 * time.Second, 4 * time.Second, time.Hour, freedRetry}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestADeferredPodIsLookedAtAgainAfterADelayThatGrows(t *testing.T) {
	h := newHeld()
	var got []time.Duration
	for range 8 {
		got = append(got, h.deferred(deferral("p", "b"), key("n"), never, at0))
	}
	want := []time.Duration{
		15 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute,
		10 * time.Minute, 10 * time.Minute,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestAPodThatTheAPIServerCouldNotBeAskedAboutIsLookedAtAgainSoon(t *testing.T) {
	h := newHeld()
	v := deferral("p", "")
	v.Reason = schemas.ReasonAPIUnavailable
	var got []time.Duration
	for range 3 {
		got = append(got, h.deferred(v, key("n"), never, at0))
	}
	if want := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestABudgetThatIsFreeByTheTimeOfTheVerdictIsTriedSoonButNotAtOnce(t *testing.T) {
	h := newHeld()
	var got []time.Duration
	for range 3 {
		got = append(got, h.deferred(deferral("p", "b"), key("n"), always, at0))
	}
	want := []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestABudgetThatIsFreedWakesEachEvaluationItHeldOnce(t *testing.T) {
	h := newHeld()
	h.deferred(deferral("p1", "b"), key("n1"), never, at0)
	h.deferred(deferral("p2", "b"), key("n1"), never, at0)
	h.deferred(deferral("p3", "other"), key("n2"), never, at0)
	if got, want := h.freed(budget("b")), []evaluation{key("n1")}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := h.freed(budget("b")); got != nil {
		t.Errorf("freed again: got %v, want nothing until the next deferral", got)
	}
	h.deferred(deferral("p2", "b"), key("n1"), never, at0)
	if got, want := h.freed(budget("b")), []evaluation{key("n1")}; !reflect.DeepEqual(got, want) {
		t.Errorf("after the next deferral: got %v, want %v", got, want)
	}
}

func TestTheEndOfAMoveWakesWhatAMoveInFlightHeld(t *testing.T) {
	h := newHeld()
	v := deferral("p1", "")
	v.Blockers = []schemas.ObjectRef{{Kind: "Deployment", Namespace: "web", Name: "api", UID: "before"}}
	h.deferred(v, key("n1"), always, at0)
	v = deferral("p2", "")
	v.Blockers = []schemas.ObjectRef{{Kind: "Node", Name: "n2"}}
	h.deferred(v, key("n2"), always, at0)
	for by, want := range map[schemas.ObjectRef][]evaluation{
		holder("Deployment", "web", "api"): {key("n1")}, holder("Node", "", "n2"): {key("n2")}, holder("Node", "", "n1"): nil,
	} {
		if got := h.freed(by); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, want %v", by, got, want)
		}
	}
}

func TestAForgottenPodLeavesNothingBehind(t *testing.T) {
	h := newHeld()
	h.deferred(deferral("p", "b"), key("n"), never, at0)
	h.forget("p")
	h.forget("unknown")
	if len(h.pods) != 0 || len(h.by) != 0 {
		t.Errorf("left: %v, %v", h.pods, h.by)
	}
	if got := h.deferred(deferral("p", ""), key("n"), never, at0); got != firstRetry {
		t.Errorf("after being forgotten: delay %v, want %v", got, firstRetry)
	}
}
