package actuator

import (
	"time"

	"github.com/rehome-dev/rehome/policy"
)

// bucket is the token bucket of a [policy.Rate], kept as the one moment at which it would be full again. A token that
// was not needed can be given back, which the limiters of client-go do not offer. It is not safe for concurrent use.
// It starts full.
type bucket struct {
	interval time.Duration // between two tokens
	depth    time.Duration // what all tokens of the bucket but one take to come back
	full     time.Time
}

func newBucket(r policy.Rate) bucket {
	interval := time.Duration(float64(time.Second) / r.EvictionsPerSecond)
	return bucket{interval: interval, depth: time.Duration(max(r.Burst, 1)-1) * interval}
}

// wait is how long it takes until there is a token. 0: there is one.
func (b *bucket) wait(now time.Time) time.Duration {
	return max(max(b.full.Sub(now), 0)-b.depth, 0) // the zero time is farther away than a Duration reaches
}

// take takes the token that is there when wait is 0.
func (b *bucket) take(now time.Time) {
	if b.full.Before(now) {
		b.full = now
	}
	b.full = b.full.Add(b.interval)
}

// giveBack undoes one take.
func (b *bucket) giveBack() { b.full = b.full.Add(-b.interval) }
