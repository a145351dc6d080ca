package kubeevents

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	eventsv1 "k8s.io/api/events/v1"

	"github.com/rehome-dev/rehome/test/kit/expect"
)

const most = perSecond * int(longestWait/time.Second)

// shelf records when events were written.
type shelf struct {
	mu    sync.Mutex
	start time.Time
	at    []time.Duration
}

func (s *shelf) note() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = append(s.at, time.Since(s.start))
}

func (s *shelf) Create(_ context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	s.note()
	return e, nil
}

func (s *shelf) Patch(_ context.Context, e *eventsv1.Event, _ []byte) (*eventsv1.Event, error) {
	s.note()
	return e, nil
}

func (s *shelf) Update(_ context.Context, e *eventsv1.Event) (*eventsv1.Event, error) { return e, nil }

// put submits n events at once. Every second one is a repetition.
func (s *shelf) put(to *sink, n int) {
	for i := range n {
		to.pending.Add(1)
		if i%2 == 0 {
			go func() { _, _ = to.Create(context.Background(), &eventsv1.Event{}) }()
		} else {
			go func() { _, _ = to.Patch(context.Background(), &eventsv1.Event{}, nil) }()
		}
	}
	synctest.Wait()
}

// written returns the number of events that are written after this time.
func (s *shelf) written(after time.Duration) int {
	time.Sleep(after - time.Since(s.start))
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.at)
}

func TestRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &shelf{start: time.Now()}
		s := newSink(to, slog.New(slog.DiscardHandler))
		to.put(s, 100)
		var got [5]int
		for i, after := range []time.Duration{0, 1, 2, 7, 8} {
			got[i] = to.written(after*time.Second + time.Millisecond)
		}
		expect.Equal(t, "written after 0, 1, 2, 7 and 8 seconds", got, [5]int{20, 30, 40, 90, 100})
	})
}

func TestFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &shelf{start: time.Now()}
		s := newSink(to, slog.New(slog.DiscardHandler))
		to.put(s, 100)
		s.flush()
		expect.Equal(t, "written", to.written(0), 100)
		expect.Equal(t, "time that it took", time.Since(to.start) < 10*time.Millisecond, true)
	})
}

func TestDroppedEventLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to, log := &shelf{start: time.Now()}, new(bytes.Buffer)
		s := newSink(to, slog.New(slog.NewTextHandler(log, nil)))
		to.put(s, burst+most+7)
		expect.Equal(t, "events on their way", s.pending.Load(), int64(most))
		expect.Equal(t, "lines in the log", strings.Count(log.String(), "too many Kubernetes Events"), 1)
		s.flush()
		expect.Equal(t, "written", to.written(0), burst+most)
	})
}

func TestNoteTruncation(t *testing.T) {
	for n := maxNote - 4; n < maxNote+4; n++ {
		note := strings.Repeat("x", n) + "öööö"
		got := cut(note)
		if len(got) > maxNote || !utf8.ValidString(got) || len(note) <= maxNote && got != note {
			t.Errorf("a note of %d bytes: %d bytes, valid: %t", len(note), len(got), utf8.ValidString(got))
		}
	}
}
