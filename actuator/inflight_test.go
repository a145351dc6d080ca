package actuator

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// stopping is a cluster whose pods belong to no workload and exist until they have stopped.
type stopping struct {
	noView
	stopped *atomic.Bool
}

func (v stopping) Pod(uid types.UID) (cluster.Pod, bool) {
	if v.stopped.Load() {
		return cluster.Pod{}, false
	}
	return cluster.Pod{Ref: schemas.PodRef{UID: uid}}, true
}

// TestInFlight drains a node with 80 pods in two namespaces under the default limits. Another node has 10 pods to move.
func TestInFlight(t *testing.T) {
	uids := func(n int) (all []types.UID) {
		for i := range n {
			all = append(all, types.UID(fmt.Sprintf("%02d", i)))
		}
		return all
	}
	type verdict struct {
		strategy string
		reason   schemas.ReasonCode
		after    time.Duration
	}
	const accepted, gone = schemas.ReasonEvictionAccepted, schemas.ReasonNotReplaced
	const trackedAgain = time.Second + 2*trackEvery
	p := fast
	p.Limits.InFlight = policy.DefaultInFlight()
	for _, c := range []struct {
		name  string
		stops time.Duration // when the pods have stopped
		want  map[verdict]int
	}{
		{"pods_of_a_full_node_are_deferred", 2 * time.Minute, map[verdict]int{
			{"A", accepted, 0}: 40, {"B", accepted, 0}: 10, {"Other", accepted, 0}: 10,
			{"B", schemas.ReasonMovingNode, parkedFor}: 30,
		}},
		{"they_move_when_others_are_settled", 8 * time.Second, map[verdict]int{
			{"A", accepted, 0}: 40, {"B", accepted, 0}: 10, {"Other", accepted, 0}: 10,
			{"B", accepted, trackedAgain}: 30,
			{"A", gone, trackedAgain}:     40, {"B", gone, trackedAgain}: 40, {"Other", gone, trackedAgain}: 10,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			view := stopping{stopped: &atomic.Bool{}}
			inBubble(t, Config{Policy: p, View: view}, always(schemas.Evicted, accepted, 0), func(t *testing.T, b *bench) {
				b.bus.put(b.answerOf("web", "A", 1, uids(40)...))
				b.bus.put(b.answerOf("shop", "B", 1, uids(80)[40:]...))
				b.putOn("worker-2", "Other", 1, uids(90)[80:]...)
				time.Sleep(c.stops)
				view.stopped.Store(true)
				if c.stops < parkedFor {
					time.Sleep(parkedFor)
				}
				got := map[verdict]int{}
				for _, v := range b.bus.heard(t, b.start) {
					got[verdict{v.ID[:len(v.ID)-len("-1.00")], v.Reason, v.After}]++
				}
				expect.Equal(t, "verdicts", got, c.want)
			})
		})
	}
}

// An intent that no longer waits for a limit must let the next one under that limit go on.
func TestNextParkedIntent(t *testing.T) {
	p := fast
	p.Limits.InFlight = policy.InFlight{PerNode: new(uint(1)), PerNamespace: new(uint(1))}
	held := func(_ context.Context, o Intent, _ saveFunc) (schemas.Verdict, error) {
		time.Sleep(time.Second)
		if o.Node == "worker-2" {
			time.Sleep(9 * time.Second)
		}
		return o.Verdict(schemas.Deferred, schemas.ReasonDisruptionBudget, ""), nil
	}
	const budget = schemas.ReasonDisruptionBudget
	t.Run("the_first_waits_for_another_limit", func(t *testing.T) {
		inBubble(t, Config{Policy: p}, held, func(t *testing.T, b *bench) {
			b.bus.put(b.answerOf("shop", "A", 1, "1"))
			b.putOn("worker-2", "B", 1, "2")
			time.Sleep(100 * ms)
			b.put("C", 1, "3") // waits for the node, then for the namespace
			time.Sleep(100 * ms)
			b.bus.put(b.answerOf("other", "D", 1, "4"))
			time.Sleep(30 * time.Second)
			expect.Equal(t, "verdicts", b.bus.heard(t, b.start), []heard{
				{"A-1.1", budget, time.Second}, {"D-1.4", budget, 2 * time.Second},
				{"B-1.2", budget, 10 * time.Second}, {"C-1.3", budget, 11 * time.Second},
			})
		})
	})
	t.Run("the_first_is_withdrawn", func(t *testing.T) {
		p := p
		p.Rate = policy.Rate{EvictionsPerSecond: .1, Burst: 2}
		inBubble(t, Config{Policy: p}, held, func(t *testing.T, b *bench) {
			b.bus.put(b.answerOf("shop", "A", 1, "1"))
			time.Sleep(100 * ms)
			b.put("C", 1, "3")
			time.Sleep(100 * ms)
			b.bus.put(b.answerOf("other", "D", 1, "4"))
			time.Sleep(100 * ms)
			b.putOn("worker-2", "B", 1, "2") // uses up the rate
			time.Sleep(3 * time.Second)
			b.put("C", 2) // is the next one when the rate allows it
			time.Sleep(30 * time.Second)
			expect.Equal(t, "verdicts", b.bus.heard(t, b.start), []heard{
				{"A-1.1", budget, time.Second}, {"C-1.3", schemas.ReasonSuperseded, 3300 * ms},
				{"B-1.2", budget, 10300 * ms}, {"D-1.4", budget, 12 * time.Second},
			})
		})
	})
}
