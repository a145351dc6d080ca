package limit

import (
	"time"

	"github.com/rehome-dev/rehome/policy"
)

// Bucket is the token bucket of a [policy.Rate]: the tokens that calls hold, and the one moment at which the others would be
// all there again. A token comes back at the rate from the end of its call on, not from the beginning: so the rate holds where
// the calls arrive, however long some of them are on their way. One that was not needed can be given back. The limiters of
// client-go offer neither. It is not safe for concurrent use. It starts full; nil is never empty.
type Bucket struct {
	interval time.Duration // between two tokens
	depth    time.Duration // what all tokens of the bucket but one take to come back
	held     int
	full     time.Time
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
	return max(missing-b.depth, 0) // the zero time is farther away than a Duration reaches
}

// Take takes the token that is there when wait is 0. It ends with spend or giveBack.
func (b *Bucket) Take() {
	if b != nil {
		b.held++
	}
}

// Spend lets a token come back that was needed: its call has ended.
func (b *Bucket) Spend(now time.Time) {
	if b == nil {
		return
	}
	b.held--
	if b.full.Before(now) {
		b.full = now
	}
	b.full = b.full.Add(b.interval)
}

// GiveBack undoes one take.
func (b *Bucket) GiveBack() {
	if b != nil {
		b.held--
	}
}

// Idle says whether it is as it began.
func (b *Bucket) Idle(now time.Time) bool { return b.held == 0 && !b.full.After(now) }

// Same says whether two buckets have the same rate and depth.
func (b *Bucket) Same(other *Bucket) bool {
	return b.interval == other.interval && b.depth == other.depth
}
