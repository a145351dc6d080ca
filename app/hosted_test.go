package app

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

func TestHostedStrategyMovesOut(t *testing.T) {
	taints, lifetime := functions.All()[0], functions.All()[2]
	b := bustest.New(t, taints.Strategy.Name, lifetime.Strategy.Name)
	elsewhere := policy.Policy{Outside: []policy.Outside{{Strategy: taints.Strategy, Subject: "functions.taints"}}}
	h := newHosted(b, elsewhere)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	asked := make(chan string, 100)
	for _, f := range []functions.Function{taints, lifetime} {
		go func() {
			done <- h.Work(ctx, f.Strategy.Name, func(_ context.Context, e schemas.Event) error {
				asked <- f.Strategy.Name
				return nil
			})
		}()
	}
	publish := func(f functions.Function) {
		t.Helper()
		bustest.Publish(t, b, nodeScope(t, f.Strategy.Name, "worker-1"))
	}
	wanted := func(f functions.Function) {
		t.Helper()
		if got := expect.Receive(t, f.Strategy.Name+" is asked", asked); got != f.Strategy.Name {
			t.Errorf("%s is asked, want %s", got, f.Strategy.Name)
		}
	}
	publish(taints)
	publish(lifetime)
	wanted(lifetime) // and the other gets no request, although its scope came first
	_ = h.setPolicy(policy.Policy{})
	wanted(taints)
	_ = h.setPolicy(elsewhere)
	publish(taints)
	publish(lifetime)
	wanted(lifetime)
	_ = h.setPolicy(policy.Policy{})
	wanted(taints)
	cancel()
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestSetupForPolicyFunctions(t *testing.T) {
	outside := outsideOf(t, "{name: KeepOffSpot, scope: node, wakes: [node.labels], nats: {subject: functions.off, parallel: 100}}",
		"{name: PodLifeTime, http: {url: http://127.0.0.1:1/, parallel: 9}}")
	got := settings.SetupOf(settings.Settings{NATSReplicas: 3, Resync: 6 * time.Hour}, policy.Policy{Outside: outside})
	want := bus.Setup{
		Replicas: 3, Strategies: append(functions.Names(functions.Hosted()), "KeepOffSpot"),
		Resync: 6 * time.Hour, ScopesInMemory: true, Parallel: map[string]int{"KeepOffSpot": 100, "PodLifeTime": 9},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if settings.SetupOf(settings.Settings{NATSURL: "nats://127.0.0.1:4222"}, policy.Policy{}).ScopesInMemory {
		t.Error("an external server keeps scopes in memory")
	}
}
