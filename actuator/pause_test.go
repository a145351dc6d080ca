package actuator

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// oneWorkload is a cluster with one Deployment and its budget. All pods belong to it, and no pod has a replacement.
type oneWorkload struct{ noView }

func (oneWorkload) Pod(uid types.UID) (cluster.Pod, bool) {
	return cluster.Pod{
		Ref:      schemas.PodRef{Namespace: "shop", Name: string(uid), UID: uid},
		Workload: schemas.ObjectRef{Kind: "Deployment", Namespace: "shop", Name: "api", UID: "api"}, Ready: true, Budgeted: true,
	}, true
}

func pausing(d time.Duration) Config {
	p := fast
	p.Limits = policy.Limits{Pause: d}
	return Config{Policy: p, View: oneWorkload{}}
}

func TestCooldownStartsAtAcceptance(t *testing.T) {
	slow := always(schemas.Evicted, schemas.ReasonEvictionAccepted, 3*time.Second)
	inBubble(t, pausing(2*time.Second), slow, func(t *testing.T, b *bench) {
		b.put("A", 1, "1", "2", "3")
		time.Sleep(20 * time.Second)
		ok := schemas.ReasonEvictionAccepted
		expect.Equal(t, "verdicts", b.bus.heard(t, b.start), []heard{
			{"A-1.1", ok, 3 * time.Second}, {"A-1.2", ok, 8 * time.Second}, {"A-1.3", ok, 13 * time.Second},
		})
	})
}

func TestNoPauseWithoutMove(t *testing.T) {
	for why, outcome := range map[schemas.ReasonCode]schemas.Outcome{
		schemas.ReasonDisruptionBudget: schemas.Deferred, schemas.ReasonProtected: schemas.Rejected,
	} {
		inBubble(t, pausing(time.Minute), always(outcome, why, time.Second), func(t *testing.T, b *bench) {
			b.put("A", 1, "1", "2", "3")
			time.Sleep(20 * time.Second)
			expect.Equal(t, "verdicts", b.bus.heard(t, b.start), []heard{
				{"A-1.1", why, time.Second}, {"A-1.2", why, 2 * time.Second}, {"A-1.3", why, 3 * time.Second},
			})
		})
	}
}

func TestPauseSurvivesRestart(t *testing.T) {
	for _, c := range []struct {
		name string
		view View // noView: a move is complete when it is accepted
	}{
		{"while the first move is in flight", oneWorkload{}},
		{"when the first move is settled", settling{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := pausing(30 * time.Second)
			cfg.View = c.view
			at := always(schemas.Evicted, schemas.ReasonEvictionAccepted, 0)
			synctest.Test(t, func(t *testing.T) {
				b := &bench{bus: newMemory(), start: time.Now()}
				cfg.Bus, cfg.Ledger, cfg.Source = b.bus, b.bus, "/test/actuator"
				b.put("A", 1, "1", "2")
				for _, term := range []time.Duration{10, 10, 20} {
					end := leads(t, New(cfg), at)
					time.Sleep(term * time.Second)
					end()
				}
				var moved []heard
				for _, h := range b.bus.heard(t, b.start) {
					if h.Reason == schemas.ReasonEvictionAccepted {
						moved = append(moved, h)
					}
				}
				ok := schemas.ReasonEvictionAccepted
				expect.Equal(t, "moves", moved, []heard{{"A-1.1", ok, 0}, {"A-1.2", ok, 30 * time.Second}})
			})
		})
	}
}

// settling is the same cluster with an immediate replacement for every pod.
type settling struct{ oneWorkload }

func (settling) Pods(types.UID) []cluster.Pod {
	return []cluster.Pod{{Ref: schemas.PodRef{Namespace: "shop", Name: "new", UID: "new"}, Node: "worker-2", Ready: true}}
}

func (settling) Seen(types.UID) uint64 { return 2 }
func (settling) Latest() uint64        { return 1 }
