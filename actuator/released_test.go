package actuator

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

func TestARestartThatIsLetGoIsNotAnEvictionWhereThePolicySaysSkip(t *testing.T) {
	for _, method := range []schemas.Method{schemas.MethodRestart, schemas.MethodSurge} {
		t.Run(string(method), func(t *testing.T) {
			r := before("1", time.Second)
			r.Settled, r.Method, r.State = false, method, move.State("{}")
			m := newMemory()
			tm := recalled(t, m, policy.Policy{
				Restart: policy.Restart{Workloads: policy.RestartAll, Otherwise: policy.OtherwiseSkip},
			})
			x := &inFlight{record: r, at: keysOf(r.Intent, tm.cfg.View), reported: true}
			tm.moves.add(x, tm.cfg.View)
			refusal := &move.Refusal{Outcome: schemas.Deferred, Reason: schemas.ReasonRestartPaused, Message: "spec.paused is true"}
			// There is no API server: a look at the pod, let alone an eviction, would end the test.
			tm.step(t.Context(), x, letsGo{refusal}, r.State, false)
			tm.publishing.Wait()

			want := r.Intent.Verdict(schemas.Settled, schemas.ReasonTakenBack, "spec.paused is true")
			want.Method, want.Workload, want.Settlement = method, &api, &schemas.Settlement{Seconds: 1}
			check(t, "verdicts", len(m.published), 1)
			check(t, "verdict", decoded[schemas.Verdict](t, m.published[0]), want)
			check(t, "moves in flight", len(tm.moves.all), 0)
		})
	}
}

// letsGo is a method that gives a move up at its next step.
type letsGo struct{ refusal *move.Refusal }

func (letsGo) Start(context.Context, *corev1.Pod, time.Time, move.Save) (move.Progress, error) {
	return move.Progress{}, nil
}

func (l letsGo) Step(context.Context, move.State, time.Time) (move.Progress, error) {
	return move.Progress{Stage: move.Released, Refusal: l.refusal}, nil
}

func (l letsGo) Cancel(context.Context, move.State, time.Time) (move.Progress, error) {
	return move.Progress{Stage: move.Undone, Message: "canceled"}, nil
}
