package run

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/app/serving"
	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/cli/cmdutil"
	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/functions/httpfunction"
)

const (
	// servedAt is the default address.
	servedAt = "127.0.0.1:8080"
	// drainWithin is less than the default 30-second grace period of a pod.
	drainWithin = 25 * time.Second
)

func serveCommand() *cobra.Command {
	address := ""
	c := &cobra.Command{
		Use:   "serve STRATEGY",
		Short: "Serve one strategy over HTTP, as a CloudEvents function for Knative or any Deployment",
		Long: "Serve one strategy over HTTP. Clients post a scope to / as a CloudEvent in binary, structured, or batch mode, and\n" +
			"get a CloudEvent with the pods that should move. The command needs no cluster and no bus, and keeps nothing between\n" +
			"requests. It also serves /metrics, /healthz, and /readyz.\n\n" +
			"It listens at --address. The default is all addresses with the port in the variable PORT, which Knative sets, or\n" +
			servedAt + " without PORT.",
		Example: "  rehome serve RemovePodsViolatingNodeTaints\n\n" +
			"  # Call it from another terminal, in a checkout of the repository:\n" +
			"  curl -H 'Content-Type: application/cloudevents+json' \\\n" +
			"    --data-binary @schemas/v1/examples/scope.json http://" + servedAt + "/\n\n" +
			"  # In a container of Knative or a Deployment:\n" +
			"  PORT=8080 REHOME_LOG_FORMAT=json rehome serve PodLifeTime",
		Args: cobra.ExactArgs(1), ValidArgs: functions.Names(functions.All()),
	}
	s := cmdutil.Settings(c)
	c.Flags().StringVar(&address, "address", "", "address to listen at, such as :8080 (PORT)")
	c.RunE = func(c *cobra.Command, names []string) error {
		chosen, err := cmdutil.Choose(functions.All(), names)
		if err != nil {
			return err
		}
		return ServeFunction(c.Context(), s.Settings, chosen[0], address)
	}
	return c
}

// ServeFunction answers scopes with f until ctx ends, and then finishes open requests.
func ServeFunction(ctx context.Context, s settings.Settings, f functions.Function, address string) error {
	if err := s.Check(); err != nil {
		return err
	}
	log := knativeLog(s.Logger(os.Stderr)).With("strategy", f.Strategy.Name)
	metrics := serving.NewMetrics()
	h := httpfunction.New(httpfunction.Config{
		Function: f, Source: s.Source("functions"), MaxBytes: s.ServeBytes, Parallel: s.ServeParallel, Log: log, Metrics: metrics,
	})
	web, err := Listen(s, address, os.Getenv("PORT"), log)
	if err != nil {
		return err
	}
	defer web.Close()
	status, err := serving.NewStatus(s, web.Listener.Addr().String(), nil, metrics, log)
	if err != nil {
		return err
	}
	if err := web.Register(metrics, "functions"); err != nil {
		return err
	}
	status.Checks, status.Warnings = []serving.Check{func(context.Context) error { return h.Ready() }}, []serving.Check{web.Warning}
	mux := status.Handler()
	mux.Handle("/{$}", h)
	web.Handler, web.Drain = mux, h.Drain
	web.AllowRequests(s.ServeParallel)
	log.Info("serving", "address", web.URL("/"))
	return web.Serve(ctx)
}

// Listen listens at the address, or at the port of all addresses. The timeouts leave time for the first request: a busy client
// opens connections in advance, and not every client retries a request whose connection was closed.
func Listen(s settings.Settings, address, port string, log *slog.Logger) (*serving.Server, error) {
	source := "--address"
	if address == "" && port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, fmt.Errorf("PORT: want a number from 1 to 65535, got %q", port)
		}
		source, address = "PORT", ":"+port
	}
	web, err := serving.Listen(source, cmp.Or(address, servedAt), s.MetricsTLS(), s.HTTP2, log)
	if err != nil {
		return nil, err
	}
	web.ReadHeaderTimeout, web.ReadTimeout = time.Minute, time.Minute
	web.WriteTimeout, web.IdleTimeout = 2*time.Minute, 2*time.Minute
	web.Grace = drainWithin
	return web, nil
}

func knativeLog(log *slog.Logger) *slog.Logger {
	if service := os.Getenv("K_SERVICE"); service != "" {
		log = log.With("service", service, "revision", os.Getenv("K_REVISION"))
	}
	return log
}
