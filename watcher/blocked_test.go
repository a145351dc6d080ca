package watcher

import (
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/delivery"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schematest"
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

func TestBlockedDelay(t *testing.T) {
	limited, away, overlapping := deferral("p", ""), deferral("p", ""), deferral("p", "b")
	limited.Reason, away.Reason, overlapping.Outcome = schemas.ReasonLimitNode, schemas.ReasonAPIUnavailable, schemas.Failed
	for _, c := range []struct {
		name    string
		verdict schemas.Verdict
		free    func(_, _ string) bool // whether a budget allows a disruption
		between time.Duration          // from a verdict to the next
		again   string                 // from a verdict to the time that it names, for each verdict
		want    string
	}{
		{"until_a_known_time", limited, never, 0, "4s 4s 1h0m0s -1s", "4s 4s 1h0m0s 250ms"},
		{"grows", deferral("p", "b"), never, 0, "0s 0s 0s 0s 0s 0s 0s 0s", "15s 30s 1m0s 2m0s 4m0s 8m0s 10m0s 10m0s"},
		{"outage", away, never, 0, "0s 0s 0s", "1s 2s 4s"},
		// A verdict can take longer than its delay, for example while calls of the API server time out.
		{"grows_after_late_verdicts", away, never, time.Minute, "0s 0s 0s", "1s 2s 4s"},
		{"budget_that_is_free", deferral("p", "b"), always, 0, "0s 0s 0s", "250ms 500ms 1s"},
		{"overlapping_budgets_that_are_free", overlapping, always, 0, "0s", "15s"},
	} {
		h, now := newBlockedPods(), at0
		var got []string
		for again := range strings.FieldsSeq(c.again) {
			d, err := time.ParseDuration(again)
			expect.Must(t, err)
			if d != 0 {
				c.verdict.Again = now.Add(d)
			}
			got = append(got, h.deferred(c.verdict, key("n"), c.free, now).String())
			now = now.Add(c.between)
		}
		expect.Equal(t, c.name, strings.Join(got, " "), c.want)
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

func TestBlockedFreedOnce(t *testing.T) {
	h := newBlockedPods()
	h.deferred(deferral("p1", "b"), key("n1"), never, at0)
	h.deferred(deferral("p2", "b"), key("n1"), never, at0)
	h.deferred(deferral("p3", "other"), key("n2"), never, at0)
	expect.Equal(t, "freed", h.freed(budget("b")), map[scope.Key]bool{key("n1"): true})
	if got := h.freed(budget("b")); len(got) > 0 {
		t.Errorf("freed again: got %v, want nothing until the next deferral", got)
	}
	h.deferred(deferral("p2", "b"), key("n1"), never, at0)
	expect.Equal(t, "after the next deferral", h.freed(budget("b")), map[scope.Key]bool{key("n1"): true})
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
		expect.Equal(t, by.String(), h.freed(by), want)
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
	expect.Equal(t, "freed", h.freed(budget("b")), map[scope.Key]bool{key("n1"): true, key("n2"): true})
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
	expect.Equal(t, "left", left(), map[scope.Key]bool{key("other"): true})
	expect.Equal(t, "after being forgotten: delay", h.deferred(deferral("p", ""), key("n"), never, at0), delivery.FirstRetry)
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
