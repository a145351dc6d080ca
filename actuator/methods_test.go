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

// overtaken is a method whose steps are those given, in turn, the last one for ever.
type overtaken struct {
	steps []move.Progress
	seen  []string // what each step was told
}

func (o *overtaken) Plan(context.Context, *corev1.Pod, time.Time) (move.State, *move.Refusal, error) {
	return move.State(`"plan"`), nil, nil
}

func (o *overtaken) Step(_ context.Context, s move.State, _ time.Time) (move.Progress, error) {
	p := o.steps[min(len(o.seen), len(o.steps)-1)]
	o.seen = append(o.seen, string(s))
	return p, nil
}

func TestAMoveThatOthersOvertakeHasItsVerdictFromTheFirstStepThatChangesSomething(t *testing.T) {
	refusal := &move.Refusal{Outcome: schemas.Deferred, Reason: schemas.ReasonRestartRunning, Message: "a rollout is in progress"}
	gone := &move.Refusal{Outcome: schemas.Rejected, Reason: schemas.ReasonPodTerminating, Message: "the pod went"}
	replanned := move.Progress{Stage: move.Replanned, State: move.State(`"new plan"`), Message: "it was changed"}
	accepted := Objection{schemas.Restarted, schemas.ReasonRestartAccepted, "rollout restart of deployment/web/api"}
	for _, tt := range []struct {
		name    string
		steps   []move.Progress
		seen    []string
		noted   []string
		verdict Objection // zero: none, another way is tried
		refusal *move.Refusal
	}{
		{
			name: "not overtaken", steps: []move.Progress{{State: move.State(`"begun"`)}}, seen: []string{`"plan"`},
			noted: []string{`"plan"`, `"begun"`}, verdict: accepted,
		}, {
			name: "overtaken once", steps: []move.Progress{replanned, {State: move.State(`"begun"`)}},
			seen: []string{`"plan"`, `"new plan"`}, noted: []string{`"plan"`, `"new plan"`, `"begun"`}, verdict: accepted,
		}, {
			name:  "overtaken by the restart for another pod",
			steps: []move.Progress{replanned, {Stage: move.Released, Refusal: refusal}},
			seen:  []string{`"plan"`, `"new plan"`}, noted: []string{`"plan"`, `"new plan"`, ""}, refusal: refusal,
		}, {
			name: "overtaken again and again", steps: []move.Progress{replanned},
			seen:    []string{`"plan"`, `"new plan"`, `"new plan"`, `"new plan"`, `"new plan"`},
			noted:   []string{`"plan"`, `"new plan"`, `"new plan"`, `"new plan"`, `"new plan"`, ""},
			refusal: &move.Refusal{Outcome: schemas.Deferred, Reason: schemas.ReasonRestartRunning, Message: "it was changed"},
		}, {
			name: "the pod goes by itself", steps: []move.Progress{{Stage: move.Done, Refusal: gone}}, seen: []string{`"plan"`},
			noted: []string{`"plan"`}, verdict: Objection{gone.Outcome, gone.Reason, gone.Message},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := New(Config{Policy: policy.Policy{}})
			by := &overtaken{steps: tt.steps}
			var noted []string
			note := func(_ context.Context, r record) error {
				noted = append(noted, string(r.State))
				return nil
			}
			w := way{schemas.MethodRestart, by, &api, accepted, false}
			v, got, err := a.begin(t.Context(), Situation{Open: wish(), Now: time.Now()}, w, nil, note)
			if err != nil {
				t.Fatal(err)
			}
			var want schemas.Verdict
			if tt.verdict.Reason != "" {
				want = a.verdict(wish(), tt.verdict)
			}
			if tt.verdict == accepted {
				want.Method, want.Workload = schemas.MethodRestart, &api
			}
			check(t, "verdict", v, want)
			check(t, "refusal", got, tt.refusal)
			check(t, "what the steps were told", by.seen, tt.seen)
			check(t, "what was remembered", noted, tt.noted)
		})
	}
}
