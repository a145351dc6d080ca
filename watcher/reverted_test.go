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
	"github.com/rehome-dev/rehome/test/schematest"
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
				p := with("", nodesStrategy(), podsStrategy(0))
				s := view(t, p, []*corev1.Node{named("n1"), named("n2")}, []*corev1.Pod{placed("a", "n1")})
				leading(t, s, func(_ *Watcher, bus *collected) {
					bus.take(t)
					tell := func(strategy string, in schemas.ScopeRef, outcome schemas.Outcome, reason schemas.ReasonCode, at time.Time) {
						v := schemas.Verdict{
							Outcome: outcome, Reason: reason, Profile: "p", Strategy: strategy, Scope: in,
							Intent: schemas.Intent{Pod: schemas.PodRef{Namespace: "web", Name: "a", UID: placed("a", "n1").UID}, Node: "n1"},
						}
						bus.tell(schematest.Event(t, "/test", v, at, schemas.Event{}))
					}
					node, pod := schemas.ScopeRef{Kind: schemas.NodeKind, Key: "n1"}, schemas.ScopeRef{Kind: schemas.PodKind, Key: "web/a"}
					tell("nodes", node, schemas.Restarted, schemas.ReasonRestartAccepted, time.Now())
					tell("nodes", node, schemas.Settled, schemas.ReasonTakenBack, time.Now())
					tell("pods", pod, schemas.Rejected, schemas.ReasonMoving, time.Now().Add(c.after))
					time.Sleep(delivery.FirstRetry + time.Second)
					got := bus.take(t)
					slices.Sort(got)
					if !reflect.DeepEqual(got, c.want) {
						t.Errorf("got %q, want %q", got, c.want)
					}
				})
			})
		})
	}
}

func reevaluationAfter(t *testing.T, end schemas.ReasonCode) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := with("", nodesStrategy(), podsStrategy(0))
		s := view(t, p, []*corev1.Node{named("n1"), named("n2")}, []*corev1.Pod{placed("a", "n1")})
		leading(t, s, func(_ *Watcher, bus *collected) {
			bus.take(t)
			tell := func(strategy string, in schemas.ScopeRef, outcome schemas.Outcome, reason schemas.ReasonCode) {
				v := schemas.Verdict{
					Outcome: outcome, Reason: reason, Profile: "p", Strategy: strategy, Scope: in,
					Intent: schemas.Intent{Pod: schemas.PodRef{Namespace: "web", Name: "a", UID: placed("a", "n1").UID}, Node: "n1"},
				}
				bus.tell(schematest.Event(t, "/test", v, time.Now(), schemas.Event{}))
			}
			node, pod := schemas.ScopeRef{Kind: schemas.NodeKind, Key: "n1"}, schemas.ScopeRef{Kind: schemas.PodKind, Key: "web/a"}
			tell("nodes", node, schemas.Restarted, schemas.ReasonRestartAccepted)
			tell("pods", pod, schemas.Rejected, schemas.ReasonMoving)
			tell("nodes", node, schemas.Rejected, schemas.ReasonMoving) // another evaluation lists the pod again
			time.Sleep(time.Minute)
			if got := bus.take(t); got != nil {
				t.Errorf("during the move: got %q, want nothing", got)
			}
			tell("nodes", node, schemas.Settled, end)
			time.Sleep(10 * time.Millisecond)
			if got, want := bus.take(t), []string{"pods web/a"}; !reflect.DeepEqual(got, want) {
				t.Errorf("after its end: got %q, want %q", got, want)
			}
			time.Sleep(delivery.FirstRetry)
			if got, want := bus.take(t), []string{"nodes n1"}; !reflect.DeepEqual(got, want) {
				t.Errorf("%v later: got %q, want %q", delivery.FirstRetry, got, want)
			}
			tell("nodes", node, schemas.Restarted, schemas.ReasonRestartAccepted)
			tell("nodes", node, schemas.Settled, end)
			time.Sleep(delivery.FirstRetry + time.Second)
			if got := bus.take(t); got != nil {
				t.Errorf("%v after the second end: got %q, want nothing", delivery.FirstRetry, got)
			}
			time.Sleep(delivery.FirstRetry)
			if got, want := bus.take(t), []string{"nodes n1"}; !reflect.DeepEqual(got, want) {
				t.Errorf("twice as long after the second end: got %q, want %q", got, want)
			}
		})
	})
}
