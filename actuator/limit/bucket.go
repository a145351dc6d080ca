package limit

import (
	"time"

	"github.com/rehome-dev/rehome/policy"
)

// Bucket is the token bucket of a [policy.Rate]. A token returns at the rate, counted from the end of its call, so the
// API server sees no more than the rate however long calls take. An unused token can be returned at once. The limiters
// of client-go and x/time offer neither. A bucket starts full; a nil bucket is never empty.
type Bucket struct {
	interval time.Duration // between two tokens
	depth    time.Duration // the time until all tokens but one have returned
	held     int
	full     time.Time // when all tokens that are not held have returned
}

// NewBucket returns a full bucket.
func NewBucket(r policy.Rate) *Bucket {
	interval := time.Duration(float64(time.Second) / r.EvictionsPerSecond)
	return &Bucket{interval: interval, depth: time.Duration(max(r.Burst, 1)-1) * interval}
}

// Wait returns the shortest time until there is a token. 0 means now.
func (b *Bucket) Wait(now time.Time) time.Duration {
	if b == nil {
		return 0
	}
	missing := b.missing(now) + time.Duration(b.held)*b.interval
	return max(missing-b.depth, 0)
}

// missing returns the time until all tokens that are not held have returned: at most the time for all of them, even if
// the clock was set back.
func (b *Bucket) missing(now time.Time) time.Duration {
	return min(max(b.full.Sub(now), 0), b.depth+b.interval)
}

// Take takes a token if Wait is 0. [Bucket.Return] returns it.
func (b *Bucket) Take() {
	if b != nil {
		b.held++
	}
}

// Return returns a token after its call: at the rate if it was spent, at once if not.
func (b *Bucket) Return(spent bool, now time.Time) {
	if b == nil {
		return
	}
	if b.held--; spent {
		b.full = now.Add(b.missing(now) + b.interval)
	}
}

// Idle reports whether the bucket is full.
func (b *Bucket) Idle(now time.Time) bool { return b.held == 0 && !b.full.After(now) }

// Same reports whether two buckets have the same rate and depth.
func (b *Bucket) Same(other *Bucket) bool {
	return b.interval == other.interval && b.depth == other.depth
}
