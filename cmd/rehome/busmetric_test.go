package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/policy"
)

func TestTheMetricsOfTheBusAreWhatItHoldsNow(t *testing.T) {
	b := busOf(t)
	if err := b.Setup(t.Context(), bus.Setup{Strategies: []string{"PodLifeTime"}}); err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"worker-1", "worker-2"} {
		if _, err := b.Publish(t.Context(), scopeEvent(t, "scope-of-"+node, node)); err != nil {
			t.Fatal(err)
		}
	}
	metrics := prometheus.NewPedanticRegistry()
	metrics.MustRegister(newBusFigures(func(ctx context.Context) ([]bus.StreamStatus, error) {
		return b.StatusFor(ctx, []string{"PodLifeTime"})
	}))
	want := `# HELP rehome_bus_consumer_waiting_messages Messages that nobody has taken yet: scopes by strategy, events of the history by listener.
# TYPE rehome_bus_consumer_waiting_messages gauge
rehome_bus_consumer_waiting_messages{consumer="PodLifeTime",stream="REHOME_SCOPES"} 2
# HELP rehome_bus_stream_messages Messages that a stream holds.
# TYPE rehome_bus_stream_messages gauge
rehome_bus_stream_messages{stream="KV_REHOME_LEDGER"} 0
rehome_bus_stream_messages{stream="KV_REHOME_MAINTENANCES"} 0
rehome_bus_stream_messages{stream="REHOME_DEAD"} 0
rehome_bus_stream_messages{stream="REHOME_EVENTS"} 0
rehome_bus_stream_messages{stream="REHOME_INTENTS"} 0
rehome_bus_stream_messages{stream="REHOME_REQUESTS"} 0
rehome_bus_stream_messages{stream="REHOME_SCOPES"} 2
`
	names := []string{"rehome_bus_consumer_waiting_messages", "rehome_bus_stream_messages"}
	if err := testutil.GatherAndCompare(metrics, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]int{
		"rehome_bus_stream_bytes": 7, "rehome_bus_stream_limit_bytes": 7, "rehome_bus_consumer_unacknowledged_messages": 1,
		"rehome_bus_consumer_redelivered_messages": 1,
	} {
		if got, err := testutil.GatherAndCount(metrics, name); err != nil || got != want {
			t.Errorf("%s: got %d series, want %d, error %v", name, got, want, err)
		}
	}
	b.Close()
	if err := testutil.GatherAndCompare(metrics, strings.NewReader("")); err != nil {
		t.Errorf("without a bus: %v", err)
	}
}

func TestNoMoreThanAHundredConsumersOfAStreamAreToldOf(t *testing.T) {
	crowd := bus.StreamStatus{Name: bus.StreamEvents}
	for i := range 3 * mostConsumers {
		crowd.Workers = append(crowd.Workers, bus.WorkerStatus{Strategy: fmt.Sprint("listener-", i)})
	}
	metrics := prometheus.NewPedanticRegistry()
	metrics.MustRegister(newBusFigures(func(context.Context) ([]bus.StreamStatus, error) { return []bus.StreamStatus{crowd}, nil }))
	got, err := testutil.GatherAndCount(metrics, "rehome_bus_consumer_waiting_messages")
	if err != nil || got != mostConsumers {
		t.Errorf("got %d consumers, want %d, error %v", got, mostConsumers, err)
	}
}

func TestAProcessAsksForTheStrategiesWhoseScopesItTakes(t *testing.T) {
	here := functions.All()[0]
	p := policy.Policy{Outside: []policy.Outside{{Strategy: here.Strategy}, {Strategy: policy.Strategy{Name: "Elsewhere"}}}}
	for _, c := range []struct {
		name  string
		roles roles
		want  []string
	}{
		{"a watcher", roles{watcher: true}, nil},
		{"functions", roles{functions: []functions.Function{here}}, []string{here.Strategy.Name}},
		{"a dispatcher", roles{dispatcher: true}, []string{here.Strategy.Name, "Elsewhere"}},
		{"all", roles{functions: []functions.Function{here}, dispatcher: true}, []string{here.Strategy.Name, "Elsewhere"}},
	} {
		process := &process{roles: c.roles, declared: newEnlisting(p, nil, nil)}
		if got := process.workedOn(); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}
