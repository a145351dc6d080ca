package lownodeutilization

import (
	"github.com/rehome-dev/rehome/policy"
)

// MetricsUtilization says where the load of nodes and pods is measured.
type MetricsUtilization struct {
	// MetricsServer is the older way to write Source: KubernetesMetrics.
	MetricsServer bool              `json:"metricsServer,omitzero"`
	Source        policy.LoadSource `json:"source,omitzero"`
	// Prometheus must be given with the Source Prometheus, and with no other.
	Prometheus *Prometheus `json:"prometheus,omitzero"`
}

// Prometheus says what Prometheus is asked.
type Prometheus struct {
	// Query gives one figure a node from 0 to 1, with the label instance that names the node.
	Query string `json:"query,omitzero"`
}

// Load is where usage is taken from: what pods request, unless MetricsUtilization says otherwise.
func (a Args) Load() policy.Load {
	m := a.MetricsUtilization
	switch {
	case m == nil:
		return policy.Load{}
	case m.MetricsServer:
		return policy.Load{Source: policy.LoadKubernetes}
	case m.Source == policy.LoadPrometheus && m.Prometheus != nil:
		return policy.Load{Source: m.Source, Query: m.Prometheus.Query}
	}
	return policy.Load{Source: m.Source}
}
