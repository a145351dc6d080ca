package watcher

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rehome-dev/rehome/watcher/scope"
)

// metrics are the metrics of the watcher.
type metrics struct {
	deltas        *prometheus.CounterVec
	deltasDropped prometheus.Counter
	scopes        *prometheus.CounterVec
	refused       *prometheus.CounterVec
	requests      *prometheus.CounterVec
}

// newMetrics registers the metrics with r, unless r is nil. pending returns the number of pending evaluations.
func newMetrics(r prometheus.Registerer, pending func() float64) *metrics {
	m := &metrics{
		deltas: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rehome_deltas_total", Help: "Published deltas by kind.",
		}, []string{"kind"}),
		deltasDropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rehome_deltas_dropped_total", Help: "Deltas dropped because the bus was unavailable for too long or refused them.",
		}),
		scopes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rehome_scopes_total",
			Help: "Scopes built. Scopes that cannot have an answer are published only to withdraw an earlier answer.",
		}, []string{"strategy", "profile"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rehome_scopes_refused_total", Help: "Scopes dropped because the bus refused them, usually for their size.",
		}, []string{"strategy", "profile"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rehome_requests_total",
			Help: "Requests by sender and result. Senders that the policy does not list count as other.",
		}, []string{"sender", "state"}),
	}
	if r != nil {
		r.MustRegister(m.deltas, m.deltasDropped, m.scopes, m.refused, m.requests, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "rehome_pending_evaluations", Help: "Evaluations waiting in the queue.",
		}, pending))
	}
	return m
}

// expect exports the failure counters of a policy with the value 0, so that the first failure is visible as an
// increase.
func (m *metrics) expect(p *scope.CompiledPolicy) {
	for _, s := range p.Strategies {
		m.refused.WithLabelValues(s.Name, s.Profile.Name)
	}
}
