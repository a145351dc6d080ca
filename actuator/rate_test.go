package actuator

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// TestRateOfSlowCalls checks the rate as the server sees it when each call takes long: in any span of time, no more
// calls may begin before its end and end after its beginning than the rate allows.
func TestRateOfSlowCalls(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy policy.Rate
		takes  time.Duration
		want   []time.Duration
	}{
		{"calls that take no time", policy.Rate{EvictionsPerSecond: 10, Burst: 2}, 0, []time.Duration{0, 0, 100 * ms, 200 * ms, 300 * ms}},
		{"calls that are stuck hold their tokens", policy.Rate{EvictionsPerSecond: 10, Burst: 2}, time.Second,
			[]time.Duration{0, 0, 1100 * ms, 1200 * ms, 2200 * ms}},
		{"in a namespace too", policy.Rate{EvictionsPerSecond: 1000, Burst: 1000, PerNamespace: &policy.NamespaceRate{
			EvictionsPerSecond: 10, Burst: 2}}, time.Second, []time.Duration{0, 0, 1100 * ms, 1200 * ms, 2200 * ms}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var mu sync.Mutex
			began := []time.Time{}
			handle := func(_ context.Context, o Intent, _ saveFunc) (schemas.Verdict, error) {
				mu.Lock()
				began = append(began, time.Now())
				mu.Unlock()
				time.Sleep(c.takes)
				return o.Verdict(schemas.Evicted, schemas.ReasonEvictionAccepted, ""), nil
			}
			inBubble(t, Config{Policy: enabling(c.policy, "A")}, handle, func(t *testing.T, b *bench) {
				time.Sleep(time.Minute) // a long idle time allows no more than the burst
				start := time.Now()
				b.put("A", 1, "1", "2", "3", "4", "5")
				time.Sleep(10 * time.Second)
				mu.Lock()
				defer mu.Unlock()
				var after []time.Duration
				for _, at := range began {
					after = append(after, at.Sub(start))
				}
				expect.Equal(t, "calls began", after, c.want)
			})
		})
	}
}

// TestVerdictRate repeats an intent that is rejected at once, each time in a newer evaluation.
func TestVerdictRate(t *testing.T) {
	handle := func(_ context.Context, o Intent, _ saveFunc) (schemas.Verdict, error) {
		return o.Verdict(schemas.Rejected, schemas.ReasonProtected, ""), nil
	}
	p := enabling(fast.Rate, "A")
	inBubble(t, Config{Policy: p}, handle, func(t *testing.T, b *bench) {
		for sequence := range uint64(600) {
			b.put("A", sequence+1, "1")
			time.Sleep(100 * ms)
		}
		time.Sleep(2 * time.Second)
		expect.Equal(t, "verdicts of a minute", len(b.bus.heard(t, b.start)), 20+60)
	})
}

// TestVerdictRateAfterWithdrawals withdraws an intent very often. The next intent for the pod does not wait for that long.
func TestVerdictRateAfterWithdrawals(t *testing.T) {
	p := enabling(fast.Rate, "A", "B")
	inBubble(t, Config{Policy: p}, always(schemas.Evicted, schemas.ReasonEvictionAccepted, 0), func(t *testing.T, b *bench) {
		synctest.Wait() // it leads
		s := b.session.Load()
		s.mu.Lock()
		for range 1000 {
			s.countVerdict("1", time.Now())
		}
		s.mu.Unlock()
		b.put("B", 1, "1")
		time.Sleep(2 * time.Second)
		expect.Equal(t, "verdicts", b.bus.heard(t, b.start), []heard{{"B-1.1", schemas.ReasonEvictionAccepted, time.Second}})
	})
}

// Only calls that can change something cost tokens.
func TestRateOfRefusedPods(t *testing.T) {
	for _, c := range []struct {
		outcome schemas.Outcome
		reason  schemas.ReasonCode
		want    time.Duration // until the pod after three refused ones moves
	}{
		{schemas.Rejected, schemas.ReasonProtected, 0},
		{schemas.Deferred, schemas.ReasonNodeFit, 0},
		{schemas.Deferred, schemas.ReasonInVain, 0},
		{schemas.Deferred, schemas.ReasonDisruptionBudget, 3 * time.Second},
	} {
		t.Run(string(c.reason), func(t *testing.T) {
			var moved time.Time
			handle := func(_ context.Context, o Intent, _ saveFunc) (schemas.Verdict, error) {
				if o.Pod.UID == "4" {
					moved = time.Now()
					return o.Verdict(schemas.Evicted, schemas.ReasonEvictionAccepted, ""), nil
				}
				return o.Verdict(c.outcome, c.reason, ""), nil
			}
			inBubble(t, Config{Policy: enabling(policy.Rate{EvictionsPerSecond: 1, Burst: 1}, "A")}, handle, func(t *testing.T, b *bench) {
				b.put("A", 1, "1", "2", "3", "4")
				time.Sleep(10 * time.Second)
				synctest.Wait()
				expect.Equal(t, "moved after", moved.Sub(b.start), c.want)
			})
		})
	}
}
