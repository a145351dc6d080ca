package app

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rehome-dev/rehome/bus"
)

const (
	// mostConsumers limits the consumers of each stream: listeners of the history choose their names.
	mostConsumers = 100
	// countWithin is less than the time of a scrape.
	countWithin = 2 * time.Second
)

// onScrape is a collector that asks the bus at each scrape. There are no metrics while the bus does not answer; /readyz says so.
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

// NewBusFigures makes the metrics of streams and consumers.
func NewBusFigures(ask func(context.Context) ([]bus.StreamStatus, error)) prometheus.Collector {
	const messages, bytes, limit, waiting, inHand, again = 0, 1, 2, 3, 4, 5
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("rehome_bus_"+name, help, labels, nil)
	}
	metrics := []*prometheus.Desc{
		messages: desc("stream_messages", "Messages that a stream holds.", "stream"),
		bytes:    desc("stream_bytes", "Bytes that a stream holds.", "stream"),
		limit:    desc("stream_limit_bytes", "Bytes that a stream may hold.", "stream"),
		waiting: desc("consumer_waiting_messages",
			"Messages that nobody has taken yet: scopes by strategy, events of the history by listener.", "stream", "consumer"),
		inHand: desc("consumer_unacknowledged_messages",
			"Messages that somebody has and is not done with, or that wait for their next try.", "stream", "consumer"),
		again: desc("consumer_redelivered_messages", "Those not done with that were handed out before.", "stream", "consumer"),
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
				gauge(waiting, float64(w.Waiting), s.Name, w.Strategy)
				gauge(inHand, float64(w.InHand), s.Name, w.Strategy)
				gauge(again, float64(w.Again), s.Name, w.Strategy)
			}
		}
		return err
	}}
}

// NewDeadLetters makes the metric of dead letters.
func NewDeadLetters(count func(context.Context) (map[string]uint64, error)) prometheus.Collector {
	return onScrape{[]*prometheus.Desc{prometheus.NewDesc(
		"rehome_dead_letters", "Dead letters that are kept, by the stream that the message was in.", []string{"stream"}, nil,
	)}, func(ctx context.Context, gauge func(int, float64, ...string)) error {
		counts, err := count(ctx)
		for stream, n := range counts {
			gauge(0, float64(n), stream)
		}
		return err
	}}
}

// registerBusMetrics adds the metrics of the bus that this process may read: all of the server in this process, and of an external
// one the streams and the strategies of this process.
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
		Help: "How far the clock of this process is ahead of the clock of the bus, at least. Negative: behind.",
	}, func() float64 {
		skew, _ := p.bus.ClockSkew()
		return skew.Seconds()
	}))
}

// newStoreMetrics makes the metrics of the disk of an embedded server.
func newStoreMetrics(s *bus.Server) prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("rehome_bus_"+name, help, labels, nil)
	}
	return onScrape{[]*prometheus.Desc{
		desc("refusing_writes", "1 for the reason for which the bus in the process takes no events.", "reason"),
		desc("free_bytes", "Free space on the disk of the bus in the process."),
	}, func(_ context.Context, gauge func(int, float64, ...string)) error {
		err := s.Ready()
		for reason, is := range map[string]error{"full": bus.ErrNoSpace, "stopped": bus.ErrStopped} {
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

func (p *process) workedOn() (names []string) {
	for _, f := range p.roles.Functions {
		names = append(names, f.Strategy.Name)
	}
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
		Help: "1: this process is the active one of the role that the lease is for. 0: it is on standby.",
	}, []string{"lease"})
}

// counted wraps a role so that its metric shows when it is active.
func counted(leading prometheus.Gauge, run task) task {
	leading.Set(0)
	return func(ctx context.Context) error {
		leading.Set(1)
		defer leading.Set(0)
		return run(ctx)
	}
}

// newReadiness makes the metric that shows the answer of /readyz. The checks run at each scrape.
func newReadiness(ready func(context.Context) error) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rehome_ready", Help: "1: the process can do its work. 0: /readyz says why it cannot.",
	}, func() float64 {
		ctx, cancel := context.WithTimeout(context.Background(), countWithin)
		defer cancel()
		if ready(ctx) != nil {
			return 0
		}
		return 1
	})
}
