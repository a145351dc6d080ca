package app

import (
	"context"
	"reflect"
	"testing"

	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/bustest"
	"github.com/rehome-dev/rehome/test/expect"
	"github.com/rehome-dev/rehome/test/functionstest"
	"github.com/rehome-dev/rehome/test/schematest"
)

// slowWorker handles one scope. It calls between after it has asked for the first time whether the scope is current.
type slowWorker struct {
	functions.Bus
	scope   schemas.Event
	between func()
}

func (s *slowWorker) Work(ctx context.Context, _ string, handle func(context.Context, schemas.Event) error) error {
	return handle(ctx, s.scope)
}

func (s *slowWorker) Current(ctx context.Context, scope schemas.Event) (bool, error) {
	current, err := s.Bus.Current(ctx, scope)
	if s.between != nil {
		s.between()
		s.between = nil
	}
	return current, err
}

func TestLateAnswer(t *testing.T) {
	taints := functions.All()[0]
	name := taints.Strategy.Name
	empty := func(scope schemas.Event) schemas.Intents {
		return functions.Complete(schematest.Decode[schemas.ScopeHead](t, scope), nil, scope.ID, scope.Sequence)
	}
	evaluated := func(scope schemas.Event) schemas.Intents {
		return expect.Value(t, func() (schemas.Intents, error) { return taints.Evaluate(scope) })
	}
	for title, c := range map[string]struct {
		newer []schemas.ScopedPod // the pods of the newer scope; nil means that there is none
		want  func(older, newer schemas.Event) schemas.Intents
	}{
		"after_a_scope_without_pods": {
			[]schemas.ScopedPod{},
			func(older, _ schemas.Event) schemas.Intents { return empty(older) },
		},
		"after_a_scope_that_moves_pods": {
			[]schemas.ScopedPod{functionstest.Pod("newer", functionstest.On("a"))},
			func(_, newer schemas.Event) schemas.Intents { return evaluated(newer) },
		},
		"after_the_same_answer": {nil, func(older, _ schemas.Event) schemas.Intents { return evaluated(older) }},
	} {
		t.Run(title, func(t *testing.T) {
			b := bustest.New(t, name)
			publish := func(pods ...schemas.ScopedPod) schemas.Event {
				scope := functionstest.TaintedScope(name, "a", pods...)
				e := schematest.Event(t, "/clusters/test/watcher", scope, functionstest.Now(), schemas.Event{})
				var err error
				e.Sequence, err = b.Publish(t.Context(), e)
				expect.Must(t, err)
				return e
			}
			host := func(on functions.Bus) functions.Host {
				return functions.Host{Functions: []functions.Function{taints}, Bus: on, Source: "/clusters/test/functions"}
			}
			older := publish(functionstest.Pod("older", functionstest.On("a")))
			newer := older
			slow := &slowWorker{Bus: newHosted(b, policy.Policy{}), scope: older, between: func() {
				if c.newer != nil {
					newer = publish(c.newer...)
				}
				stop := expect.Background(t, host(newHosted(b, policy.Policy{})).Run)
				defer stop()
				expect.Eventually(t, "another worker has handled the newest scope", func() bool {
					current, err := b.Current(t.Context(), newer)
					return err == nil && !current
				})
			}}
			expect.Must(t, host(slow).Run(t.Context()))
			stored, err := b.Intents(t.Context(), empty(older).Channel())
			expect.Must(t, err)
			if got, want := schematest.Decode[schemas.Intents](t, stored), c.want(older, newer); !reflect.DeepEqual(got, want) {
				t.Errorf("stored %+v\nwant   %+v", got, want)
			}
		})
	}
}
