package bus

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// complaints writes what readers of the bus complain about. They are many, one for each strategy and more, and when
// something is wrong with the bus it is wrong for all of them: of the same complaint by several of them only the first is
// a warning. Its methods may be called from many goroutines. The zero value has heard nothing.
type complaints struct {
	mu   sync.Mutex
	kind string
	at   time.Time
}

// alike is how long after one complaint the same by another reader is no news.
const alike = 5 * time.Second

// write writes one complaint of the reader of what.
func (c *complaints) write(log *slog.Logger, what string, err error) {
	kind := err.Error()
	if errors.Is(err, ErrNotSetUp) {
		kind = ErrNotSetUp.Error() // whatever it is that is missing
	}
	c.mu.Lock()
	level := slog.LevelWarn
	if kind == c.kind && time.Since(c.at) < alike {
		level = slog.LevelDebug
	}
	c.kind, c.at = kind, time.Now()
	c.mu.Unlock()
	log.Log(context.Background(), level, "reading from the bus was interrupted, trying again", "what", what, "error", err)
}
