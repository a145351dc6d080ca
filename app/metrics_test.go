package app

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/policy"
)

func TestConsumerMetricLimit(t *testing.T) {
	crowd := bus.StreamStatus{Name: bus.StreamEvents}
	for i := range 3 * mostConsumers {
		crowd.Workers = append(crowd.Workers, bus.WorkerStatus{Strategy: fmt.Sprint("listener-", i)})
	}
	metrics := prometheus.NewPedanticRegistry()
	metrics.MustRegister(NewBusFigures(func(context.Context) ([]bus.StreamStatus, error) { return []bus.StreamStatus{crowd}, nil }))
	got, err := testutil.GatherAndCount(metrics, "rehome_bus_consumer_waiting_messages")
	if err != nil || got != mostConsumers {
		t.Errorf("got %d consumers, want %d, error %v", got, mostConsumers, err)
	}
}

func TestMetricsOfOwnStrategies(t *testing.T) {
	here := functions.All()[0]
	p := policy.Policy{Outside: []policy.Outside{{Strategy: here.Strategy}, {Strategy: policy.Strategy{Name: "Elsewhere"}}}}
	for _, c := range []struct {
		name  string
		roles Roles
		want  []string
	}{
		{"a watcher", Roles{Watcher: true}, nil},
		{"functions", Roles{Functions: []functions.Function{here}}, []string{here.Strategy.Name}},
		{"a dispatcher", Roles{Dispatcher: true}, []string{here.Strategy.Name, "Elsewhere"}},
		{"all", Roles{Functions: []functions.Function{here}, Dispatcher: true}, []string{here.Strategy.Name, "Elsewhere"}},
	} {
		process := &process{roles: c.roles}
		process.inForce.Store(&p)
		if got := process.workedOn(); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}
