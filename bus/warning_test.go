package bus

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestRepeatedComplaintWarning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		log := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelWarn}))
		h := newHealth("a", "watcher", slog.New(slog.DiscardHandler))
		missing := func(stream string) error { return fmt.Errorf("stream %s is missing: %w", stream, ErrNotSetUp) }
		for _, step := range []struct {
			name string
			wait time.Duration
			err  error
			want int
		}{
			{"the first complaint", 0, missing("A"), 1},
			{"the same about another stream", time.Second, missing("B"), 0},
			{"something else", 0, errors.New("a message was missed"), 1},
			{"that again by another", 0, errors.New("a message was missed"), 0},
			{"that again later", similarWithin, errors.New("a message was missed"), 1},
		} {
			time.Sleep(step.wait)
			text.Reset()
			h.complain(log, step.name, step.err)
			if got := strings.Count(text.String(), "\n"); got != step.want {
				t.Errorf("%s: %d warnings, want %d: %s", step.name, got, step.want, text.String())
			}
		}
	})
}
