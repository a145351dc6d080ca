package serving

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rehome-dev/rehome/app/settings"
)

// buildInfo says by labels what was built, in our words and, for dashboards that exist, in those of
// kubernetes-sigs/descheduler. The value is always 1.
func buildInfo() []prometheus.Collector {
	revision := settings.Commit()
	one := func(name, help string, labels prometheus.Labels) prometheus.Collector {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels})
		g.Set(1)
		return g
	}
	return []prometheus.Collector{
		one("rehome_build_info", "What was built.", prometheus.Labels{
			"version": settings.Version, "revision": revision, "goversion": runtime.Version(),
		}),
		one("descheduler_build_info", "What was built, with the labels of kubernetes-sigs/descheduler.", prometheus.Labels{
			"DeschedulerVersion": settings.Version, "AppVersion": settings.Version, "GitSha1": revision, "GitBranch": "",
			"GoVersion": runtime.Version(),
		}),
	}
}
