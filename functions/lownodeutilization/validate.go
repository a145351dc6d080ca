package lownodeutilization

import (
	"fmt"
	"strings"

	"github.com/rehome-dev/rehome/functions/utilization"
	"github.com/rehome-dev/rehome/policy"
)

// Validate says what is wrong with the arguments; each error in it is a *[policy.FieldError].
func (a Args) Validate() error {
	var found policy.Findings
	source := a.Load().Source
	found.Join("thresholds", a.Thresholds.Validate(source))
	found.Join("targetThresholds", a.TargetThresholds.Validate(source))
	found.Join("", a.compare())
	found.Join("", utilization.ValidateCount(a.NumberOfNodes))
	found.Join("evictableNamespaces", utilization.ValidateExcluded(a.EvictableNamespaces))
	found.Join("metricsUtilization", a.MetricsUtilization.validate())
	return found.Err()
}

// compare says how the two maps of thresholds do not go together.
func (a Args) compare() error {
	var found policy.Findings
	if len(a.Thresholds) == 0 || len(a.TargetThresholds) == 0 {
		return nil // that one of them is missing is enough to say
	}
	for _, name := range a.Thresholds.Names() {
		low, key := a.Thresholds[name], utilization.Key(name)
		high, both := a.TargetThresholds[name]
		switch {
		case !both:
			found.Add("thresholds"+key, nil, "is not among targetThresholds", "name the same resources in both")
		case low > high && !a.UseDeviationThresholds:
			found.Add("thresholds"+key, low, "is more than targetThresholds"+key, fmt.Sprintf("want at most %g", high))
		}
	}
	for _, name := range a.TargetThresholds.Names() {
		if _, both := a.Thresholds[name]; !both {
			found.Add("targetThresholds"+utilization.Key(name), nil, "is not among thresholds", "name the same resources in both")
		}
	}
	return found.Err()
}

func (m *MetricsUtilization) validate() error {
	var found policy.Findings
	const right = "want KubernetesMetrics or Prometheus"
	switch {
	case m == nil:
	case m.MetricsServer && m.Source != "":
		found.Add("metricsServer", nil, "cannot be used together with source", "keep source")
	case m.MetricsServer && m.Prometheus != nil, m.Source == policy.LoadKubernetes && m.Prometheus != nil:
		found.Add("prometheus", nil, "is not asked", "write source: Prometheus, or leave it out")
	case m.MetricsServer, m.Source == policy.LoadKubernetes:
	case m.Source == "":
		found.Add("source", nil, "is missing", right)
	case m.Source != policy.LoadPrometheus:
		found.Add("source", m.Source, "is not known", right)
	case m.Prometheus == nil || strings.TrimSpace(m.Prometheus.Query) == "":
		found.Add("prometheus.query", nil, "is missing", "write what Prometheus is to be asked")
	}
	return found.Err()
}
