package actuator

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// prioritized returns a policy that enables a strategy of each priority, named for it.
func prioritized(r policy.Rate) policy.Policy {
	p := enabling(r, "node", "violation", "balance")
	p.Known = map[string]policy.Traits{}
	for _, priority := range []policy.Priority{policy.PriorityNode, policy.PriorityViolation, policy.PriorityBalance} {
		p.Known[string(priority)] = policy.Traits{Priority: priority}
	}
	return p
}

func TestPriority(t *testing.T) {
	t.Run("nodes_then_requests_then_violations_then_balance", func(t *testing.T) {
		cfg := Config{Policy: prioritized(policy.Rate{EvictionsPerSecond: 1, Burst: 1})}
		inBubble(t, cfg, always(schemas.Evicted, schemas.ReasonEvictionAccepted, ms), func(t *testing.T, b *bench) {
			b.put("node", 1, "1") // takes the only token
			time.Sleep(10 * ms)
			b.put("balance", 2, "2")
			b.put("violation", 3, "3")
			b.put(schemas.RequestStrategy, 4, "4")
			b.put("node", 6, "6")
			time.Sleep(time.Minute)
			var got []string
			for _, v := range b.bus.heard(t, b.start) {
				got = append(got, v.ID)
			}
			expect.Equal(t, "order", got, []string{"node-1.1", "node-6.6", "Request-4.4", "violation-3.3", "balance-2.2"})
		})
	})
	t.Run("then_cost_then_weight", func(t *testing.T) {
		node, balance := policy.Traits{Priority: policy.PriorityNode}, policy.Traits{Priority: policy.PriorityBalance}
		got := []int{
			PriorityOf(node, policy.MostCost-1, 0), PriorityOf(policy.Traits{}, 5, 0), PriorityOf(balance, 0, math.MaxInt64),
			PriorityOf(balance, 0, 60*24*3600), PriorityOf(balance, 0, 2*24*3600), PriorityOf(balance, 0, 1024), PriorityOf(balance, 0, 1023),
			PriorityOf(balance, 0, 500), PriorityOf(balance, 0, 11), PriorityOf(balance, 0, 0), PriorityOf(balance, 1, math.MaxInt64),
			PriorityOf(balance, 1, 0), PriorityOf(balance, policy.MostCost-1, 7),
		}
		expect.Equal(t, "the highest first", slices.IsSortedFunc(got, func(a, b int) int { return b - a }), true)
		expect.Equal(t, "no two are equal", len(slices.Compact(slices.Clone(got))), len(got))
		expect.Equal(t, "a weight below 0 is none", PriorityOf(balance, 0, -7), PriorityOf(balance, 0, 0))
	})
}
