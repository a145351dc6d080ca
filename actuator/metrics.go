package actuator

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/rehome-dev/rehome/schemas"
)

// metrics are what the actuator counts.
type metrics struct {
	verdicts *prometheus.CounterVec
	// evicted is the count of kubernetes-sigs/descheduler, under its name and with its labels, for dashboards that exist.
	evicted *prometheus.CounterVec
	delay   prometheus.Histogram
	call    prometheus.Histogram
	open    prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) metrics {
	auto := promauto.With(r)
	return metrics{
		verdicts: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "rehome_verdicts_total",
			Help: "Verdicts on intents, dry runs included.",
		}, []string{"outcome", "reason", "strategy", "profile", "namespace"}),
		evicted: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "descheduler_pods_evicted_total",
			Help: "Evictions by their result, success or error, as kubernetes-sigs/descheduler counts them; dry runs included.",
		}, []string{"result", "strategy", "profile", "namespace", "node"}),
		delay: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "rehome_move_delay_seconds",
			Help: "Time from the observation of the oldest cause to the stored verdict that the pod was evicted.",
			// 0.2 and 0.5 are the targets for the median and the 99th percentile.
			Buckets: []float64{.05, .1, .2, .3, .5, 1, 2, 5, 10, 30, 60, 300, 600},
		}),
		call: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "rehome_eviction_call_seconds",
			Help: "Duration of eviction calls to the API server, whatever their answer.",
			// One call takes about 100 ms, and is given up after 15 s.
			Buckets: []float64{.01, .025, .05, .1, .15, .25, .5, 1, 2.5, 5, 10, 15},
		}),
		open: auto.NewGauge(prometheus.GaugeOpts{
			Name: "rehome_open_intents",
			Help: "Intents that have no verdict yet.",
		}),
	}
}

// observe counts a verdict that was stored at the time now.
func (m metrics) observe(v schemas.Verdict, now time.Time) {
	m.verdicts.WithLabelValues(string(v.Outcome), string(v.Reason), v.Strategy, v.Profile, v.Intent.Pod.Namespace).Inc()
	if result := peerResult(v); result != "" {
		m.evicted.WithLabelValues(result, v.Strategy, v.Profile, v.Intent.Pod.Namespace, v.Intent.Node).Inc()
	}
	if v.Outcome == schemas.Evicted && !v.Scope.Since.IsZero() {
		m.delay.Observe(max(now.Sub(v.Scope.Since), 0).Seconds())
	}
}

// peerResult is what kubernetes-sigs/descheduler calls the result of an eviction. Empty: it would not have tried one.
func peerResult(v schemas.Verdict) string {
	switch v.Outcome {
	case schemas.Evicted:
		return "success"
	case schemas.Deferred, schemas.Failed: // a budget, a limit, or the API server held it
		return "error"
	}
	return ""
}
