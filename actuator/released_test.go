package actuator

import (
	"testing"
	"time"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

func TestARestartThatIsLetGoIsNotAnEvictionWhereThePolicySaysSkip(t *testing.T) {
	for _, method := range []schemas.Method{schemas.MethodRestart, schemas.MethodSurge} {
		t.Run(string(method), func(t *testing.T) {
			r := before("1", time.Second)
			r.Settled, r.Method, r.State = false, method, move.State("{}")
			tm := recalled(t, newMemory(), policy.Policy{
				Restart: policy.Restart{Workloads: policy.RestartAll, Otherwise: policy.OtherwiseSkip},
			})
			x := &moving{record: r, at: marked(r.Open, tm.cfg.View), told: true, stepping: true}
			tm.moves.add(x)
			refusal := &move.Refusal{Outcome: schemas.Deferred, Reason: schemas.ReasonRestartPaused, Message: "spec.paused is true"}
			// There is no API server: a look at the pod, let alone an eviction, would end the test.
			tm.stepped(t.Context(), x, move.Progress{Stage: move.Released, Refusal: refusal}, nil)

			want := r.Open.Verdict(schemas.Settled, schemas.ReasonTakenBack, "spec.paused is true")
			want.Method, want.Workload, want.Settlement = method, &api, &schemas.Settlement{Seconds: 1}
			r.Settled = true
			check(t, "what is settled", tm.queue.settled, []followed{{r, want}})
			check(t, "moves in flight", len(tm.moves.all), 0)
		})
	}
}
