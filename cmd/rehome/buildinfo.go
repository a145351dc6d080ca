package main

import (
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
)

// buildInfo says by labels what was built, in our words and, for dashboards that exist, in those of
// kubernetes-sigs/descheduler. The value is always 1.
func buildInfo() []prometheus.Collector {
	revision := commit()
	one := func(name, help string, labels prometheus.Labels) prometheus.Collector {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels})
		g.Set(1)
		return g
	}
	return []prometheus.Collector{
		one("rehome_build_info", "What was built.", prometheus.Labels{
			"version": version, "revision": revision, "goversion": runtime.Version(),
		}),
		one("descheduler_build_info", "What was built, with the labels of kubernetes-sigs/descheduler.", prometheus.Labels{
			"DeschedulerVersion": version, "AppVersion": version, "GitSha1": revision, "GitBranch": "", "GoVersion": runtime.Version(),
		}),
	}
}

// commit is what was built from: what the linker was told or, of a program that `go build` or `go install` made, what Go
// found out. Empty: nobody knows.
func commit() string {
	if revision != "" {
		return revision
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return ""
}
