package actuator

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

func TestLimitScope(t *testing.T) {
	evicted, rejected := schemas.ReasonEvictionAccepted, schemas.ReasonPodGone
	limited := func(l policy.Limits) Config { return Config{Policy: policy.Policy{Rate: fast.Rate, Limits: l}} }
	handle := func(_ context.Context, o Intent, _ saveFunc) (schemas.Verdict, error) {
		time.Sleep(time.Second)
		if o.Strategy == "Stale" {
			return o.Verdict(schemas.Rejected, rejected, ""), nil
		}
		return o.Verdict(schemas.Evicted, evicted, ""), nil
	}
	inBubble(t, limited(policy.Limits{PerNode: new(uint(2))}), handle, func(t *testing.T, b *bench) {
		b.put("Stale", 1, "1")
		b.put("A", 2, "2", "3", "4")
		b.putOn("worker-2", "B", 3, "5")
		time.Sleep(10 * time.Second)
		b.put("C", 4, "6", "7") // the pod that was not moved frees its slot
		time.Sleep(5*time.Minute - 10*time.Second)
		b.put("C", 5, "7") // a second before the window of 2 ends
		time.Sleep(2 * time.Second)
		b.put("C", 6, "8")
		time.Sleep(2 * time.Second)
		limit := schemas.ReasonLimitNode
		expect.Equal(t, "verdicts", b.bus.heard(t, b.start), []heard{
			{"A-2.3", limit, 0}, {"A-2.4", limit, 0},
			{"A-2.2", evicted, time.Second}, {"B-3.5", evicted, time.Second}, {"Stale-1.1", rejected, time.Second},
			{"C-4.7", limit, 10 * time.Second}, {"C-4.6", evicted, 11 * time.Second},
			{"C-5.7", limit, 5 * time.Minute},
			{"C-6.8", evicted, 5*time.Minute + 3*time.Second},
		})
		expect.Equal(t, "answers left in the table", b.bus.left(), 0)
	})
}

func TestDeferralNamesLimitAndTime(t *testing.T) {
	cfg := Config{Policy: policy.Policy{Rate: fast.Rate, Limits: policy.Limits{Total: new(uint(1)), PerNode: new(uint(9))}}}
	inBubble(t, cfg, always(schemas.Evicted, schemas.ReasonEvictionAccepted, 0), func(t *testing.T, b *bench) {
		b.put("A", 1, "1")
		time.Sleep(500 * ms)
		b.put("A", 2, "2")
		time.Sleep(ms)
		b.SetPolicy(policy.Policy{Rate: fast.Rate, Limits: policy.Limits{PerNode: new(uint(0))}})
		b.put("A", 3, "3")
		time.Sleep(ms)
		b.stop()
		got := b.bus.messages(t)
		room := b.start.Add(policy.DefaultWindow).UTC().Format(time.RFC3339)
		expect.Equal(t, "messages", got, []string{
			"",
			"the cluster has reached its limit of 1 pod in 5m0s; there is capacity again at " + room,
			"node worker-1 has reached its limit of 0 pods in 5m0s; there is no capacity until the policy changes",
		})
		expect.Equal(t, "there is room again", b.bus.again(t, b.start), []time.Duration{0, policy.DefaultWindow, 0})
		expect.Equal(t, "lines of the log", strings.Count(b.log.String(), "\n"), 0)
	})
}
