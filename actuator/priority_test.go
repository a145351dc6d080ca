package actuator

import (
	"math"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// prioritized is a policy that enables a strategy of each priority, named for it.
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
			check(t, "order", got, []string{"node-1.1", "node-6.6", "Request-4.4", "violation-3.3", "balance-2.2"})
		})
	})
	t.Run("then_low_priority_then_quality_of_service", func(t *testing.T) {
		pod := func(priority int32, quality corev1.PodQOSClass) cluster.Pod {
			return cluster.Pod{Priority: priority, QoS: quality}
		}
		node, balance := policy.Traits{Priority: policy.PriorityNode}, policy.Traits{Priority: policy.PriorityBalance}
		got := []int{
			priorityOf(node, pod(math.MaxInt32, corev1.PodQOSGuaranteed)), priorityOf(policy.Traits{}, pod(0, corev1.PodQOSBurstable)),
			priorityOf(balance, pod(math.MinInt32, "")), priorityOf(balance, pod(-1, corev1.PodQOSGuaranteed)),
			priorityOf(balance, pod(0, corev1.PodQOSBestEffort)), priorityOf(balance, pod(0, corev1.PodQOSBurstable)),
			priorityOf(balance, pod(0, corev1.PodQOSGuaranteed)), priorityOf(balance, pod(1000, corev1.PodQOSBestEffort)),
		}
		check(t, "the highest first", slices.IsSortedFunc(got, func(a, b int) int { return b - a }), true)
	})
}
