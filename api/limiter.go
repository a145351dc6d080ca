package api

import (
	"sync"
	"time"
)

// limiter limits the requests of each user within a sliding window.
type limiter struct {
	most int
	over time.Duration
	now  func() time.Time

	mu    sync.Mutex
	asked map[string][]time.Time // by [user.requester]: the times within the window, oldest first
}

// take counts a request and returns 0, or returns the time until the next one is allowed.
func (l *limiter) take(user string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	for name, times := range l.asked {
		for len(times) > 0 && now.Sub(times[0]) >= l.over {
			times = times[1:]
		}
		if l.asked[name] = times; len(times) == 0 {
			delete(l.asked, name)
		}
	}
	if times := l.asked[user]; len(times) >= l.most {
		return times[0].Add(l.over).Sub(now)
	}
	l.asked[user] = append(l.asked[user], now)
	return 0
}
