package actuator

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// openConditions returns the open conditions of the cluster breaker.
func openConditions(b *bench) []StormCondition {
	s := b.session.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cluster.Open()
}

// TestClusterBreaker covers when all moves stop and resume.
func TestClusterBreaker(t *testing.T) {
	pod := func(uid types.UID, ready bool) cluster.Pod {
		p := replica(string(uid), "worker-1", 0)
		p.Ref.UID, p.Ready, p.Budgeted = uid, ready, true
		return p
	}
	stuck := policy.Policy{Rate: fast.Rate, CircuitBreakers: policy.CircuitBreakers{Cluster: policy.ClusterBreaker{Pending: 1, PendingFor: time.Minute}}}
	// begin moves one pod whose replacement does not become ready.
	begin := func(b *bench, v *crowd) {
		v.set(func([]cluster.Pod) []cluster.Pod { return []cluster.Pod{pod("1", true), pod("2", true)} })
		b.put("A", 1, "1")
		time.Sleep(time.Second)
		v.set(func([]cluster.Pod) []cluster.Pod {
			return []cluster.Pod{pod("gone", true), pod("2", true), pod("new", false)}
		})
		b.Changed(cluster.Change{Workload: api.UID})
	}
	evicts := always(schemas.Evicted, schemas.ReasonEvictionAccepted, 0)

	t.Run("closes_when_replacements_become_ready", func(t *testing.T) {
		v := &crowd{}
		inBubble(t, Config{Policy: stuck, View: v}, evicts, func(t *testing.T, b *bench) {
			begin(b, v)
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			expect.Equal(t, "open", len(openConditions(b)), 1)
			v.set(func(p []cluster.Pod) []cluster.Pod { p[2].Ready = true; return p })
			b.Changed(cluster.Change{Workload: api.UID})
			time.Sleep(2 * time.Second)
			synctest.Wait()
			expect.Equal(t, "open when it is ready", len(openConditions(b)), 0)
		})
	})
	t.Run("stays_open_while_replacements_are_pending", func(t *testing.T) {
		v := &crowd{}
		inBubble(t, Config{Policy: stuck, View: v}, evicts, func(t *testing.T, b *bench) {
			begin(b, v)
			time.Sleep(20 * time.Minute)
			synctest.Wait()
			expect.Equal(t, "moves in flight", len(b.session.Load().moves.all), 0)
			synctest.Wait()
			expect.Equal(t, "open", len(openConditions(b)), 1)
			v.set(func(p []cluster.Pod) []cluster.Pod { p[2].Ready = true; return p })
			time.Sleep(10 * time.Second)
			synctest.Wait()
			expect.Equal(t, "open when it is ready", len(openConditions(b)), 0)
		})
	})
	t.Run("stays_open_for_the_next_leader", func(t *testing.T) {
		r := before("1", time.Hour)
		r.Settled, r.Pending, r.Replacement = true, true, "new"
		synctest.Test(t, func(t *testing.T) {
			r.Begun, r.Moved = time.Now().Add(-time.Hour), time.Now().Add(-time.Hour)
			v := &crowd{list: []cluster.Pod{pod("new", false)}}
			m := remembering(t, map[string]any{r.key(): r})
			a, stop := leading(t, m, stuck, v)
			expect.Equal(t, "open", len(openConditions(&bench{Actuator: a})), 1)
			stop()
		})
	})
	t.Run("a_slow_move_counts_from_the_departure_of_its_pod", func(t *testing.T) {
		v := &crowd{}
		inBubble(t, Config{Policy: stuck, View: v}, stepping, func(t *testing.T, b *bench) {
			b.background = leavesAt{b.start.Add(20 * time.Minute)}
			begin(b, v)
			time.Sleep(20*time.Minute + 30*time.Second)
			synctest.Wait()
			expect.Equal(t, "moves in flight after 20 minutes", len(b.session.Load().moves.all), 1)
			expect.Equal(t, "open after 20 minutes", len(openConditions(b)), 0)
			time.Sleep(time.Minute)
			synctest.Wait()
			expect.Equal(t, "open a minute later", len(openConditions(b)), 1)
			time.Sleep(10 * time.Minute)
			expect.Equal(t, "verdicts", b.bus.heard(t, b.start), []heard{
				{"A-1.1", schemas.ReasonBackgroundAccepted, 0}, {"A-1.1", schemas.ReasonReplacementPending, 30*time.Minute + time.Second},
			})
		})
	})
	t.Run("two_namespaces_are_refused_and_another_moves", func(t *testing.T) {
		p := policy.Policy{Rate: policy.Rate{EvictionsPerSecond: 20, Burst: 1}, CircuitBreakers: policy.CircuitBreakers{Cluster: policy.ClusterBreaker{Failures: 50}}}
		refuses := func(_ context.Context, o Intent, _ saveFunc) (schemas.Verdict, error) {
			switch {
			case o.Pod.Namespace == "web":
				return o.Verdict(schemas.Evicted, schemas.ReasonEvictionAccepted, ""), nil
			case len(o.Pod.UID)%2 == 0:
				return o.Verdict(schemas.Failed, schemas.ReasonInvalid, "several budgets"), nil
			}
			return o.Verdict(schemas.Deferred, schemas.ReasonInternalError, "a webhook failed"), nil
		}
		inBubble(t, Config{Policy: p}, refuses, func(t *testing.T, b *bench) {
			var refused, more, healthy []types.UID
			for i := range 40 {
				refused = append(refused, types.UID(fmt.Sprint("r", i)))
				more = append(more, types.UID(fmt.Sprint("more", i)))
				healthy = append(healthy, types.UID(fmt.Sprint(i)))
			}
			b.bus.put(b.answerOf("locked", "R", 1, refused...))
			b.bus.put(b.answerOf("closed", "M", 1, more...))
			time.Sleep(2 * time.Second)
			b.put("A", 1, healthy...)
			time.Sleep(30 * time.Second)
			moved, deferred := 0, map[schemas.ReasonCode]int{}
			for _, h := range b.bus.heard(t, b.start) {
				if h.Reason == schemas.ReasonEvictionAccepted {
					moved++
				} else {
					deferred[h.Reason]++
				}
			}
			expect.Equal(t, "pods of the third namespace that were moved", moved, 40)
			if deferred[schemas.ReasonStormFailures] == 0 {
				t.Errorf("got %v, want pods of the namespace itself to wait", deferred)
			}
		})
	})
}

// leavesAt is a method whose pods leave at a time.
type leavesAt struct{ at time.Time }

func (leavesAt) Start(context.Context, *corev1.Pod, time.Time, move.Save) (move.Progress, error) {
	return move.Progress{Stage: move.NotApplicable}, nil
}

func (l leavesAt) Step(_ context.Context, _ move.State, _ bool, now time.Time) (move.Progress, error) {
	if now.Before(l.at) {
		return move.Progress{Delay: l.at.Sub(now)}, nil
	}
	return move.Progress{Stage: move.Done}, nil
}

// answerOf is answer for pods of a namespace.
func (b *bench) answerOf(namespace, strategy string, sequence uint64, uids ...types.UID) schemas.Event {
	a, _ := answerTo(strategy, sequence, uids...)
	a.Scope.Since, a.Scope.Key = b.start, "worker-1"
	for i := range a.Intents {
		a.Intents[i].Pod.Namespace = namespace
		a.Intents[i].Node = "worker-1"
		a.Intents[i].Expires = b.start.Add(10 * time.Minute)
	}
	e, err := schemas.NewEvent("/test", a, b.start, schemas.Event{})
	if err != nil {
		panic(err)
	}
	return e
}
