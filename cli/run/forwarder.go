package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/sync/errgroup"

	"github.com/rehome-dev/rehome/app/serving"
	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/filter"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent/post"
	"github.com/rehome-dev/rehome/schemas/delivery"
)

const (
	// backlogEvery is the time between two measurements of the backlog.
	backlogEvery = 5 * time.Second
	// backlogWithin limits such a request, which is also the readiness check.
	backlogWithin = 2 * time.Second
)

// forwarder posts the events of one consumer to one sink.
type forwarder struct {
	bus      *bus.Bus
	name     string
	filter   filter.Filter
	sink     *post.Client
	notifier *notifier // nil means that events are posted
	figures  forwardFigures
	log      *slog.Logger

	mu      sync.Mutex
	trouble error // why the forwarder is not ready, from the last post; nil if it is
}

// forward posts events until ctx ends, and then finishes open posts.
func forward(ctx context.Context, s settings.Settings, p forwardPlan) error {
	if err := s.Check(); err != nil {
		return err
	}
	sink, err := post.New(p.post)
	if err != nil {
		return fmt.Errorf("--to: %w", err)
	}
	defer sink.Close()
	options, err := settings.BusOptions(s, bus.Participant{Role: bus.RoleForwarder, Name: p.listener.Name}.String())
	if err != nil {
		return err
	}
	p.listener.Existing = options.NKeyFile != "" || options.CredsFile != "" // which must not create consumers
	options.Log = s.Logger(os.Stderr)
	web, status, err := serving.ListenForStatus(s, nil, serving.NewMetrics(), options.Log)
	if err != nil {
		return err
	}
	defer web.Close()
	b, err := bus.Connect(options)
	if err != nil {
		return err
	}
	defer b.Close()
	f := &forwarder{bus: b, name: p.listener.Name, filter: p.filter, sink: sink, log: options.Log}
	status.Checks, status.Alive = []serving.Check{f.listens, f.arrives}, b.Alive
	f.figures = newForwardFigures(status.Metrics)
	if p.template != nil {
		f.notifier = newNotifier(f, p)
	}
	if web.Listener != nil {
		f.log.Info("serving", "metrics", web.URL("/metrics"))
	}
	f.log.Info("forwarding", "name", f.name, "channels", p.listener.Channels)
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error { return web.Serve(ctx) })
	work.Go(func() error {
		if f.notifier != nil {
			defer close(f.notifier.ended)
		}
		return b.Listen(ctx, p.listener, f.handle)
	})
	if f.notifier != nil {
		work.Go(func() error { return f.notifier.run(ctx) })
	}
	work.Go(func() error { return f.measure(ctx) })
	if err := work.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// handle posts an event if it matches. Its error tells the bus whether to try again.
func (f *forwarder) handle(ctx context.Context, e schemas.Event) error {
	if !f.filter.Matches(e) {
		return nil
	}
	if f.notifier != nil {
		f.notifier.add(e)
		return nil
	}
	began := time.Now()
	err := f.sink.Send(ctx, e)
	if ctx.Err() != nil && err != nil { // the process ends, which says nothing about the sink
		return err
	}
	f.figures.posted(e.Time, err, errors.Is(err, schemas.ErrInvalid), began, time.Now())
	f.came(err)
	return err
}

// came records the error of the last post. An event that the sink refuses becomes a dead letter, so the forwarder stays ready. A
// notification that the service refuses is lost.
func (f *forwarder) came(err error) {
	if f.notifier == nil && !isSinkAway(err) {
		err = nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil && f.trouble != nil {
		f.log.Info("the sink accepts events again", "name", f.name)
	}
	f.trouble = err
}

// isSinkAway reports whether a post failed for a reason that concerns all posts. Such failures do not count as tries.
func isSinkAway(err error) bool {
	return errors.Is(err, delivery.ErrUnreachable) || errors.Is(err, delivery.ErrUnauthorized)
}

// listens checks the consumer.
func (f *forwarder) listens(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, backlogWithin)
	defer cancel()
	_, err := f.bus.Backlog(ctx, f.name)
	return err
}

// arrives checks the sink.
func (f *forwarder) arrives(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.trouble
}

func (f *forwarder) measure(ctx context.Context) error {
	tick := time.NewTicker(backlogEvery)
	defer tick.Stop()
	for {
		short, cancel := context.WithTimeout(ctx, backlogWithin)
		if backlog, err := f.bus.Backlog(short, f.name); err == nil { // the error is in /readyz anyway
			f.figures.behind(backlog)
		}
		cancel()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// forwardFigures are the metrics of a forwarder.
type forwardFigures struct {
	events        *prometheus.CounterVec
	seconds       prometheus.Histogram
	waiting, open prometheus.Gauge
	lag           prometheus.Gauge
}

func newForwardFigures(r prometheus.Registerer) forwardFigures {
	auto := promauto.With(r)
	gauge := func(name, help string) prometheus.Gauge {
		return auto.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	f := forwardFigures{
		events: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "rehome_forward_events_total",
			Help: "Posts by result: delivered, again (retried later, if tries are left), " +
				"or refused (a dead letter, or a lost notification).",
		}, []string{"result"}),
		seconds: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "rehome_forward_post_seconds", Help: "Time from a post to its response.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}),
		waiting: gauge("rehome_forward_waiting_events", "Events on its channels that were not delivered to the forwarder yet."),
		open:    gauge("rehome_forward_open_events", "Delivered events that are being posted, or wait for a retry."),
		lag: gauge("rehome_forward_lag_seconds",
			"Age of the last event when the sink accepted it. 0 means that the sink has all events."),
	}
	for _, result := range []string{"delivered", "again", "refused"} {
		f.events.WithLabelValues(result)
	}
	return f
}

func (f forwardFigures) posted(happened time.Time, err error, refused bool, began, now time.Time) {
	f.seconds.Observe(now.Sub(began).Seconds())
	switch {
	case err == nil:
		f.events.WithLabelValues("delivered").Inc()
		f.lag.Set(max(0, now.Sub(happened).Seconds()))
	case refused:
		f.events.WithLabelValues("refused").Inc()
	default:
		f.events.WithLabelValues("again").Inc()
	}
}

func (f forwardFigures) behind(b bus.Backlog) {
	f.waiting.Set(float64(b.Waiting))
	f.open.Set(float64(b.Open))
	if b.Waiting == 0 && b.Open == 0 {
		f.lag.Set(0)
	}
}
