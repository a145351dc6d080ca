package limit

import (
	"time"

	"github.com/rehome-dev/rehome/policy"
)

// Bucket is the token bucket of a [policy.Rate]. A token comes back at the rate from the end of its call on, so the rate holds
// at the API server however long calls take, and a token that was not needed can be given back. The limiters of client-go and
// x/time offer neither. It starts full; nil is never empty.
type Bucket struct {
	interval time.Duration // between two tokens
	depth    time.Duration // the time until all tokens but one are back
	held     int
	full     time.Time // when all tokens that are not held are back
}

func NewBucket(r policy.Rate) *Bucket {
	interval := time.Duration(float64(time.Second) / r.EvictionsPerSecond)
	return &Bucket{interval: interval, depth: time.Duration(max(r.Burst, 1)-1) * interval}
}

// Wait is how long it takes at least until there is a token. 0: there is one.
func (b *Bucket) Wait(now time.Time) time.Duration {
	if b == nil {
		return 0
	}
	missing := max(b.full.Sub(now), 0) + time.Duration(b.held)*b.interval
	return max(missing-b.depth, 0)
}

// Take takes a token when Wait is 0. [Bucket.Return] ends it.
func (b *Bucket) Take() {
	if b != nil {
		b.held++
	}
}

// Return returns a token when its call has ended: at the rate if it was spent, at once if not.
func (b *Bucket) Return(spent bool, now time.Time) {
	if b == nil {
		return
	}
	if b.held--; spent {
		if b.full.Before(now) {
			b.full = now
		}
		b.full = b.full.Add(b.interval)
	}
}

// Idle says whether the bucket is full.
func (b *Bucket) Idle(now time.Time) bool { return b.held == 0 && !b.full.After(now) }

// Same says whether two buckets have the same rate and depth.
func (b *Bucket) Same(other *Bucket) bool {
	return b.interval == other.interval && b.depth == other.depth
}
