// Package metricstest compares metrics in tests.
package metricstest

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
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
	for _, f := range families {
		kind := "# TYPE " + f.GetName() + " "
		want = strings.Replace(want, kind, "# HELP "+f.GetName()+" "+f.GetHelp()+"\n"+kind, 1)
	}
	if err := testutil.GatherAndCompare(from, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
}

// Of returns a registry with only this collector.
func Of(c prometheus.Collector) prometheus.Gatherer {
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(c)
	return r
}
