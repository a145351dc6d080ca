package maintenance

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/rehome-dev/rehome/maintenance/apply"
	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// mostMaintenances bounds the maintenances whose nodes are counted at a time, so that a cluster with thousands of them does
// not make as many series. Those beyond are not counted.
const mostMaintenances = 100

// metrics are what is counted about maintenances. They are safe for concurrent use.
type metrics struct {
	steps *prometheus.CounterVec
	nodes *prometheus.GaugeVec
	known *knownMaintenances
	// requests are those for nodes, by sender and state.
	requests *prometheus.CounterVec
}

type knownMaintenances struct {
	mu    sync.Mutex
	names map[string]bool
}

func newMetrics(registerer prometheus.Registerer) metrics {
	auto := promauto.With(registerer)
	m := metrics{
		steps: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "rehome_maintenance_steps_total",
			Help: "What was done for maintenances besides moves, by what became of it, dry runs included.",
		}, []string{"action", "outcome"}),
		nodes: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "rehome_maintenance_nodes",
			Help: "Nodes of each maintenance that is or was accepted and is not completed, by how far they are; " +
				"of at most 100 maintenances.",
		}, []string{"maintenance", "stage"}),
		requests: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "rehome_maintenance_requests_total",
			Help: "Requests for nodes by sender and state. Senders that the policy does not know are \"other\".",
		}, []string{"sender", "state"}),
		known: &knownMaintenances{names: map[string]bool{}},
	}
	m.requests.WithLabelValues("other", string(schemas.RequestRejected)) // so that the first one can be seen as an increase
	return m
}

// observe counts what was done, and the nodes as the status has them. Those of a maintenance that is gone or completed, or is to
// have no finalizer, are counted no more: nothing of it is on a node, and nobody hears of it when it is deleted.
func (m metrics) observe(s plan.Decision, r apply.Result, err error) {
	status := apply.Unchanged
	switch {
	case r.Dropped != "":
		status = apply.Outdated
	case r.Wrote:
		status = apply.Changed
	case err != nil && r.Before == nil:
		status = apply.Failed
	}
	m.steps.WithLabelValues("status", string(status)).Inc()
	for _, n := range r.Nodes {
		m.steps.WithLabelValues(string(n.Action), string(n.Outcome)).Inc()
	}
	if gone := r.Dropped != "" && r.Before == nil; !gone && !stored(r, err) {
		return // a newer one says how it is
	}
	m.known.mu.Lock()
	defer m.known.mu.Unlock()
	m.nodes.DeletePartialMatch(prometheus.Labels{"maintenance": s.Name})
	switch {
	case r.Dropped != "" || !s.Finalizer || meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.Completed):
		delete(m.known.names, s.Name)
		return
	case !m.known.names[s.Name] && len(m.known.names) >= mostMaintenances:
		return
	}
	m.known.names[s.Name] = true
	for _, n := range s.Status.Nodes {
		m.nodes.WithLabelValues(s.Name, string(n.Stage)).Inc()
	}
}

// gone removes what is counted of a maintenance that is gone.
func (m metrics) gone(name string) {
	m.known.mu.Lock()
	defer m.known.mu.Unlock()
	delete(m.known.names, name)
	m.nodes.DeletePartialMatch(prometheus.Labels{"maintenance": name})
}

// forget removes everything: another process leads.
func (m metrics) forget() {
	m.known.mu.Lock()
	defer m.known.mu.Unlock()
	clear(m.known.names)
	m.nodes.Reset()
}
