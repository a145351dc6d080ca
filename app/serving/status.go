package serving

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/app/settings"
)

// mostScrapes limits the scrapes in progress, each of which queries the bus. Prometheus has one or two.
const mostScrapes = 8

// Check returns the reason why a part of the process cannot work, or nil.
type Check func(context.Context) error

// Status serves /metrics, /healthz, /readyz, and if enabled /debug/pprof/. Use [NewStatus] to make one.
type Status struct {
	Metrics  *prometheus.Registry
	Checks   []Check      // set before the first request
	Warnings []Check      // like Checks; /readyz names their errors and is 200 nevertheless
	Alive    func() error // the result of /healthz; nil means always 200. Set before the first request
	guard    *Guard       // for metrics and profiles; nil allows every client
	profiles bool
}

// ListenForStatus opens the address for metrics and probes.
func ListenForStatus(
	s settings.Settings, client kubernetes.Interface, metrics *prometheus.Registry, log *slog.Logger,
) (*Server, *Status, error) {
	status, err := NewStatus(s, s.HTTPAddress, client, metrics, log)
	if err != nil {
		return nil, nil, err
	}
	web, err := Listen("REHOME_HTTP_ADDRESS", s.HTTPAddress, s.MetricsTLS(), s.HTTP2, log)
	if err != nil {
		return nil, nil, err
	}
	web.Handler = status.Handler()
	status.Warnings = []Check{web.Warning}
	return web, status, web.Register(metrics, "status")
}

// NewStatus checks the settings for an address. client checks rights; it is nil in a process without access to the
// cluster.
func NewStatus(
	s settings.Settings, address string, client kubernetes.Interface, metrics *prometheus.Registry, log *slog.Logger,
) (*Status, error) {
	status := &Status{profiles: s.Profiles, Metrics: metrics}
	switch {
	case address == "":
	case s.Profiles && !s.HTTPAuth && !isLocal(address):
		return nil, fmt.Errorf("REHOME_PROFILES: want REHOME_HTTP_AUTH=true with it, or a loopback address such as "+
			"127.0.0.1:8642, got %s", address)
	case s.HTTPAuth && client == nil:
		return nil, fmt.Errorf("REHOME_HTTP_AUTH: want false for a process without access to the cluster, got true: " +
			"only the roles watcher, actuator, maintenance, and api can check rights")
	case s.HTTPAuth:
		status.guard = NewGuard(client, time.Now, log)
	}
	return status, nil
}

// Handler serves the paths. Profiles show parts of the command line and of memory, so the guard protects them too.
func (s *Status) Handler() *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", s.guard.Protect(promhttp.HandlerFor(s.Metrics, promhttp.HandlerOpts{
		Registry: s.Metrics, MaxRequestsInFlight: mostScrapes,
	})))
	if s.profiles {
		for path, serve := range map[string]http.HandlerFunc{
			"": pprof.Index, "cmdline": pprof.Cmdline, "profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace,
		} {
			mux.Handle("GET /debug/pprof/"+path, s.guard.Protect(serve))
		}
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if s.Alive != nil {
			if err := s.Alive(); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
		}
		_, _ = io.WriteString(w, "ok\n")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := s.Ready(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok\n")
		if err := all(r.Context(), s.Warnings); err != nil {
			_, _ = io.WriteString(w, err.Error()+"\n")
		}
	})
	return mux
}

// Ready joins the errors of all checks.
func (s *Status) Ready(ctx context.Context) error { return all(ctx, s.Checks) }

func all(ctx context.Context, checks []Check) error {
	var failed []error
	for _, check := range checks {
		failed = append(failed, check(ctx))
	}
	return errors.Join(failed...)
}

// NewMetrics returns a registry with the metrics of the process and of the build. The latter also have the labels that
// dashboards of kubernetes-sigs/descheduler use.
func NewMetrics() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	build := func(name, help string, labels prometheus.Labels) {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels})
		g.Set(1)
		r.MustRegister(g)
	}
	build("rehome_build_info", "Always 1. The labels have the build of the program.", prometheus.Labels{
		"version": settings.Version, "revision": settings.Commit(), "goversion": runtime.Version(),
	})
	build("descheduler_build_info", "Always 1. The same, with the labels of kubernetes-sigs/descheduler.", prometheus.Labels{
		"DeschedulerVersion": settings.Version, "AppVersion": settings.Version, "GitSha1": settings.Commit(), "GitBranch": "",
		"GoVersion": runtime.Version(),
	})
	return r
}
