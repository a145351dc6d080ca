package bus_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/embed"
	"github.com/rehome-dev/rehome/test/kit/bustest"
)

// TestClock sets the clock of a process to several times, and compares it with the clock of a real server.
func TestClock(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	var log bytes.Buffer
	b := bustest.Connect(t, bus.Options{
		Server: bustest.Server(t, embed.Options{}), Log: slog.New(slog.NewTextHandler(&log, nil)),
		Clock: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
	})
	bustest.SetUp(t, b, bus.Setup{Strategies: []string{strategy}})
	if skew := b.ClockSkew(); skew != 0 {
		t.Errorf("before the first answer: got a skew of %v, want none", skew)
	}
	for _, c := range []struct {
		name        string
		ahead       time.Duration
		warns, fail string
	}{
		{"exact", 0, "", ""},
		{"a_little_ahead", 20 * time.Second, "", ""},
		{"ahead", 2 * time.Minute, "the clock of this process is 2m0s ahead of the clock of the bus, want at most 30s", ""},
		{"far_ahead", 11 * time.Minute, "the clock of this process is 11m0s ahead of the clock of the bus, want at most 30s",
			"the clock of this process is 11m0s ahead of the clock of the bus, want at most 5m0s"},
		{"far_behind", -time.Hour, "the clock of this process is 1h0m0s behind the clock of the bus, want at most 30s",
			"the clock of this process is 1h0m0s behind the clock of the bus, want at most 5m0s"},
		{"exact_again", 0, "", ""},
	} {
		before := b.Now()
		ahead.Store(int64(c.ahead))
		if passed := b.Now().Sub(before); passed < 0 || passed > 2*time.Second {
			t.Errorf("%s: the time moved by %v when the clock was set, want at most 2s", c.name, passed)
		}
		if _, err := b.Status(t.Context()); err != nil {
			t.Fatal(err)
		}
		if skew := b.ClockSkew(); (skew - c.ahead).Abs() > time.Second {
			t.Errorf("%s: got a skew of %v, want about %v", c.name, skew, c.ahead)
		}
		if off := time.Until(b.Now()); off.Abs() > 2*time.Second {
			t.Errorf("%s: the time is off by %v, want at most 2s", c.name, off)
		}
		for what, got := range map[string]struct {
			err  error
			want string
		}{"warning": {b.ClockWarning(), c.warns}, "ready": {b.Ready(), c.fail}} {
			if got.want == "" && got.err != nil || got.want != "" && (got.err == nil || !strings.HasPrefix(got.err.Error(), got.want)) {
				t.Errorf("%s: %s: got %v, want %q", c.name, what, got.err, got.want)
			}
		}
	}
	if warnings, ends := strings.Count(log.String(), "level=WARN"), strings.Count(log.String(), "agrees with"); warnings != 1 || ends != 1 {
		t.Errorf("got %d warnings and %d ends in the log, want 1 each:\n%s", warnings, ends, &log)
	}
}
