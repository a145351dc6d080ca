package watcher

import (
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/delivery"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// A strategy wants to move a pod while it moves for another one. That move is reverted or fails, so the pod stays.
func TestReevaluationAfterRevertedMove(t *testing.T) {
	for _, end := range []schemas.ReasonCode{schemas.ReasonTakenBack, schemas.ReasonMoveFailed} {
		t.Run(string(end), func(t *testing.T) { reevaluationAfter(t, end) })
	}
}

// The actuator stores verdicts in parallel, so the end of a move can arrive before an earlier rejection.
func TestRejectionAfterRevertedMove(t *testing.T) {
	for name, c := range map[string]struct {
		after time.Duration // from the end of the move to the rejection
		want  []string
	}{
		"from before its end": {-time.Second, []string{"nodes n1", "pods web/a"}},
		"from the next move":  {time.Second, []string{"nodes n1"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				twoStrategies(t, func(bus *collected, tell teller) {
					tell("nodes", schemas.Restarted, schemas.ReasonRestartAccepted, 0)
					tell("nodes", schemas.Settled, schemas.ReasonTakenBack, 0)
					tell("pods", schemas.Rejected, schemas.ReasonMoving, c.after)
					time.Sleep(delivery.FirstRetry + time.Second)
					got := bus.take(t)
					slices.Sort(got)
					expect.Equal(t, "result", got, c.want)
				})
			})
		})
	}
}

// teller tells that the pod a of n1 has an outcome for a strategy, that long after now.
type teller func(strategy string, outcome schemas.Outcome, reason schemas.ReasonCode, after time.Duration)

// twoStrategies runs a leading watcher of one pod, which has a strategy for nodes and one for pods.
func twoStrategies(t *testing.T, script func(*collected, teller)) {
	t.Helper()
	s := view(t, with("", nodesStrategy(), podsStrategy(0)), []*corev1.Node{named("n1"), named("n2")}, []*corev1.Pod{placed("a", "n1")})
	scopes := map[string]schemas.ScopeRef{"nodes": {Kind: schemas.NodeKind, Key: "n1"}, "pods": {Kind: schemas.PodKind, Key: "web/a"}}
	leading(t, s, func(_ *Watcher, bus *collected) {
		bus.take(t)
		script(bus, func(strategy string, outcome schemas.Outcome, reason schemas.ReasonCode, after time.Duration) {
			v := schemas.Verdict{
				Outcome: outcome, Reason: reason, Profile: "p", Strategy: strategy, Scope: scopes[strategy],
				Intent: schemas.Intent{Pod: schemas.PodRef{Namespace: "web", Name: "a", UID: placed("a", "n1").UID}, Node: "n1"},
			}
			bus.tell(schematest.Event(t, "/test", v, time.Now().Add(after), schemas.Event{}))
		})
	})
}

func reevaluationAfter(t *testing.T, end schemas.ReasonCode) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		twoStrategies(t, func(bus *collected, tell teller) {
			tell("nodes", schemas.Restarted, schemas.ReasonRestartAccepted, 0)
			tell("pods", schemas.Rejected, schemas.ReasonMoving, 0)
			tell("nodes", schemas.Rejected, schemas.ReasonMoving, 0) // another evaluation lists the pod again
			time.Sleep(time.Minute)
			expect.Equal(t, "during the move", bus.take(t), nil)
			tell("nodes", schemas.Settled, end, 0)
			time.Sleep(10 * time.Millisecond)
			expect.Equal(t, "after its end", bus.take(t), []string{"pods web/a"})
			time.Sleep(delivery.FirstRetry)
			if got, want := bus.take(t), []string{"nodes n1"}; !reflect.DeepEqual(got, want) {
				t.Errorf("%v later: got %q, want %q", delivery.FirstRetry, got, want)
			}
			tell("nodes", schemas.Restarted, schemas.ReasonRestartAccepted, 0)
			tell("nodes", schemas.Settled, end, 0)
			time.Sleep(delivery.FirstRetry + time.Second)
			if got := bus.take(t); got != nil {
				t.Errorf("%v after the second end: got %q, want nothing", delivery.FirstRetry, got)
			}
			time.Sleep(delivery.FirstRetry)
			expect.Equal(t, "twice as long after the second end", bus.take(t), []string{"nodes n1"})
		})
	})
}
