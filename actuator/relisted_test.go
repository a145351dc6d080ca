package actuator

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// gates evict each pod once, and report it gone when called again.
func gates() executeFunc {
	gone := map[types.UID]bool{}
	return func(_ context.Context, o Intent, _ saveFunc) (schemas.Verdict, error) {
		if gone[o.Pod.UID] {
			return o.Verdict(schemas.Rejected, schemas.ReasonPodGone, ""), nil
		}
		gone[o.Pod.UID] = true
		return o.Verdict(schemas.Evicted, schemas.ReasonEvictionAccepted, ""), nil
	}
}

func TestMovingPodListedAgain(t *testing.T) {
	p := fast
	p.Limits.InFlight.PerNode = new(uint(2))
	inBubble(t, Config{Policy: p, View: oneWorkload{}}, gates(), func(t *testing.T, b *bench) {
		b.put("A", 1, "1")
		time.Sleep(time.Second)
		b.put("B", 1, "1") // verdictOn before the pod went
		time.Sleep(time.Second)
		b.put("C", 1, "2") // there is room for it beside the first
		time.Sleep(time.Second)
		expect.Equal(t, "verdicts", b.bus.heard(t, b.start), []heard{
			{"A-1.1", schemas.ReasonEvictionAccepted, 0},
			{"B-1.1", schemas.ReasonMoving, time.Second},
			{"C-1.2", schemas.ReasonEvictionAccepted, 2 * time.Second},
		})
		entries, err := b.bus.Entries(t.Context())
		expect.Must(t, err)
		records, _, _, bad := readLedger(entries)
		remembered := map[string]bool{}
		for _, r := range records {
			remembered[r.Intent.ID] = !r.Moved.IsZero()
		}
		expect.Equal(t, "unreadable entries", bad, nil)
		expect.Equal(t, "moves in the ledger", remembered, map[string]bool{"A-1.1": true, "C-1.2": true})
	})
}

// emptied is a cluster whose pods are gone and replaced.
type emptied struct{ settling }

func (emptied) Pod(types.UID) (cluster.Pod, bool) { return cluster.Pod{}, false }

func TestCountedMoveListedAgain(t *testing.T) {
	p := fast
	p.Limits = policy.Limits{PerNode: new(uint(1)), Window: time.Minute}
	cfg := Config{Policy: p, View: emptied{}}
	synctest.Test(t, func(t *testing.T) {
		b := &bench{bus: newMemory(), start: time.Now()}
		cfg.Bus, cfg.Ledger, cfg.Source = b.bus, b.bus, "/test/actuator"
		handle := gates()
		term := func(script func()) {
			end := leads(t, New(cfg), handle)
			script()
			time.Sleep(10 * time.Second)
			end()
		}
		term(func() {
			b.put("A", 1, "1")
			time.Sleep(10 * time.Second)
			b.putOn("worker-2", "B", 1, "1") // as if another node had room
		})
		term(func() { b.put("C", 1, "2") })
		expect.Equal(t, "verdicts", b.bus.heard(t, b.start), []heard{
			{"A-1.1", schemas.ReasonEvictionAccepted, 0},
			{"A-1.1", schemas.ReasonNotReplaced, 0},
			{"B-1.1", schemas.ReasonPodGone, 10 * time.Second},
			{"C-1.2", schemas.ReasonLimitNode, 20 * time.Second},
		})
	})
}
