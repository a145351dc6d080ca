package maintenance

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/rehome-dev/rehome/maintenance/apply"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// mostMaintenances bounds the number of maintenances with series for their nodes. They are chosen by name.
const mostMaintenances = 100

// metrics are safe for concurrent use.
type metrics struct {
	steps    *prometheus.CounterVec
	requests *prometheus.CounterVec // by sender and state
}

func newMetrics(registerer prometheus.Registerer, nodes nodeCollector) metrics {
	auto := promauto.With(registerer)
	m := metrics{
		steps: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "rehome_maintenance_steps_total",
			Help: "Steps of maintenances other than moves, by outcome, including dry runs.",
		}, []string{"action", "outcome"}),
		requests: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "rehome_maintenance_requests_total",
			Help: "Requests for nodes by sender and state. Senders that the policy does not list count as \"other\".",
		}, []string{"sender", "state"}),
	}
	m.requests.WithLabelValues("other", string(schemas.RequestRejected)) // so that the first one is visible as an increase
	if registerer != nil {
		registerer.MustRegister(nodes)
	}
	return m
}

// observe counts the steps of a decision.
func (m metrics) observe(r apply.Result, err error) {
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
}

// nodeCollector counts the nodes in the statuses of maintenances. list returns none while this process does not lead.
type nodeCollector struct {
	list func() []*v1alpha1.NodeMaintenance
}

func nodesDesc() *prometheus.Desc {
	return prometheus.NewDesc("rehome_maintenance_nodes",
		"Nodes by stage of each maintenance in progress, for at most 100 maintenances.",
		[]string{"maintenance", "stage"}, nil)
}

// Describe implements [prometheus.Collector].
func (nodeCollector) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- nodesDesc() }

// Collect implements [prometheus.Collector]. An accepted maintenance has the finalizer until no node has its mark.
func (c nodeCollector) Collect(series chan<- prometheus.Metric) {
	counted := 0
	for _, m := range c.list() {
		if counted == mostMaintenances {
			return
		}
		accepted := slices.Contains(m.Finalizers, schemas.MaintenanceFinalizer)
		if !accepted || meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.Completed) {
			continue
		}
		counted++
		stages := map[v1alpha1.NodeStage]float64{}
		for _, n := range m.Status.Nodes {
			stages[n.Stage]++
		}
		for stage, count := range stages {
			series <- prometheus.MustNewConstMetric(nodesDesc(), prometheus.GaugeValue, count, m.Name, string(stage))
		}
	}
}
