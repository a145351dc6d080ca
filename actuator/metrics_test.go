package actuator

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

func TestEvictedMetricCountsNoDeferrals(t *testing.T) {
	r := prometheus.NewRegistry()
	m := newMetrics(r)
	for _, outcome := range schemas.Outcomes() {
		m.observe(schemas.Verdict{
			Outcome: outcome, Reason: "Any", Profile: "p", Strategy: "S",
			Intent: schemas.Intent{Pod: schemas.PodRef{Namespace: "web", Name: "a"}, Node: "n1"},
		}, time.Unix(1_790_000_000, 0))
	}
	want := `# HELP descheduler_pods_evicted_total Evictions by their result, success or error, as kubernetes-sigs/descheduler counts them; dry runs included.
# TYPE descheduler_pods_evicted_total counter
descheduler_pods_evicted_total{namespace="web",profile="p",result="error",strategy="S"} 1
descheduler_pods_evicted_total{namespace="web",profile="p",result="success",strategy="S"} 3
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(want), "descheduler_pods_evicted_total"); err != nil {
		t.Error(err)
	}
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
	want := `# HELP rehome_intents_total Intents that were accepted, each once for as long as it is open; again by the next leader.
# TYPE rehome_intents_total counter
rehome_intents_total{profile="default",strategy="A"} 4
rehome_intents_total{profile="default",strategy="B"} 1
rehome_intents_total{profile="default",strategy="C"} 1
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(want), "rehome_intents_total"); err != nil {
		t.Error(err)
	}
}
