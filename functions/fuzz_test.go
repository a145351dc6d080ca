package functions

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/mutate"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// FuzzEvaluate checks that any scope is invalid, or gets the same answer twice, which lists only pods of the scope that nothing
// protects, each with a reason and on its node. No scope makes a strategy panic. The scopes are valid ones with changed values.
func FuzzEvaluate(f *testing.F) {
	type question struct {
		f     Function
		scope []byte
	}
	args := map[string]string{
		"RemovePodsHavingTooManyRestarts": `{"podRestartThreshold":1,"includingInitContainers":true,"states":["Running"]}`,
		"PodLifeTime":                     `{"maxPodLifeTimeSeconds":1,"states":["Running","ContainerCreating"],"exitCodes":[1]}`,
		"RemoveFailedPods":                `{"reasons":["Evicted"],"minPodLifetimeSeconds":1,"includingInitContainers":true}`,
		"RemovePodsViolatingNodeAffinity": `{"nodeAffinityType":["requiredDuringSchedulingIgnoredDuringExecution","preferredDuringSchedulingIgnoredDuringExecution"]}`,
		"LowNodeUtilization":              `{"thresholds":{"cpu":20,"memory":20},"targetThresholds":{"cpu":50,"memory":50}}`,
		"HighNodeUtilization":             `{"thresholds":{"cpu":90,"memory":90}}`,
	}
	var questions []question
	for _, e := range schematest.Examples(f) {
		for _, of := range Hosted() {
			scope := expect.FromJSON[map[string]json.RawMessage](f, e.Event.Data)
			if e.Event.Type != schemas.ScopeType || string(scope["kind"]) != `"`+string(of.Strategy.Scope)+`"` {
				continue
			}
			if string(scope["strategy"]) != `"`+of.Strategy.Name+`"` {
				scope["strategy"] = json.RawMessage(`"` + of.Strategy.Name + `"`)
				if delete(scope, "args"); args[of.Strategy.Name] != "" {
					scope["args"] = json.RawMessage(args[of.Strategy.Name])
				}
			}
			data := expect.ToJSON(f, scope)
			if _, err := of.Evaluate(schemas.Event{ID: "1", Type: schemas.ScopeType, Data: data}); err != nil {
				f.Fatalf("%s does not answer its own scope: %v", of.Strategy.Name, err)
			}
			f.Add(uint8(len(questions)), uint64(1), uint8(0))
			f.Add(uint8(len(questions)), uint64(7), uint8(3))
			questions = append(questions, question{of, data})
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, seed uint64, changes uint8) {
		q := questions[int(which)%len(questions)]
		data := mutate.JSON(t, q.scope, seed, int(changes%16),
			"9223372036854775807", "-1", "1e18", "0.1n", 2147483647.0, "DoNotSchedule", "Exists", "In", "NotIn", "Gt", "Failed", "Running")
		e := schemas.Event{ID: "1", Type: schemas.ScopeType, Data: data}
		answer, err := q.f.Evaluate(e)
		if err != nil {
			if !errors.Is(err, schemas.ErrInvalid) || errors.Is(err, ErrPanicked) || !strings.Contains(err.Error(), "1") {
				t.Fatalf("%s: %v\n%s", q.f.Strategy.Name, err, data)
			}
			return
		}
		pods := podsOf(t, e, q.f.Strategy.Scope)
		may := map[schemas.PodRef]map[string]bool{} // the nodes of each pod that may move
		for _, p := range pods {
			if to := p.Move(""); len(p.Protected) == 0 {
				if may[to.Pod] == nil {
					may[to.Pod] = map[string]bool{}
				}
				may[to.Pod][to.Node] = true
			}
		}
		for _, i := range answer.Intents {
			if !may[i.Pod][i.Node] || i.Reason == "" {
				t.Errorf("%s moves %+v of\n%s", q.f.Strategy.Name, i, data)
			}
		}
		if len(answer.Intents) > len(pods) {
			t.Errorf("%s moves %d of %d pods of\n%s", q.f.Strategy.Name, len(answer.Intents), len(pods), data)
		}
		first, err := json.Marshal(answer)
		if err != nil {
			t.Fatalf("%s: the answer cannot be written: %v\n%s", q.f.Strategy.Name, err, data)
		}
		again, err := q.f.Evaluate(e)
		if second, _ := json.Marshal(again); err != nil || string(first) != string(second) {
			t.Errorf("%s answers %s, and then %s, %v to\n%s", q.f.Strategy.Name, first, second, err, data)
		}
	})
}

func podsOf(t *testing.T, e schemas.Event, kind schemas.ScopeKind) []schemas.ScopedPod {
	if kind == schemas.RequestKind {
		scope := schematest.Decode[schemas.RequestScope](t, e)
		return scope.Pods
	}
	scope, err := schemas.DecodeScope(e, kind)
	expect.Must(t, err)
	return scope.ScopedPods()
}
