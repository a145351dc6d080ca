package cli

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/app"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/status"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/metricstest"
)

// deferral returns a recent verdict on a pod shop/NAME.
func deferral(name, strategy string, outcome schemas.Outcome, reason schemas.ReasonCode) schemas.Verdict {
	return schemas.Verdict{
		Outcome: outcome, Reason: reason, Message: "because", Profile: "p", Strategy: strategy,
		Scope:  schemas.ScopeRef{Kind: schemas.NodeKind, Key: "n1"},
		Intent: schemas.Intent{Pod: schemas.PodRef{Namespace: "shop", Name: name, UID: types.UID("u-" + name)}, Node: "n1"},
	}
}

func TestDeferredUntilOtherVerdict(t *testing.T) {
	deferred := func(name, strategy string, since, last time.Time, times int) status.DeferredPod {
		v := deferral(name, strategy, schemas.Deferred, schemas.ReasonDisruptionBudget)
		return status.DeferredPod{
			Pod: v.Intent.Pod, Node: "n1", Profile: "p", Strategy: strategy, Reason: v.Reason, Message: "because", Since: since, Last: last,
			Times: times,
		}
	}
	type said struct {
		name, strategy string
		outcome        schemas.Outcome
	}
	for _, c := range []struct {
		name string
		said []said
		want []status.DeferredPod
	}{
		{"no messages", nil, []status.DeferredPod{}},
		{"again and again", []said{{"a", "A", "deferred"}, {"b", "A", "deferred"}, {"a", "A", "deferred"}},
			[]status.DeferredPod{deferred("a", "A", sec(0), sec(2), 2), deferred("b", "A", sec(1), sec(1), 1)}},
		{"it was moved by another strategy", []said{{"a", "A", "deferred"}, {"a", "B", "evicted"}}, []status.DeferredPod{}},
		{"another strategy has another verdict", []said{{"a", "A", "deferred"}, {"a", "B", "rejected"}},
			[]status.DeferredPod{deferred("a", "A", sec(0), sec(0), 1)}},
		{"it is not wanted any more", []said{{"a", "A", "deferred"}, {"a", "A", "withdrawn"}}, []status.DeferredPod{}},
		{"again after something else", []said{{"a", "A", "deferred"}, {"a", "A", "expired"}, {"a", "A", "deferred"}},
			[]status.DeferredPod{deferred("a", "A", sec(2), sec(2), 1)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := status.Deferrals{}
			for i, s := range c.said {
				v := deferral(s.name, s.strategy, s.outcome, schemas.ReasonDisruptionBudget)
				d.Verdict(v, sec(float64(i)))
			}
			if got := d.List(); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func TestStatusOfBus(t *testing.T) {
	b := deadBus(t)
	v := deferral("api-1", "PodLifeTime", schemas.Deferred, schemas.ReasonDisruptionBudget)
	r := schemas.Request{Sender: "admin", Name: "drain", Action: schemas.ActionDeschedule, Target: &schemas.Target{Node: "n1"}, Reason: "fan"}
	bustest.Publish(t, b, eventOf(t, "v1", v), eventOf(t, "r1", r))
	m := &v1alpha1.NodeMaintenance{
		ObjectMeta: metav1.ObjectMeta{Name: "node/n1", UID: "u", CreationTimestamp: metav1.NewTime(clock)},
		Spec:       v1alpha1.NodeMaintenanceSpec{Stage: v1alpha1.Cordon, Reason: "fan"},
	}
	if _, err := b.Maintenances().Put(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	out, err := execute(t, "status", "-o", "json")
	var got status.Status
	if err := errors.Join(err, json.Unmarshal([]byte(out), &got)); err != nil {
		t.Fatal(err)
	}
	wantDeferred := []status.DeferredPod{{
		Pod: v.Intent.Pod, Node: "n1", Profile: "p", Strategy: "PodLifeTime", Reason: v.Reason, Message: "because", Since: clock, Last: clock,
		Times: 1,
	}}
	wantDead := map[string]uint64{bus.StreamScopes: 2, bus.StreamIntents: 1}
	if len(got.Requests) != 1 || !reflect.DeepEqual(got.Requests[0].Request, r) || time.Since(got.Requests[0].Since) > time.Minute ||
		!reflect.DeepEqual(got.Deferred, wantDeferred) || !reflect.DeepEqual(got.DeadLetters, wantDead) || len(got.Streams) != 7 ||
		!reflect.DeepEqual(got.Maintenances, []status.Maintenance{{Name: "node/n1", Stage: v1alpha1.Cordon, Reason: "fan", Since: clock}}) {
		t.Errorf("got %+v\nwant deferred %+v, dead %v, request %+v", got, wantDeferred, wantDead, r)
	}
	text, err := execute(t, "status")
	if err != nil || !strings.Contains(text, "\nDeferred pods:\n") || !strings.Contains(text, "\nadmin    drain ") || !strings.Contains(text, "\nnode/n1   Cordon   <none>   0 ") ||
		!strings.HasSuffix(text, "\ndead letters: 1 from REHOME_INTENTS, 2 from REHOME_SCOPES; see `rehome get deadletters`\n") {
		t.Errorf("error %v, got\n%s", err, text)
	}
}

func TestDeadLetterMetric(t *testing.T) {
	b := deadBus(t)
	metrics := prometheus.NewPedanticRegistry()
	metrics.MustRegister(app.NewDeadLetters(b.DeadCounts))
	const head = "# TYPE rehome_dead_letters gauge\n"
	want := head + "rehome_dead_letters{stream=\"REHOME_INTENTS\"} 1\nrehome_dead_letters{stream=\"REHOME_SCOPES\"} 2\n"
	metricstest.Compare(t, metrics, want)
	if err := b.DropDead(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	want = head + "rehome_dead_letters{stream=\"REHOME_SCOPES\"} 2\n"
	metricstest.Compare(t, metrics, want)
	b.Close()
	metricstest.Compare(t, metrics, "") // without a bus
}

func TestBusMetrics(t *testing.T) {
	b := busOf(t)
	if err := b.Setup(t.Context(), bus.Setup{Strategies: []string{"PodLifeTime"}}); err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"worker-1", "worker-2"} {
		bustest.Publish(t, b, scopeEvent(t, "scope-of-"+node, node))
	}
	metrics := prometheus.NewPedanticRegistry()
	metrics.MustRegister(app.NewBusFigures(func(ctx context.Context) ([]bus.StreamStatus, error) {
		return b.StatusFor(ctx, []string{"PodLifeTime"})
	}))
	want := `# TYPE rehome_bus_consumer_waiting_messages gauge
rehome_bus_consumer_waiting_messages{consumer="PodLifeTime",stream="REHOME_SCOPES"} 2
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
	metricstest.Compare(t, metrics, want, names...)
	for name, want := range map[string]int{
		"rehome_bus_stream_bytes": 7, "rehome_bus_stream_limit_bytes": 7, "rehome_bus_consumer_unacknowledged_messages": 1,
		"rehome_bus_consumer_redelivered_messages": 1,
	} {
		if got, err := testutil.GatherAndCount(metrics, name); err != nil || got != want {
			t.Errorf("%s: got %d series, want %d, error %v", name, got, want, err)
		}
	}
	b.Close()
	metricstest.Compare(t, metrics, "") // without a bus
}
