package dispatch

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/delivery"
)

// result is what came of one question, for the metric.
type result string

const (
	resultAnswered     result = "answered"
	resultEmpty        result = "empty"        // no pod should move
	resultWrong        result = "wrong"        // the answer is not one to this scope
	resultRefused      result = "refused"      // for good, or with what is no event
	resultLater        result = "later"        // it is to be asked again
	resultUnauthorized result = "unauthorized" // because of who asks
	resultUnreachable  result = "unreachable"  // nobody is there
	resultBroken       result = "broken"       // off, by us or by the bus
)

// resultOf is the result of a question that failed.
func resultOf(err error) result {
	_, later := errors.AsType[*delivery.Later](err)
	switch {
	case errors.Is(err, delivery.ErrUnreachable):
		return resultUnreachable
	case errors.Is(err, delivery.ErrUnauthorized):
		return resultUnauthorized
	case later:
		return resultLater
	case errors.Is(err, schemas.ErrInvalid):
		return resultRefused
	}
	return resultBroken
}

// metrics are the figures of all strategies.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	open     *prometheus.GaugeVec
}

func newMetrics() *metrics {
	return &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rehome_dispatcher_requests_total", Help: "Questions to strategies outside of the process by what came of them.",
		}, []string{"strategy", "result"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rehome_dispatcher_request_seconds", Help: "Time from a question to a strategy outside of the process to its answer.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 600},
		}, []string{"strategy"}),
		open: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "rehome_dispatcher_open", Help: "1: the scopes of the strategy wait, since its function is not there. 0: they are asked.",
		}, []string{"strategy"}),
	}
}

func (m *metrics) register(r prometheus.Registerer) error {
	return errors.Join(r.Register(m.requests), r.Register(m.seconds), r.Register(m.open))
}

// forget drops what was only true while a strategy was asked.
func (m *metrics) forget(strategy string) { m.open.DeleteLabelValues(strategy) }

// figures are those of one strategy.
type figures struct {
	requests *prometheus.CounterVec
	seconds  prometheus.Observer
	open     prometheus.Gauge
}

func (m *metrics) of(strategy string) figures {
	return figures{
		requests: m.requests.MustCurryWith(prometheus.Labels{"strategy": strategy}),
		seconds:  m.seconds.WithLabelValues(strategy), open: m.open.WithLabelValues(strategy),
	}
}

func (f figures) count(r result) { f.requests.WithLabelValues(string(r)).Inc() }
