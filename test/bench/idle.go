package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// rest is how long everything is left alone before an idle process is watched: longer than the scheduler's, the
// controllers' and Rehome's own retries of what came before.
const rest = 10 * time.Second

// measureIdle watches processor time and memory while nothing happens.
func (s *stage) measureIdle(ctx context.Context) ([]row, error) {
	loaded, err := memoryOf(s.rehome.pid())
	if err != nil {
		return nil, err
	}
	if err := pause(ctx, rest); err != nil {
		return nil, err
	}
	s.progress.say("watching the idle processes for %v", s.idle)
	began := time.Now()
	before, beforeErr := s.usage()
	if err := pause(ctx, s.idle); err != nil {
		return nil, err
	}
	after, afterErr := s.usage()
	took := time.Since(began)
	if err := errors.Join(beforeErr, afterErr); err != nil {
		return nil, err
	}
	settled, err := memoryOf(s.rehome.pid())
	if err != nil {
		return nil, err
	}
	metrics, err := s.rehome.metrics(ctx)
	if err != nil {
		return nil, err
	}
	share := func(a, b time.Duration) float64 { return 100 * (b - a).Seconds() / took.Seconds() }
	group := fmt.Sprintf("idle for %v, every strategy on", s.idle)
	return []row{
		{
			Group: group, What: "processor time of rehome, share of one core", Unit: "%", Value: share(before.rehome, after.rehome),
			Compare: &comparison{"control plane", share(before.controlPlane, after.controlPlane)}, Target: &target{AtMost: 2},
		},
		{
			Group: "memory of rehome, all roles and the bus", What: "resident after the load", Unit: "B", Value: loaded.resident,
			Target: &target{AtMost: 250 << 20},
		},
		{Group: "memory of rehome, all roles and the bus", What: "resident after the idle time", Unit: "B", Value: settled.resident},
		{Group: "memory of rehome, all roles and the bus", What: "highest", Unit: "B", Value: settled.highest},
		{
			Group: "memory of rehome, all roles and the bus", What: "Go heap in use", Unit: "B",
			Value: metrics["go_memstats_heap_inuse_bytes"],
		},
		{Group: "memory of rehome, all roles and the bus", What: "goroutines", Value: metrics["go_goroutines"]},
	}, nil
}

// usage is the processor time that the processes have used so far.
type usage struct{ rehome, controlPlane time.Duration }

func (s *stage) usage() (u usage, err error) {
	if u.rehome, err = processorTime(s.rehome.pid()); err != nil {
		return u, err
	}
	u.controlPlane, err = processorTime(s.controlPlane()...)
	return u, err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
