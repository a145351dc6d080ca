package main

import (
	"math"
	"slices"
	"time"
)

// sample is a set of measured durations. The zero value is an empty one.
type sample []time.Duration

// quantile is the smallest duration that at least the share q of all are not above: the nearest rank, which is always
// one that was measured. Of an empty sample it is 0.
func (s sample) quantile(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// milliseconds is d as the reports have it.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// median of some numbers; 0 of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[(len(sorted)-1)/2]
}
