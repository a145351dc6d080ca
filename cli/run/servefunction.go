package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/app/serving"
	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/app/usage"
	"github.com/rehome-dev/rehome/cli/command"
	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/functions/httpfunction"
)

const (
	// servedAt is where a function is served when nothing says where.
	servedAt = "127.0.0.1:8080"
	// drainWithin is how long requests that are being answered are waited for. Kubernetes gives a pod 30 seconds to end.
	drainWithin = 25 * time.Second
)

func ServeCommand() *cobra.Command {
	address := ""
	c := &cobra.Command{
		Use:   "serve NAME",
		Short: "Answer scopes over HTTP with one strategy, as a CloudEvents function for Knative or any Deployment",
		Long: "Answer scopes over HTTP with one strategy. A scope is posted to / as a CloudEvent, binary, structured or in a\n" +
			"batch, and the answer is a CloudEvent with the pods that should move. It needs neither a cluster nor a bus, and\n" +
			"keeps nothing between requests. /metrics, /healthz and /readyz are served at the same address.\n\n" +
			"Where it listens: at --address; else at all addresses with the port that the variable PORT names, as Knative\n" +
			"sets it; else at " + servedAt + ".",
		Example: "  rehome serve RemovePodsViolatingNodeTaints\n\n" +
			"  # Ask it, from another terminal, in a checkout of the repository:\n" +
			"  curl -H 'Content-Type: application/cloudevents+json' \\\n" +
			"    --data-binary @schemas/v1/examples/scope.json http://" + servedAt + "/\n\n" +
			"  # As a container that Knative or a Deployment runs:\n" +
			"  PORT=8080 REHOME_LOG_FORMAT=json rehome serve PodLifeTime",
	}
	c.Flags().StringVar(&address, "address", "", "where to listen, such as :8080 (PORT)")
	c.RunE = func(c *cobra.Command, names []string) error {
		if len(names) != 1 {
			return usage.Errorf("want the name of one strategy, got %q; there are: %v", names, command.Known(functions.All()))
		}
		chosen, err := command.Choose(functions.All(), names)
		if err != nil {
			return err
		}
		s, err := settings.Read()
		if err != nil {
			return err
		}
		return ServeFunction(c.Context(), s, chosen[0], address)
	}
	return c
}

// ServeFunction answers scopes with f until ctx ends, and then finishes the requests that it has begun.
func ServeFunction(ctx context.Context, s settings.Settings, f functions.Function, address string) error {
	if err := s.Check(); err != nil {
		return err
	}
	l, err := ListenAt(address, os.Getenv("PORT"))
	if err != nil {
		return err
	}
	log := knativeLog(s.Logger(os.Stderr)).With("strategy", f.Strategy.Name)
	metrics := serving.NewMetrics()
	h, err := httpfunction.New(httpfunction.Config{
		Function: f, Source: s.Source("functions"), MaxBytes: s.ServeBytes, Parallel: s.ServeParallel, Log: log, Metrics: metrics,
	})
	if err != nil {
		return errors.Join(err, l.Close())
	}
	web, err := serving.NewServer(s, l.Addr().String(), nil, metrics, log)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	web.Checks = []serving.Check{func(context.Context) error { return h.Ready() }}
	mux := web.Handler()
	mux.Handle("/{$}", h)
	log.Info("serving", "address", web.Transport.Scheme()+"://"+l.Addr().String()+"/")
	return serveUntilDrained(ctx, l, FunctionServer(mux, log), web.Transport, h)
}

// serveUntilDrained answers on l with s until ctx ends, and then until h has answered what it has begun. It fails when that
// takes too long: the rest is cut off by the end of the process.
func serveUntilDrained(
	ctx context.Context, l net.Listener, s *http.Server, over serving.Transport, h *httpfunction.Handler,
) error {
	drained := make(chan error, 1)
	defer context.AfterFunc(ctx, func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainWithin)
		defer cancel()
		err := h.Drain(last) // connections are still taken meanwhile, to be told that it ends
		drained <- errors.Join(err, s.Shutdown(last))
	})()
	if err := over.Serve(s, l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	return <-drained
}

// ListenAt takes the address, or the port at all addresses when there is none.
func ListenAt(address, port string) (net.Listener, error) {
	said := "--address"
	if address == "" && port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, usage.Errorf("PORT: want a number from 1 to 65535, got %q", port)
		}
		said, address = "PORT", ":"+port
	}
	address = cmp.Or(address, servedAt)
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, usage.Errorf("%s: cannot listen on %s: %w", said, address, err)
	}
	return l, nil
}

// knativeLog adds to each line of a log which service and revision of Knative the process is, where it is one.
func knativeLog(log *slog.Logger) *slog.Logger {
	if service := os.Getenv("K_SERVICE"); service != "" {
		log = log.With("service", service, "revision", os.Getenv("K_REVISION"))
	}
	return log
}

// FunctionServer gives a client time for its first request too: one that asks a lot at once makes connections in advance, and
// a request that finds its connection closed by the server is not sent again by every client.
func FunctionServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: time.Minute, ReadTimeout: time.Minute, WriteTimeout: 2 * time.Minute,
		IdleTimeout: 2 * time.Minute, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}
