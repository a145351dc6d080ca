package actuator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rehome-dev/rehome/actuator/limit"
	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/metricstest"
)

func TestEvictedMetricExcludesDeferrals(t *testing.T) {
	r := prometheus.NewRegistry()
	m := newMetrics(r, new(atomic.Pointer[session]))
	for _, outcome := range schemas.Outcomes() {
		m.observe(schemas.Verdict{
			Outcome: outcome, Reason: "Any", Profile: "p", Strategy: "S",
			Intent: schemas.Intent{Pod: schemas.PodRef{Namespace: "web", Name: "a"}, Node: "n1"},
		}, time.Unix(1_790_000_000, 0))
	}
	want := `# TYPE descheduler_pods_evicted_total counter
descheduler_pods_evicted_total{namespace="web",profile="p",result="error",strategy="S"} 1
descheduler_pods_evicted_total{namespace="web",profile="p",result="success",strategy="S"} 3
`
	metricstest.Compare(t, r, want, "descheduler_pods_evicted_total")
}

// TestMetricLabels publishes intents with invented profiles and namespaces, as a stolen key of the functions role
// could.
func TestMetricLabels(t *testing.T) {
	r := prometheus.NewRegistry()
	m := newMetrics(r, new(atomic.Pointer[session]))
	a := &Actuator{metrics: m}
	m.accepted("S", "p0")
	if err := a.Warning(); err != nil {
		t.Errorf("one profile: %v", err)
	}
	const many = 2 * mostNamespaces
	for i := range many {
		v := schemas.Verdict{
			Profile: fmt.Sprint("p", i), Strategy: "S", Outcome: schemas.Evicted, Reason: schemas.ReasonEvictionAccepted,
			Intent: schemas.Intent{Pod: schemas.PodRef{Namespace: "web"}},
		}
		m.accepted(v.Strategy, v.Profile)
		m.observe(v, time.Time{})
		v.Profile, v.Intent.Pod.Namespace = "p0", fmt.Sprint("ns", i)
		m.observe(v, time.Time{})
	}
	if err := a.Warning(); err == nil {
		t.Error("no warning of the limit")
	}
	const verdicts = mostNamespaces + mostPairs + 1
	for name, want := range map[string]int{
		"rehome_verdicts_total": verdicts, "descheduler_pods_evicted_total": verdicts, "rehome_intents_total": mostPairs + 1,
	} {
		got, err := testutil.GatherAndCount(r, name)
		if err != nil || got > want {
			t.Errorf("%s has %d series, error %v; want at most %d", name, got, err, want)
		}
	}
	expect.Equal(t, "verdicts of the first profile", testutil.ToFloat64(m.verdicts.WithLabelValues("evicted", "EvictionAccepted", "", "S", "p0", "web")), 1)
	expect.Equal(t, "verdicts of the other profiles", testutil.ToFloat64(m.verdicts.WithLabelValues("evicted", "EvictionAccepted", "", otherLabel, otherLabel, "web")), many-mostPairs)
}

func TestIntentsMetric(t *testing.T) {
	r := prometheus.NewRegistry()
	cfg := Config{Policy: policy.Policy{Rate: policy.Rate{EvictionsPerSecond: 0.001, Burst: 1}}, Metrics: r}
	inBubble(t, cfg, always(schemas.Evicted, schemas.ReasonEvictionAccepted, 0), func(t *testing.T, b *bench) {
		b.put("C", 1, "0") // takes the only token
		time.Sleep(time.Second)
		b.put("A", 2, "p1", "p2")
		time.Sleep(time.Second)
		b.put("A", 3, "p1", "p2", "p3") // again, and one more
		b.put("B", 4, "p1")             // of another strategy
		time.Sleep(time.Second)
		b.put("A", 5)
		time.Sleep(time.Second)
		b.put("A", 6, "p1") // it was withdrawn meanwhile
		time.Sleep(time.Second)
	})
	want := `# TYPE rehome_intents_total counter
rehome_intents_total{profile="default",strategy="A"} 4
rehome_intents_total{profile="default",strategy="B"} 1
rehome_intents_total{profile="default",strategy="C"} 1
`
	metricstest.Compare(t, r, want, "rehome_intents_total")
}

// A process that no longer leads must not export gauges of its last session.
func TestGauges(t *testing.T) {
	t.Run("of_a_session_end_with_it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			move := before("1", 0)
			move.Begun, move.Moved, move.Settled = time.Now(), time.Now(), false
			k := limit.BreakerKey{Workload: api.UID, Strategy: "A", Node: "worker-1"}
			m := remembering(t, map[string]any{
				move.key(): move,
				loopKey(k): WorkloadBreaker{BreakerKey: k, BreakerRecord: limit.BreakerRecord{Returns: 1, Returned: time.Now(), Last: time.Now()}},
			})
			r, view := prometheus.NewRegistry(), webPods("1")
			view.nodes = []cluster.Node{{Name: "worker-1"}, {Name: "worker-2"}, {Name: "worker-3"}}
			a := New(Config{
				Bus: m, Ledger: m, Source: "/test/actuator", View: view, Metrics: r, Log: slog.New(slog.DiscardHandler),
				Policy: policy.Policy{Rate: fast.Rate, CircuitBreakers: policy.DefaultCircuitBreakers()},
			})
			gauges := func() []float64 {
				families, err := r.Gather()
				expect.Equal(t, "error", err, nil)
				value := map[string]float64{}
				for _, f := range families {
					value[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
				}
				return []float64{
					value["rehome_moves_in_flight"], value["rehome_workload_breakers_open"], float64(testutil.CollectAndCount(a.metrics.storm)),
				}
			}
			stop := leads(t, a, always(schemas.Evicted, schemas.ReasonEvictionAccepted, 0))
			expect.Equal(t, "moves in flight, workload circuit breakers and cluster circuit breakers of the leader", gauges(), []float64{1, 1, 1})
			stop()
			expect.Equal(t, "moves in flight, workload circuit breakers and cluster circuit breakers afterwards", gauges(), []float64{0, 0, 0})
		})
	})
}

func TestFaultsResetAfterSession(t *testing.T) {
	r := prometheus.NewRegistry()
	a := New(Config{Bus: newMemory(), Metrics: r, Log: slog.New(slog.DiscardHandler), Policy: policy.Policy{
		Restart: policy.Restart{Workloads: policy.RestartAll},
	}})
	a.setInvalidRecords([]error{errors.New("unreadable")})
	a.noteRight(move.Refused(schemas.MethodSurge, move.Forbidden(errors.New("denied"))))
	if a.Ready() == nil {
		t.Error("a leader with an invalid record and a missing right is ready")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	expect.Equal(t, "end", a.Lead(ctx), nil)
	expect.Equal(t, "ready", a.Ready(), nil)
	want := `# TYPE rehome_ledger_invalid_records gauge
rehome_ledger_invalid_records 0
# TYPE rehome_missing_rights gauge
rehome_missing_rights{method="eviction-request"} 0
rehome_missing_rights{method="rollout-restart"} 0
rehome_missing_rights{method="surge"} 0
`
	metricstest.Compare(t, r, want, "rehome_ledger_invalid_records", "rehome_missing_rights")
}
