package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// check says what keeps a part from doing its work; nil when nothing does.
type check func(context.Context) error

// server answers /metrics, /healthz and /readyz.
type server struct {
	address string
	metrics *prometheus.Registry
	checks  []check
	log     *slog.Logger
}

// newMetrics makes a registry that has the figures of the process itself.
func newMetrics() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r.MustRegister(buildInfo()...)
	return r
}

// listen takes the address, so that a wrong or taken one is known before any work begins. nil: no address was given.
func (s server) listen() (net.Listener, error) {
	if s.address == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", s.address)
	if err != nil {
		return nil, usageError{fmt.Errorf("REHOME_HTTP_ADDRESS: cannot listen on %s: %w", s.address, err)}
	}
	return l, nil
}

// serve answers on l until ctx ends, and then for at most a second more: every answer is small and at hand.
func (s server) serve(ctx context.Context, l net.Listener) error {
	if l == nil {
		<-ctx.Done()
		return nil
	}
	h := &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	defer context.AfterFunc(ctx, func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = h.Shutdown(last) // what is left after the second is cut off by the end of the process
	})()
	s.log.Info("serving", "metrics", "http://"+l.Addr().String()+"/metrics")
	if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", s.address, err)
	}
	return nil
}

func (s server) handler() *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.metrics, promhttp.HandlerOpts{Registry: s.metrics}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", s.ready)
	return mux
}

// ready answers 200, or 503 with a line for each thing that is missing.
func (s server) ready(w http.ResponseWriter, r *http.Request) {
	var missing []error
	for _, c := range s.checks {
		if err := c(r.Context()); err != nil {
			missing = append(missing, err)
		}
	}
	if err := errors.Join(missing...); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "ok\n")
}
