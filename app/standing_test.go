package app

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rehome-dev/rehome/app/serving"
	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/test/kit/metricstest"
)

func TestLeaderMetric(t *testing.T) {
	leading := newLeading()
	is := func(watcher, actuator string) {
		t.Helper()
		want := "# TYPE rehome_leader gauge\n" +
			"rehome_leader{lease=\"rehome-actuator\"} " + actuator + "\nrehome_leader{lease=\"rehome-watcher\"} " + watcher + "\n"
		metricstest.Compare(t, metricstest.Of(leading), want)
	}
	failed := errors.New("it failed")
	counted(leading.WithLabelValues(settings.WatcherLease), nil)
	run := counted(leading.WithLabelValues(settings.ActuatorLease), func(context.Context) error {
		is("0", "1")
		return failed
	})
	is("0", "0")
	if err := run(t.Context()); !errors.Is(err, failed) {
		t.Errorf("got %v, want %v", err, failed)
	}
	is("0", "0")
}

func TestReadyMetric(t *testing.T) {
	well, ill := func(context.Context) error { return nil }, func(context.Context) error { return errors.New("the bus is away") }
	for _, c := range []struct {
		name   string
		checks []serving.Check
		want   float64
	}{
		{"nothing to check", nil, 1}, {"all is well", []serving.Check{well, well}, 1}, {"one thing is missing", []serving.Check{well, ill}, 0},
	} {
		if got := testutil.ToFloat64(newReadiness((&serving.Status{Checks: c.checks}).Ready)); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func TestScrapeReadinessTimeout(t *testing.T) {
	bounded := func(ctx context.Context) error {
		if _, ok := ctx.Deadline(); !ok {
			t.Error("the check has all the time that it wants")
		}
		return nil
	}
	testutil.ToFloat64(newReadiness(bounded))
}
