package watcher

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rehome-dev/rehome/watcher/scope"
)

// metrics are the watcher's own figures.
type metrics struct {
	deltas        *prometheus.CounterVec
	deltasDropped prometheus.Counter
	scopes        *prometheus.CounterVec
	refused       *prometheus.CounterVec
	requests      *prometheus.CounterVec
}

// newMetrics registers with r; nil registers nowhere. pending is asked for the number of pending evaluations.
func newMetrics(r prometheus.Registerer, pending func() float64) *metrics {
	m := &metrics{
		deltas: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rehome_deltas_total", Help: "Changes of the cluster that were observed and published, by kind.",
		}, []string{"kind"}),
		deltasDropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rehome_deltas_dropped_total", Help: "Deltas not published: the bus was away too long, or will never take them.",
		}),
		scopes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rehome_scopes_total", Help: "Scopes that were built. Those that can have no answer are not published.",
		}, []string{"strategy", "profile"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rehome_scopes_refused_total", Help: "Evaluations whose scope the bus will never take, mostly because it is too large.",
		}, []string{"strategy", "profile"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rehome_requests_total",
			Help: "Requests, by what became of them. Senders that the policy does not have are other.",
		}, []string{"sender", "state"}),
	}
	if r != nil {
		r.MustRegister(m.deltas, m.deltasDropped, m.scopes, m.refused, m.requests, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "rehome_pending_evaluations", Help: "Evaluations that wait to be published.",
		}, pending))
	}
	return m
}

// expect exports the failure counters of a policy with 0, so that the first failure is an increase.
func (m *metrics) expect(p *scope.CompiledPolicy) {
	for _, s := range p.Strategies {
		m.refused.WithLabelValues(s.Name, s.Profile.Name)
	}
}
