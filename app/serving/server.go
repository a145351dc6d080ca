package serving

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
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/app/usage"
)

// Check says what keeps a part from doing its work; nil when nothing does.
type Check func(context.Context) error

// server answers /metrics, /healthz and /readyz, and /debug/pprof/ where that is asked for. [newServer] makes it.
type server struct {
	address   string
	Transport Transport
	guard     *Guard // of figures and profiles; nil: they are for everybody
	profiles  bool
	Metrics   *prometheus.Registry
	Checks    []Check
	log       *slog.Logger
}

// NewServer makes what is served at an address, and reads what that needs, so that what is wrong with it is known before any
// work begins. client is asked about rights; nil: the process has no access to the cluster.
func NewServer(
	s settings.Settings, address string, client kubernetes.Interface, metrics *prometheus.Registry, log *slog.Logger,
) (*server, error) {
	web := &server{address: address, profiles: s.Profiles, Metrics: metrics, log: log}
	if address == "" { // nothing is served
		return web, nil
	}
	if s.Profiles && !s.HTTPAuth && !isLoopback(address) {
		return nil, usage.Errorf("REHOME_PROFILES: want REHOME_HTTP_AUTH=true with it, or a loopback address such as "+
			"127.0.0.1:8642, got %s", address)
	}
	if s.HTTPAuth {
		if client == nil {
			return nil, usage.Errorf("REHOME_HTTP_AUTH: want false for a process without access to the cluster, got true: " +
				"only one with the watcher or the actuator can ask who may read")
		}
		web.guard = NewGuard(client, time.Now, log)
	}
	var err error
	web.Transport, err = newTransport(s.MetricsTLS(), s.HTTP2, log)
	return web, err
}

// NewMetrics makes a registry that has the figures of the process itself.
func NewMetrics() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r.MustRegister(buildInfo()...)
	return r
}

// Listen takes the address, so that a wrong or taken one is known before any work begins. nil: no address was given.
func (s *server) Listen() (net.Listener, error) {
	if s.address == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", s.address)
	if err != nil {
		return nil, usage.Errorf("REHOME_HTTP_ADDRESS: cannot listen on %s: %w", s.address, err)
	}
	return l, nil
}

// Serve answers on l until ctx ends, and then for at most a second more: every answer is small and at hand.
func (s *server) Serve(ctx context.Context, l net.Listener) error {
	if l == nil {
		<-ctx.Done()
		return nil
	}
	h := &http.Server{
		Handler: s.Handler(), ReadHeaderTimeout: 5 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
	defer context.AfterFunc(ctx, func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = h.Shutdown(last) // what is left after the second is cut off by the end of the process
	})()
	s.log.Info("serving", "metrics", s.Transport.Scheme()+"://"+l.Addr().String()+"/metrics")
	if err := s.Transport.Serve(h, l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", s.address, err)
	}
	return nil
}

func (s *server) Handler() *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", s.guard.Protect(promhttp.HandlerFor(s.Metrics, promhttp.HandlerOpts{Registry: s.Metrics})))
	if s.profiles {
		mux.Handle("GET "+ProfilesPath, s.guard.Protect(Profiles()))
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", s.ready)
	return mux
}

// ready answers 200, or 503 with a line for each thing that is missing.
func (s *server) ready(w http.ResponseWriter, r *http.Request) {
	var missing []error
	for _, c := range s.Checks {
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
