package actuator

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/rehome-dev/rehome/schemas"
)

// metrics are what the actuator counts.
type metrics struct {
	intents  *prometheus.CounterVec
	verdicts *prometheus.CounterVec
	// evicted is the count of kubernetes-sigs/descheduler, under its name and with its labels, for dashboards that exist.
	evicted *prometheus.CounterVec
	delay   prometheus.Histogram
	call    prometheus.Histogram
	open    prometheus.Gauge

	moving    prometheus.Gauge
	settled   *prometheus.HistogramVec
	storm     *prometheus.GaugeVec
	loops     *prometheus.CounterVec
	loopsOpen prometheus.Gauge
	bad       prometheus.Gauge
	rights    *prometheus.GaugeVec
}

func newMetrics(r prometheus.Registerer) metrics {
	auto := promauto.With(r)
	m := metrics{
		intents: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "rehome_intents_total",
			Help: "Intents that were taken up, each once for as long as it is open; again by the next leader.",
		}, []string{"strategy", "profile"}),
		verdicts: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "rehome_verdicts_total",
			Help: "Verdicts on intents, dry runs included.",
		}, []string{"outcome", "reason", "method", "strategy", "profile", "namespace"}),
		evicted: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "descheduler_pods_evicted_total",
			Help: "Evictions by their result, success or error, as kubernetes-sigs/descheduler counts them; dry runs included.",
		}, []string{"result", "strategy", "profile", "namespace"}),
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
		open: auto.NewGauge(prometheus.GaugeOpts{Name: "rehome_open_intents", Help: "Intents that have no verdict yet."}),
		moving: auto.NewGauge(prometheus.GaugeOpts{
			Name: "rehome_moves_in_flight",
			Help: "Pods that were moved and whose replacements are not ready yet.",
		}),
		settled: auto.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rehome_move_settled_seconds",
			Help: "Time from the acceptance of a move to its end, by how it ended.",
			// A replacement whose image is there needs seconds; a move is followed for ten minutes.
			Buckets: []float64{.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600},
		}, []string{"reason", "method"}),
		storm: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "rehome_storm_brake_open",
			Help: "1 for each reason why nothing is moved at all. No series: pods are moved.",
		}, []string{"reason"}),
		loops: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "rehome_loop_breaker_opened_total",
			Help: "Returns of pods to the node that they had been moved from, each of which opens or lengthens a loop breaker.",
		}, []string{"strategy"}),
		loopsOpen: auto.NewGauge(prometheus.GaugeOpts{
			Name: "rehome_loop_breakers_open",
			Help: "Workloads that a strategy leaves alone on a node because moving them there has not helped.",
		}),
		rights: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "rehome_missing_rights",
			Help: "1 for each method of moving pods for which the actuator lacks a right; pods are moved by the next method.",
		}, []string{"method"}),
		bad: auto.NewGauge(prometheus.GaugeOpts{
			Name: "rehome_ledger_bad_records",
			Help: "Records of the ledger that cannot be read and were set aside.",
		}),
	}
	for _, method := range []schemas.Method{schemas.MethodRestart, schemas.MethodSurge, schemas.MethodEvictionRequest} {
		m.rights.WithLabelValues(string(method)) // 0: no right is missing
	}
	return m
}

// taken counts an intent that is open from now on.
func (m metrics) taken(o Open) { m.intents.WithLabelValues(o.Strategy, o.Profile).Inc() }

// observe counts a verdict that was stored at the time now.
func (m metrics) observe(v schemas.Verdict, now time.Time) {
	m.verdicts.WithLabelValues(
		string(v.Outcome), string(v.Reason), string(v.Method), v.Strategy, v.Profile, v.Intent.Pod.Namespace,
	).Inc()
	if v.Settlement != nil {
		m.settled.WithLabelValues(string(v.Reason), string(v.Method)).Observe(v.Settlement.Seconds)
	}
	if result := evictionResult(v); result != "" {
		m.evicted.WithLabelValues(result, v.Strategy, v.Profile, v.Intent.Pod.Namespace).Inc()
	}
	if v.Outcome.Moves() && !v.Scope.Since.IsZero() {
		m.delay.Observe(max(now.Sub(v.Scope.Since), 0).Seconds())
	}
}

// evictionResult is what kubernetes-sigs/descheduler calls the result of an eviction. Empty: it would not have tried one.
func evictionResult(v schemas.Verdict) string {
	switch v.Outcome {
	case schemas.Evicted, schemas.Restarted, schemas.Requested:
		return "success"
	case schemas.Failed: // what is deferred is tried again
		return "error"
	}
	return ""
}
