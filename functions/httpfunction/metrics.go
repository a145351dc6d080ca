package httpfunction

import (
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rehome-dev/rehome/functions"
)

// metrics are the figures of one handler. The statuses are those of the package comment, so every label is bounded.
type metrics struct {
	requests   *prometheus.CounterVec
	seconds    prometheus.Histogram
	decisions  *prometheus.HistogramVec
	evaluation prometheus.Observer
	inside     prometheus.Collector
}

func newMetrics(strategy string, g *gate) *metrics {
	labels := prometheus.Labels{"strategy": strategy}
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rehome_function_requests_total", Help: "HTTP requests to a function by the status of the answer.",
			ConstLabels: labels,
		}, []string{"code"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "rehome_function_request_seconds", Help: "Time to read an HTTP request to a function and to answer it.",
			Buckets:     []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
			ConstLabels: labels,
		}),
		decisions: functions.EvaluationSeconds(),
		inside: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "rehome_function_requests_in_progress", Help: "HTTP requests to a function that are being answered.",
			ConstLabels: labels,
		}, func() float64 { return float64(g.count()) }),
	}
	m.evaluation = m.decisions.WithLabelValues(strategy)
	return m
}

func (m *metrics) register(r prometheus.Registerer) error {
	return errors.Join(r.Register(m.requests), r.Register(m.seconds), r.Register(m.decisions), r.Register(m.inside))
}

// served counts a request that was answered with a status.
func (m *metrics) served(status int, took time.Duration) {
	m.requests.WithLabelValues(strconv.Itoa(status)).Inc()
	m.seconds.Observe(took.Seconds())
}
