package actuator

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// line is what is known about the way to the API server. The zero value is up. It is safe for concurrent use.
type line struct {
	mu      sync.Mutex
	failure error // nil: up
	since   time.Time
	tries   int
	retry   time.Time // not to be tried before
}

// fail says that the API server could not be asked, and returns whether that is news.
func (l *line) fail(now time.Time, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	news := l.failure == nil
	if news {
		l.since, l.tries = now, 0
	}
	l.failure = err
	if !now.Before(l.retry) { // of calls that fail together only the first counts
		l.retry = now.Add(backoff(l.tries))
		l.tries++
	}
	return news
}

// succeed says that the API server answered, and returns for how long it had not.
func (l *line) succeed(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure == nil {
		return 0
	}
	l.failure, l.retry = nil, time.Time{}
	return now.Sub(l.since)
}

// wait returns whether the line is down, and how long until it may be tried again.
func (l *line) wait(now time.Time) (wait time.Duration, down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure == nil {
		return 0, false
	}
	return max(l.retry.Sub(now), 0), true
}

func (l *line) ready() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure == nil {
		return nil
	}
	return fmt.Errorf("API server cannot be asked since %s: %w", clock(l.since), l.failure)
}

// maxBackoff is the longest pause between two tries. An outage ends unnoticed for no longer than that.
const maxBackoff = 5 * time.Second

// backoff is the pause after the given number of tries: 100 ms doubled each time, up to maxBackoff, shortened by up to
// a half so that several processes do not try together.
func backoff(tries int) time.Duration {
	d := min(100*time.Millisecond<<min(tries, 10), maxBackoff)
	return d - rand.N(d/2)
}

// persist calls f until it succeeds, fails for good, or ctx ends, and returns the last error. f is not called when ctx has
// ended before. first is told about the first failure that does not end it.
func persist(ctx context.Context, f func() error, forGood func(error) bool, first func(error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for tries := 0; ; tries++ {
		err := f()
		if err == nil || forGood(err) || ctx.Err() != nil {
			return err
		}
		if tries == 0 {
			first(err)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(backoff(tries)):
		}
	}
}
