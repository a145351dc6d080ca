package app

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/embed"
	"github.com/rehome-dev/rehome/functions"
)

const (
	// mostConsumers limits the consumers of each stream, because listeners of the history choose their names.
	mostConsumers = 100
	// countWithin is less than the time of a scrape.
	countWithin = 2 * time.Second
)

// onScrape is a collector that queries the bus at each scrape. It has no metrics while the bus does not answer; /readyz
// reports that.
type onScrape struct {
	metrics []*prometheus.Desc
	collect func(ctx context.Context, gauge func(metric int, value float64, labels ...string)) error
}

// Describe implements [prometheus.Collector].
func (s onScrape) Describe(to chan<- *prometheus.Desc) {
	for _, m := range s.metrics {
		to <- m
	}
}

// Collect implements [prometheus.Collector].
func (s onScrape) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), countWithin)
	defer cancel()
	_ = s.collect(ctx, func(metric int, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(s.metrics[metric], prometheus.GaugeValue, value, labels...)
	})
}

// NewBusFigures returns the metrics of streams and consumers.
func NewBusFigures(ask func(context.Context) ([]bus.StreamStatus, error)) prometheus.Collector {
	const messages, bytes, limit, waiting, inHand, again = 0, 1, 2, 3, 4, 5
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	metrics := []*prometheus.Desc{
		messages: desc("rehome_bus_stream_messages", "Messages in a stream. REHOME_SCOPES has the evaluations without an answer, "+
			"REHOME_INTENTS the answers that are not settled, and REHOME_REQUESTS the open requests.", "stream"),
		bytes: desc("rehome_bus_stream_bytes", "Bytes in a stream.", "stream"),
		limit: desc("rehome_bus_stream_limit_bytes", "Maximum bytes of a stream.", "stream"),
		waiting: desc("rehome_bus_consumer_waiting_messages",
			"Undelivered messages: of REHOME_SCOPES by strategy, and of REHOME_EVENTS by listener.", "stream", "consumer"),
		inHand: desc("rehome_bus_consumer_unacknowledged_messages",
			"Unacknowledged messages, including messages that wait for redelivery.", "stream", "consumer"),
		again: desc("rehome_bus_consumer_redelivered_messages",
			"Unacknowledged messages that were delivered more than once.", "stream", "consumer"),
	}
	return onScrape{metrics, func(ctx context.Context, gauge func(int, float64, ...string)) error {
		streams, err := ask(ctx)
		for _, s := range streams {
			gauge(messages, float64(s.Messages), s.Name)
			gauge(bytes, float64(s.Bytes), s.Name)
			if s.MaxBytes > 0 {
				gauge(limit, float64(s.MaxBytes), s.Name)
			}
			for _, w := range s.Workers[:min(len(s.Workers), mostConsumers)] {
				gauge(waiting, float64(w.Pending), s.Name, w.Strategy)
				gauge(inHand, float64(w.AckPending), s.Name, w.Strategy)
				gauge(again, float64(w.Redelivered), s.Name, w.Strategy)
			}
		}
		return err
	}}
}

// NewDeadLetters returns the metric of dead letters.
func NewDeadLetters(count func(context.Context) (map[string]uint64, error)) prometheus.Collector {
	return onScrape{[]*prometheus.Desc{prometheus.NewDesc(
		"rehome_dead_letters", "Stored dead letters, by the original stream of the message. Only the watcher has this metric.",
		[]string{"stream"}, nil,
	)}, func(ctx context.Context, gauge func(int, float64, ...string)) error {
		counts, err := count(ctx)
		for stream, n := range counts {
			gauge(0, float64(n), stream)
		}
		return err
	}}
}

// registerBusMetrics registers the metrics of the bus that this process may read: all metrics of an embedded server,
// and for an external server the streams and strategies of this process.
func (p *process) registerBusMetrics() {
	if p.roles.Watcher {
		p.metrics.MustRegister(NewDeadLetters(p.bus.DeadCounts))
	}
	if p.server != nil {
		p.metrics.MustRegister(newStoreMetrics(p.server))
	}
	ask := p.bus.Status
	if p.settings.NATSURL != "" {
		ask = func(ctx context.Context) ([]bus.StreamStatus, error) { return p.bus.StatusFor(ctx, p.workedOn()) }
	}
	p.metrics.MustRegister(NewBusFigures(ask), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rehome_bus_clock_skew_seconds",
		Help: "Seconds that the clock of this process is ahead of the clock of the bus, at least. Negative if it is behind. " +
			"0 while the clocks agree within the round-trip time.",
	}, func() float64 { return p.bus.ClockSkew().Seconds() }))
}

// newStoreMetrics returns the metrics of the disk of an embedded server.
func newStoreMetrics(s *embed.Server) prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return onScrape{[]*prometheus.Desc{
		desc("rehome_bus_refusing_writes", "1 for the reason why the embedded bus stores no events: full or stopped.", "reason"),
		desc("rehome_bus_free_bytes", "Free space on the disk of the embedded bus."),
	}, func(_ context.Context, gauge func(int, float64, ...string)) error {
		err := s.Ready()
		for reason, is := range map[string]error{"full": embed.ErrNoSpace, "stopped": embed.ErrStopped} {
			value := 0.0
			if errors.Is(err, is) {
				value = 1
			}
			gauge(0, value, reason)
		}
		free, err := s.FreeSpace()
		if err == nil {
			gauge(1, float64(free))
		}
		return err
	}}
}

func (p *process) workedOn() []string {
	names := functions.Names(p.roles.Functions)
	if p.roles.Dispatcher {
		for _, o := range p.inForce.Load().Outside {
			if !slices.Contains(names, o.Strategy.Name) {
				names = append(names, o.Strategy.Name)
			}
		}
	}
	return names
}

func newLeading() *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "rehome_leader",
		Help: "1 if this process holds the lease and is active, 0 if it is on standby.",
	}, []string{"lease"})
}

// counted wraps a role so that its metric reports when it is active.
func counted(leading prometheus.Gauge, run task) task {
	leading.Set(0)
	return func(ctx context.Context) error {
		leading.Set(1)
		defer leading.Set(0)
		return run(ctx)
	}
}

// newReadiness returns the metric with the result of /readyz. The checks run at each scrape.
func newReadiness(ready func(context.Context) error) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rehome_ready", Help: "1 if the process is ready, 0 if not. /readyz returns the reason.",
	}, func() float64 {
		ctx, cancel := context.WithTimeout(context.Background(), countWithin)
		defer cancel()
		if ready(ctx) != nil {
			return 0
		}
		return 1
	})
}
