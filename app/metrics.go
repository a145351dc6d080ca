package app

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rehome-dev/rehome/bus"
)

// mostConsumers bounds the consumers of each stream that are told of: those of the history have names that anybody chooses.
const mostConsumers = 100

// busFigures are the metrics of what the bus holds and how far those are who take from it. The bus is asked when somebody asks
// for the metrics; while it cannot be asked there are no figures.
type busFigures struct {
	ask func(context.Context) ([]bus.StreamStatus, error)

	messages, bytes, limit, waiting, inHand, again *prometheus.Desc
}

func NewBusFigures(ask func(context.Context) ([]bus.StreamStatus, error)) busFigures {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("rehome_bus_"+name, help, labels, nil)
	}
	return busFigures{
		ask:      ask,
		messages: desc("stream_messages", "Messages that a stream holds.", "stream"),
		bytes:    desc("stream_bytes", "Bytes that a stream holds.", "stream"),
		limit:    desc("stream_limit_bytes", "Bytes that a stream may hold.", "stream"),
		waiting: desc("consumer_waiting_messages",
			"Messages that nobody has taken yet: scopes by strategy, events of the history by listener.", "stream", "consumer"),
		inHand: desc("consumer_unacknowledged_messages",
			"Messages that somebody has and is not done with, or that wait for their next try.", "stream", "consumer"),
		again: desc("consumer_redelivered_messages", "Those not done with that were handed out before.", "stream", "consumer"),
	}
}

// Describe implements [prometheus.Collector].
func (f busFigures) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{f.messages, f.bytes, f.limit, f.waiting, f.inHand, f.again} {
		to <- d
	}
}

// Collect implements [prometheus.Collector].
func (f busFigures) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), countWithin)
	defer cancel()
	streams, err := f.ask(ctx)
	if err != nil {
		return // that the bus is away is told by /readyz
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for _, s := range streams {
		gauge(f.messages, float64(s.Messages), s.Name)
		gauge(f.bytes, float64(s.Bytes), s.Name)
		if s.MaxBytes > 0 {
			gauge(f.limit, float64(s.MaxBytes), s.Name)
		}
		for _, w := range s.Workers[:min(len(s.Workers), mostConsumers)] {
			gauge(f.waiting, float64(w.Waiting), s.Name, w.Strategy)
			gauge(f.inHand, float64(w.InHand), s.Name, w.Strategy)
			gauge(f.again, float64(w.Again), s.Name, w.Strategy)
		}
	}
}

// registerBusMetrics adds the metrics of the bus, as far as this process may ask: the server of this process about everything, one
// elsewhere about the streams and the strategies that are worked on here.
func (p *process) registerBusMetrics() {
	if p.roles.Watcher {
		p.metrics.MustRegister(NewDeadLetters(p.bus.DeadCounts))
	}
	ask := p.bus.Status
	if p.settings.NATSURL != "" {
		ask = func(ctx context.Context) ([]bus.StreamStatus, error) { return p.bus.StatusFor(ctx, p.workedOn()) }
	}
	p.metrics.MustRegister(NewBusFigures(ask))
}

// workedOn are the strategies whose scopes this process takes: those that it hosts, and those that it asks elsewhere.
func (p *process) workedOn() []string {
	var names []string
	for _, f := range p.roles.Functions {
		names = append(names, f.Strategy.Name)
	}
	if !p.roles.Dispatcher {
		return names
	}
	hosted := make(map[string]bool, len(names))
	for _, name := range names {
		hosted[name] = true
	}
	for _, o := range p.setup.policy.Load().Outside {
		if !hosted[o.Strategy.Name] {
			names = append(names, o.Strategy.Name)
		}
	}
	return names
}

// deadLetters is the metric of the dead letters. They are counted when somebody asks for the metrics; while the bus cannot
// be asked there are no figures.
type deadLetters struct {
	count func(context.Context) (map[string]uint64, error)
	desc  *prometheus.Desc
}

func NewDeadLetters(count func(context.Context) (map[string]uint64, error)) deadLetters {
	return deadLetters{count, prometheus.NewDesc(
		"rehome_dead_letters", "Dead letters that are kept, by the stream that the message was in.", []string{"stream"}, nil)}
}

// Describe implements [prometheus.Collector].
func (d deadLetters) Describe(to chan<- *prometheus.Desc) { to <- d.desc }

// countWithin is less than the time that a scrape has.
const countWithin = 2 * time.Second

// Collect implements [prometheus.Collector].
func (d deadLetters) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), countWithin)
	defer cancel()
	counts, err := d.count(ctx)
	if err != nil {
		return // that the bus is away is told by /readyz
	}
	for stream, n := range counts {
		to <- prometheus.MustNewConstMetric(d.desc, prometheus.GaugeValue, float64(n), stream)
	}
}

// newLeading makes the metric of the leases that this process holds.
func newLeading() *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "rehome_leader",
		Help: "1: this process is the active one of the role that the lease is for. 0: it is on standby.",
	}, []string{"lease"})
}

// counted is a role whose metric says while it runs that it is active here.
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
