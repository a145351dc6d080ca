// Package metricstest compares metrics in tests.
package metricstest

import (
	"bytes"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

// Compare reports an error unless the metrics with these names, or all metrics without names, equal want. It is in the text format
// of Prometheus, without help texts, which people read and no program depends on.
func Compare(t testing.TB, from prometheus.Gatherer, want string, names ...string) {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Error(err)
		return
	}
	var got bytes.Buffer
	for _, f := range families {
		if len(names) > 0 && !slices.Contains(names, f.GetName()) {
			continue
		}
		f.Help = nil
		if _, err := expfmt.MetricFamilyToText(&got, f); err != nil {
			t.Error(err)
			return
		}
	}
	if got.String() != want {
		t.Errorf("metrics: got\n%s\nwant\n%s", &got, want)
	}
}

// Of returns a registry with only this collector.
func Of(c prometheus.Collector) prometheus.Gatherer {
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	return r
}
