package actuator

import (
	"time"

	"github.com/rehome-dev/rehome/policy"
)

// bucket is the token bucket of a [policy.Rate]: the tokens that calls hold, and the one moment at which the others would be
// all there again. A token comes back at the rate from the end of its call on, not from the beginning: so the rate holds where
// the calls arrive, however long some of them are on their way. One that was not needed can be given back. The limiters of
// client-go offer neither. It is not safe for concurrent use. It starts full; nil is never empty.
type bucket struct {
	interval time.Duration // between two tokens
	depth    time.Duration // what all tokens of the bucket but one take to come back
	held     int
	full     time.Time
}

func newBucket(r policy.Rate) *bucket {
	interval := time.Duration(float64(time.Second) / r.EvictionsPerSecond)
	return &bucket{interval: interval, depth: time.Duration(max(r.Burst, 1)-1) * interval}
}

// wait is how long it takes at least until there is a token. 0: there is one.
func (b *bucket) wait(now time.Time) time.Duration {
	if b == nil {
		return 0
	}
	missing := max(b.full.Sub(now), 0) + time.Duration(b.held)*b.interval
	return max(missing-b.depth, 0) // the zero time is farther away than a Duration reaches
}

// take takes the token that is there when wait is 0. It ends with spend or giveBack.
func (b *bucket) take() {
	if b != nil {
		b.held++
	}
}

// spend lets a token come back that was needed: its call has ended.
func (b *bucket) spend(now time.Time) {
	if b == nil {
		return
	}
	b.held--
	if b.full.Before(now) {
		b.full = now
	}
	b.full = b.full.Add(b.interval)
}

// giveBack undoes one take.
func (b *bucket) giveBack() {
	if b != nil {
		b.held--
	}
}

// idle says whether it is as it began.
func (b *bucket) idle(now time.Time) bool { return b.held == 0 && !b.full.After(now) }
