package bus_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// proofread reads the history of the rig until the test ends. Events about the node bad are invalid.
func (r rig) proofread(t *testing.T) {
	t.Helper()
	expect.Background(t, func(ctx context.Context) error {
		return r.bus.Proofread(ctx, time.Unix(0, 0), func(e schemas.Event) error {
			if e.Subject == "nodes/bad" {
				return fmt.Errorf("event %s: %w: it is bad", e.ID, schemas.ErrInvalid)
			}
			return nil
		})
	})
}

func TestProofread(t *testing.T) {
	r := newRig(t, bus.Setup{})
	good, bad := bustest.Delta(t, "good"), bustest.Delta(t, "bad")
	bustest.Publish(t, r.bus, good, bad)
	r.proofread(t)
	letters := r.deadLetters(t, 1)
	r.garbage(t, "rehome.verdict.garbage", nil, "moin")
	r.garbage(t, "rehome.receipt.garbage", nil, "moin")
	r.garbage(t, "rehome.delta.garbage", nil, "moin")
	r.garbage(t, "rehome.maintenance.garbage", nil, "moin")
	bustest.Publish(t, r.bus, verdict(t, "pod-1"), bustest.Delta(t, "good"), maintenance(t, "kernel"))
	letters = append(letters, r.deadLetters(t, 5)[1:]...)
	var got []string
	for _, m := range letters {
		got = append(got, m.Subject+" "+m.Header.Get(bus.HeaderSubject)+" "+m.Header.Get(bus.HeaderSequence)+": "+m.Header.Get(bus.HeaderError))
	}
	const by = "rehome.dead.REHOME_EVENTS.tester "
	none := "read CloudEvent: invalid event: no CloudEvent: neither a header ce-specversion nor a JSON object"
	want := []string{
		by + bad.Channel + " 2: event " + bad.ID + ": invalid event: it is bad",
		by + "rehome.verdict.garbage 3: rehome.verdict.garbage at 3 of REHOME_EVENTS: " + none,
		by + "rehome.receipt.garbage 4: rehome.receipt.garbage at 4 of REHOME_EVENTS: " + none,
		by + "rehome.delta.garbage 5: rehome.delta.garbage at 5 of REHOME_EVENTS: " + none,
		by + "rehome.maintenance.garbage 6: rehome.maintenance.garbage at 6 of REHOME_EVENTS: " + none,
	}
	expect.Equal(t, "dead letters", got, want)
	r.proofread(t) // the next one, which starts before
	time.Sleep(200 * time.Millisecond)
	if numbers, err := r.bus.DeadNumbers(t.Context(), bus.DeadQuery{}); err != nil || len(numbers) != 5 {
		t.Errorf("dead letters %v, error %v, want the 5 of before", numbers, err)
	}
}

func TestProofreadLimitsDeadLetters(t *testing.T) {
	r := newRig(t, bus.Setup{})
	began := time.Now()
	for i := range 1000 {
		r.garbage(t, fmt.Sprint("rehome.delta.garbage.", i), nil, "moin")
	}
	bad := make(chan struct{})
	bustest.Publish(t, r.bus, bustest.Delta(t, "last"))
	expect.Background(t, func(ctx context.Context) error {
		return r.bus.Proofread(ctx, time.Unix(0, 0), func(schemas.Event) error {
			close(bad)
			return nil
		})
	})
	next(t, bad)
	s, err := r.raw.Stream(t.Context(), bus.StreamDead)
	expect.Must(t, err)
	seconds := uint64(time.Since(began).Seconds())
	if n := s.CachedInfo().State.Msgs; n < 300 || n > 301+seconds {
		t.Errorf("%d dead letters of a thousand after %d s, want 300 and one for each second", n, seconds)
	}
}
