package actuator

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rehome-dev/rehome/schemas"
)

func TestEvictionsAreCountedAsThePeerCountsThem(t *testing.T) {
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
descheduler_pods_evicted_total{namespace="web",node="n1",profile="p",result="error",strategy="S"} 2
descheduler_pods_evicted_total{namespace="web",node="n1",profile="p",result="success",strategy="S"} 3
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(want), "descheduler_pods_evicted_total"); err != nil {
		t.Error(err)
	}
}
