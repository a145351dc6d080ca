package watcher

import (
	"math/rand/v2"
	"time"
)

// backoff gives the delays between tries of something that fails: from 100 milliseconds, doubled each time, to 5
// seconds, each shortened at random by up to a half so that many do not try at once. The zero value is ready.
type backoff struct{ tries int }

func (b *backoff) next() time.Duration {
	d := 100 * time.Millisecond << min(b.tries, 6)
	b.tries++
	d = min(d, 5*time.Second)
	return d - rand.N(d/2)
}

// first says whether the failure that next was last asked about is the first of a row.
func (b *backoff) first() bool { return b.tries == 1 }

func (b *backoff) reset() { b.tries = 0 }
