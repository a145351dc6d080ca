package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// situation is something that goes wrong for a while.
type situation struct {
	name string
	// lasts is how long it goes on at most.
	lasts time.Duration
	// start makes it so, and returns what ends it.
	start func(r *run, random *rand.Rand) (end func() error, err error)
}

// families returns the situations. One of each family is on at a time, in a random order, so that those of several families
// combine. cuts says whether leaders of the actuator, or what they store, are cut off meanwhile.
func families() []struct {
	name string
	cuts bool
	all  []situation
} {
	return []struct {
		name string
		cuts bool
		all  []situation
	}{
		{"processes", true, processSituations()},
		{"bus", true, busSituations()},
		{"API server", true, apiServerSituations()},
		{"cluster", false, clusterSituations()},
		{"input", false, inputSituations()},
	}
}

// suffer plays the situations of a family again and again until ctx ends. The first round has each of them, so it goes on even
// after that.
func (r *run) suffer(ctx context.Context, all []situation, cuts bool, random *rand.Rand) {
	all = slices.Clone(all)
	for first := true; first || ctx.Err() == nil; first = false {
		random.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
		for _, s := range all {
			time.Sleep(between(random, time.Second, 4*time.Second))
			if ctx.Err() != nil && !first {
				return
			}
			r.play(s, cuts, random)
		}
	}
}

// play has one situation begin and end.
func (r *run) play(s situation, cuts bool, random *rand.Rand) {
	began := time.Now()
	defer func() { r.t.Logf("%v to %v: %s", began.Format(clock), time.Now().Format(clock), s.name) }()
	end, err := s.start(r, random)
	if err == nil {
		r.count(s.name)
		time.Sleep(between(random, s.lasts/4, s.lasts))
		err = end()
	}
	if cuts {
		r.cut(began, time.Now())
	}
	if err != nil {
		r.fail("%s: %v", s.name, err)
	}
}

// clock is how times of day are shown.
const clock = "15:04:05.0"

// cut notes that leaders, or what they store, were cut off.
func (r *run) cut(from, to time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cuts = append(r.cuts, interval{from, to})
}

type interval struct{ from, to time.Time }

// insist calls f until it has no error, for a while: the API server can be away meanwhile.
func insist(f func() error) error {
	deadline := time.Now().Add(time.Minute)
	for {
		err := f()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not within a minute: %w", err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// nothing ends a situation that ends by itself.
func nothing() error { return nil }
