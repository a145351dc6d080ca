package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rehome-dev/rehome/test/kit/program"
)

// rest is the pause before an idle process is watched: longer than the retries of the scheduler, the controllers, and Rehome.
const rest = 10 * time.Second

// measureStart reads memory a while after the start of rehome, when nothing but its first full evaluation has happened.
func (s *stage) measureStart(ctx context.Context) ([]row, error) {
	s.progress.say("waiting until rehome has run for %v", s.memory)
	if err := pause(ctx, s.memory-time.Since(s.rehome.began)); err != nil {
		return nil, err
	}
	m, err := program.MemoryOf(s.rehome.Pid())
	if err != nil {
		return nil, err
	}
	metrics, err := s.rehome.metrics()
	if err != nil {
		return nil, err
	}
	const group = "start, all roles and the bus in one process"
	return []row{
		{
			Group: group, What: "start to the end of the first full evaluation", Unit: "s", Value: s.evaluated.Seconds(),
			Target: &target{AtMost: 10},
		},
		{
			Group: group, What: fmt.Sprintf("resident memory %v after the start", s.memory), Unit: "B", Value: m.Resident,
			Target: &target{AtMost: 250 << 20},
		},
		{Group: group, What: "highest until then", Unit: "B", Value: m.Highest, Target: &target{AtMost: 350 << 20}},
		{Group: group, What: "Go heap in use", Unit: "B", Value: metrics["go_memstats_heap_inuse_bytes"]},
		{Group: group, What: "goroutines", Value: metrics["go_goroutines"]},
	}, nil
}

// measureIdle watches processor time and memory while nothing happens.
func (s *stage) measureIdle(ctx context.Context) ([]row, error) {
	u, err := s.watchIdle(ctx, s.idle)
	if err != nil {
		return nil, err
	}
	m, err := program.MemoryOf(s.rehome.Pid())
	if err != nil {
		return nil, err
	}
	s.idleShare = u.rehome
	group := fmt.Sprintf("idle for %v", s.idle)
	return []row{
		{
			Group: group, What: "processor time of rehome, share of one core", Unit: "%", Value: 100 * u.rehome,
			Compare: &comparison{"control plane", 100 * u.controlPlane}, Target: &target{AtMost: .5},
		},
		{Group: group, What: "resident memory", Unit: "B", Value: m.Resident},
	}, nil
}

// idling returns the idle share of rehome, measured for at most ten seconds unless it is known.
func (s *stage) idling(ctx context.Context) (float64, error) {
	if s.idleShare > 0 {
		return s.idleShare, nil
	}
	u, err := s.watchIdle(ctx, min(s.idle, 10*time.Second))
	s.idleShare = u.rehome
	return u.rehome, err
}

// shares are shares of one core.
type shares struct{ rehome, controlPlane float64 }

// watchIdle waits until rehome is calm and measures it.
func (s *stage) watchIdle(ctx context.Context, d time.Duration) (shares, error) {
	if err := pause(ctx, rest); err != nil {
		return shares{}, err
	}
	if _, err := s.calm(ctx); err != nil {
		return shares{}, err
	}
	s.progress.say("watching the idle processes for %v", d)
	began := time.Now()
	rehome, err := processorTime(s.rehome.Pid())
	others, othersErr := processorTime(s.controlPlane()...)
	if err := errors.Join(err, othersErr, pause(ctx, d)); err != nil {
		return shares{}, err
	}
	rehomeNow, err := processorTime(s.rehome.Pid())
	othersNow, othersErr := processorTime(s.controlPlane()...)
	took := time.Since(began).Seconds()
	return shares{(rehomeNow - rehome).Seconds() / took, (othersNow - others).Seconds() / took}, errors.Join(err, othersErr)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
