package main

import (
	"context"

	"github.com/rehome-dev/rehome/app/serving"

	"github.com/prometheus/client_golang/prometheus"
)

// newLeading makes the metric of the leases that this process holds.
func newLeading() *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "rehome_leader",
		Help: "1: this process is the active one of the role that the lease is for. 0: it is on standby.",
	}, []string{"lease"})
}

// counted is a role whose metric says while it runs that it is active here.
func counted(leading prometheus.Gauge, run task) task {
	leading.Set(0)
	return func(ctx context.Context) error {
		leading.Set(1)
		defer leading.Set(0)
		return run(ctx)
	}
}

// newReadiness makes the metric that says what /readyz does. The checks are made when somebody asks for the metrics.
func newReadiness(checks []serving.Check) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rehome_ready", Help: "1: the process can do its work. 0: /readyz says why it cannot.",
	}, func() float64 {
		ctx, cancel := context.WithTimeout(context.Background(), countWithin)
		defer cancel()
		for _, c := range checks {
			if c(ctx) != nil {
				return 0
			}
		}
		return 1
	})
}
