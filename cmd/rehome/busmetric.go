package main

import (
	"context"

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

func newBusFigures(ask func(context.Context) ([]bus.StreamStatus, error)) busFigures {
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

// tellOfBus adds the metrics of the bus, as far as this process may ask: the server of this process about everything, one
// elsewhere about the streams and the strategies that are worked on here.
func (p *process) tellOfBus() {
	if p.roles.watcher {
		p.metrics.MustRegister(newDeadLetters(p.bus.DeadCounts))
	}
	ask := p.bus.Status
	if p.settings.NATSURL != "" {
		ask = func(ctx context.Context) ([]bus.StreamStatus, error) { return p.bus.StatusFor(ctx, p.workedOn()) }
	}
	p.metrics.MustRegister(newBusFigures(ask))
}

// workedOn are the strategies whose scopes this process takes: those that it hosts, and those that it asks elsewhere.
func (p *process) workedOn() []string {
	var names []string
	for _, f := range p.roles.functions {
		names = append(names, f.Strategy.Name)
	}
	if !p.roles.dispatcher {
		return names
	}
	hosted := make(map[string]bool, len(names))
	for _, name := range names {
		hosted[name] = true
	}
	for _, o := range p.declared.policy.Load().Outside {
		if !hosted[o.Strategy.Name] {
			names = append(names, o.Strategy.Name)
		}
	}
	return names
}
