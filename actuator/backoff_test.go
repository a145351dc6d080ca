package actuator

import (
	"errors"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/test/kit/expect"
)

func TestConcurrentFailuresCountOnce(t *testing.T) {
	var l apiHealth
	away := errors.New("connection refused")
	expect.Equal(t, "the first is news", l.fail(noon, away), true)
	first, _ := l.wait(noon)
	for range 32 {
		expect.Equal(t, "one that fails with it is news", l.fail(noon.Add(first-1), away), false)
	}
	wait, down := l.wait(noon)
	expect.Equal(t, "down", down, true)
	expect.Equal(t, "pause", wait, first)
	if first < 50*time.Millisecond || first > 100*time.Millisecond {
		t.Errorf("the first pause is %v, want 50 to 100 ms", first)
	}
}

func TestBackoff(t *testing.T) {
	var l apiHealth
	now := noon
	var last time.Duration
	for tries := range 50 {
		l.fail(now, errors.New("connection refused"))
		wait, _ := l.wait(now)
		if wait > maxBackoff || wait < min(50*time.Millisecond<<min(tries, 10), maxBackoff/2) {
			t.Errorf("pause %d is %v", tries, wait)
		}
		now, last = now.Add(wait), wait
	}
	if last < maxBackoff/2 {
		t.Errorf("the last pause is %v, want at least %v", last, maxBackoff/2)
	}
	expect.Equal(t, "outage", l.succeed(now), now.Sub(noon))
	expect.Equal(t, "a second success ends no outage", l.succeed(now), 0)
	expect.Equal(t, "ready", l.ready(), nil)
	expect.Equal(t, "the next failure is news", l.fail(now, errors.New("connection refused")), true)
	if wait, _ := l.wait(now); wait > 100*time.Millisecond {
		t.Errorf("the first pause of the next outage is %v, want at most 100 ms", wait)
	}
}
