package watcher

import (
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/delivery"
	"github.com/rehome-dev/rehome/test/schematest"
	"github.com/rehome-dev/rehome/watcher/scope"
)

func deferral(uid, budget string) schemas.Verdict {
	v := schemas.Verdict{Outcome: schemas.Deferred, Intent: schemas.Intent{Pod: schemas.PodRef{UID: types.UID(uid)}}}
	if budget != "" {
		v.Blockers = []schemas.ObjectRef{{Kind: "PodDisruptionBudget", Namespace: "web", Name: budget}}
	}
	return v
}

func budget(name string) schemas.ObjectRef { return blocker("PodDisruptionBudget", "web", name) }

func blocker(kind, namespace, name string) schemas.ObjectRef {
	return schemas.ObjectRef{Kind: kind, Namespace: namespace, Name: name}
}

func never(_, _ string) bool  { return false }
func always(_, _ string) bool { return true }

// at0 is the time of these tests.
var at0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestBlockedUntilKnownTime(t *testing.T) {
	h := newBlockedPods()
	v := deferral("p", "")
	v.Reason = schemas.ReasonLimitNode
	var got []time.Duration
	for _, again := range []time.Duration{4 * time.Second, 4 * time.Second, time.Hour, -time.Second} {
		v.Again = at0.Add(again)
		got = append(got, h.deferred(v, key("n"), never, at0))
	}
	if want := []time.Duration{4 * time.Second, 4 * time.Second, time.Hour, 250 * time.Millisecond}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestBlockedDelayGrows(t *testing.T) {
	h := newBlockedPods()
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

// If a strategy stops wanting a move, no verdict says so. Later deferrals have nothing to do with the earlier ones.
func TestBlockedDelayStartsAgain(t *testing.T) {
	for name, c := range map[string]struct {
		late time.Duration // from the last retry to the next deferral
		want []string      // the scopes after the first delay
	}{
		"soon after the retry": {countedFor, nil},
		"days later":           {48 * time.Hour, []string{"nodes n1"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pods := []*corev1.Pod{placed("a", "n1")}
				leading(t, view(t, with("", nodesStrategy()), []*corev1.Node{named("n1"), named("n2")}, pods), func(_ *Watcher, bus *collected) {
					v := deferral(string(pods[0].UID), "")
					v.Profile, v.Strategy, v.Scope = "p", "nodes", schemas.ScopeRef{Kind: schemas.NodeKind, Key: "n1"}
					tell := func() { bus.tell(schematest.Event(t, "/test", v, time.Now(), schemas.Event{})) }
					for attempt := range 8 {
						tell()
						time.Sleep(delivery.RetryDelay(v, attempt+1, never, time.Now()))
					}
					time.Sleep(c.late)
					bus.take(t)
					tell()
					time.Sleep(delivery.FirstRetry)
					if got := bus.take(t); !reflect.DeepEqual(got, c.want) {
						t.Errorf("after %v: got %q, want %q", delivery.FirstRetry, got, c.want)
					}
				})
			})
		})
	}
}

// A verdict can take longer than its delay, for example while calls of the API server time out.
func TestBlockedDelayGrowsAfterLateVerdicts(t *testing.T) {
	h, now := newBlockedPods(), at0
	v := deferral("p", "")
	v.Reason = schemas.ReasonAPIUnavailable
	var got []time.Duration
	for range 3 {
		got = append(got, h.deferred(v, key("n"), never, now))
		now = now.Add(time.Minute)
	}
	if want := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestBlockedByOutage(t *testing.T) {
	h := newBlockedPods()
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

func TestBlockedByFreeBudget(t *testing.T) {
	h := newBlockedPods()
	var got []time.Duration
	for range 3 {
		got = append(got, h.deferred(deferral("p", "b"), key("n"), always, at0))
	}
	want := []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestBlockedByOverlappingBudgets(t *testing.T) {
	v := deferral("p", "b")
	v.Outcome = schemas.Failed
	if got := newBlockedPods().deferred(v, key("n"), always, at0); got != delivery.FirstRetry {
		t.Errorf("got %v, want %v: that a budget allows a disruption does not help", got, delivery.FirstRetry)
	}
}

func TestBlockedFreedOnce(t *testing.T) {
	h := newBlockedPods()
	h.deferred(deferral("p1", "b"), key("n1"), never, at0)
	h.deferred(deferral("p2", "b"), key("n1"), never, at0)
	h.deferred(deferral("p3", "other"), key("n2"), never, at0)
	if got, want := h.freed(budget("b")), map[scope.Key]bool{key("n1"): true}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := h.freed(budget("b")); len(got) > 0 {
		t.Errorf("freed again: got %v, want nothing until the next deferral", got)
	}
	h.deferred(deferral("p2", "b"), key("n1"), never, at0)
	if got, want := h.freed(budget("b")), map[scope.Key]bool{key("n1"): true}; !reflect.DeepEqual(got, want) {
		t.Errorf("after the next deferral: got %v, want %v", got, want)
	}
}

func TestBlockedByMoveInFlight(t *testing.T) {
	h := newBlockedPods()
	v := deferral("p1", "")
	v.Blockers = []schemas.ObjectRef{{Kind: "Deployment", Namespace: "web", Name: "api", UID: "before"}}
	h.deferred(v, key("n1"), always, at0)
	v = deferral("p2", "")
	v.Blockers = []schemas.ObjectRef{{Kind: "Node", Name: "n2"}}
	h.deferred(v, key("n2"), always, at0)
	for by, want := range map[schemas.ObjectRef]map[scope.Key]bool{
		blocker("Deployment", "web", "api"): {key("n1"): true}, blocker("Node", "", "n2"): {key("n2"): true}, blocker("Node", "", "n1"): {},
	} {
		if got := h.freed(by); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, want %v", by, got, want)
		}
	}
}

func TestBlockedForTwoStrategies(t *testing.T) {
	h := newBlockedPods()
	var got []time.Duration
	for _, k := range []scope.Key{key("n1"), key("n2"), key("n1")} {
		got = append(got, h.deferred(deferral("p", "b"), k, never, at0))
	}
	if want := []time.Duration{delivery.FirstRetry, delivery.FirstRetry, 2 * delivery.FirstRetry}; !reflect.DeepEqual(got, want) {
		t.Errorf("delays %v, want %v", got, want)
	}
	if got, want := h.freed(budget("b")), map[scope.Key]bool{key("n1"): true, key("n2"): true}; !reflect.DeepEqual(got, want) {
		t.Errorf("freed %v, want %v", got, want)
	}
}

func TestBlockedForget(t *testing.T) {
	h := newBlockedPods()
	left := func() map[scope.Key]bool {
		keys := map[scope.Key]bool{}
		for _, p := range h.pods["p"] {
			keys[p.key] = true
		}
		return keys
	}
	h.deferred(deferral("p", "b"), key("n"), never, at0)
	h.deferred(deferral("p", "b"), key("other"), never, at0)
	h.forget("p", key("n"))
	h.forget("p", key("unknown"))
	h.forget("unknown", key("n"))
	if got, want := left(), map[scope.Key]bool{key("other"): true}; !reflect.DeepEqual(got, want) {
		t.Errorf("left: %v, want %v", got, want)
	}
	if got := h.deferred(deferral("p", ""), key("n"), never, at0); got != delivery.FirstRetry {
		t.Errorf("after being forgotten: delay %v, want %v", got, delivery.FirstRetry)
	}
	h.gone("p")
	h.gone("unknown")
	if len(h.pods) != 0 || len(h.by) != 0 {
		t.Errorf("after the pod is gone, left: %v, %v", h.pods, h.by)
	}
	h.deferred(deferral("p", "b"), key("n"), never, at0)
	h.forget("p", key("n"))
	if len(h.pods) != 0 || len(h.by) != 0 {
		t.Errorf("after the last key, left: %v, %v", h.pods, h.by)
	}
}
