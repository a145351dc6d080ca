package main

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// deadLetters is the metric of the dead letters. They are counted when somebody asks for the metrics; while the bus cannot
// be asked there are no figures.
type deadLetters struct {
	count func(context.Context) (map[string]uint64, error)
	desc  *prometheus.Desc
}

func newDeadLetters(count func(context.Context) (map[string]uint64, error)) deadLetters {
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
