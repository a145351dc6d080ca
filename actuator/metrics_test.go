package actuator

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

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

func TestAnIntentIsCountedOnceForAsLongAsItIsOpen(t *testing.T) {
	r := prometheus.NewRegistry()
	m := newMetrics(r)
	table := newLined()
	table.added = func(e *entry) { m.taken(e.open) }
	take(table, "A", 1, "p1", "p2")
	take(table, "A", 2, "p1", "p2", "p3") // again, and one more
	take(table, "B", 3, "p1")             // of another strategy
	take(table, "A", 4)
	take(table, "A", 5, "p1") // it was withdrawn meanwhile
	want := `# HELP rehome_intents_total Intents that were taken up, each once for as long as it is open; again by the next leader.
# TYPE rehome_intents_total counter
rehome_intents_total{profile="default",strategy="A"} 4
rehome_intents_total{profile="default",strategy="B"} 1
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(want), "rehome_intents_total"); err != nil {
		t.Error(err)
	}
}
