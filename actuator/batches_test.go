package actuator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// batchOf returns intents of one strategy for the pods 1 to n.
func batchOf(n int) []Intent {
	var list []Intent
	for i := range n {
		list = append(list, Intent{
			Profile: "default", Strategy: "S", Scope: schemas.ScopeRef{Kind: schemas.NodeKind, Key: "worker-1"},
			Intent: schemas.Intent{
				ID: fmt.Sprint("intent-", i+1), Pod: schemas.PodRef{Namespace: "web", Name: fmt.Sprint("pod-", i+1), UID: types.UID(fmt.Sprint("uid-", i+1))},
				Node: "worker-1", Expires: time.Now().Add(10 * time.Minute),
			},
		})
	}
	return list
}

func TestBatchesRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var mu sync.Mutex
		var after []time.Duration
		handle := func(_ context.Context, o Intent, _ saveFunc) (schemas.Verdict, error) {
			mu.Lock()
			defer mu.Unlock()
			after = append(after, time.Since(began))
			return o.Verdict(schemas.Evicted, schemas.ReasonEvictionAccepted, o.ID), nil
		}
		b := New(Config{Policy: policy.Policy{
			Rate: policy.Rate{EvictionsPerSecond: 10, Burst: 2}, Limits: policy.Limits{Total: new(uint(1))},
		}}).batches(handle)
		defer b.Close()
		opens := batchOf(5)
		for i, batch := range [][]Intent{opens[:3], opens[3:]} {
			got, err := b.Handle(t.Context(), batch)
			expect.Must(t, err)
			var want []string
			var said []string
			for j, v := range got {
				said = append(said, string(v.Outcome)+" "+v.Message)
				want = append(want, "evicted "+batch[j].ID)
			}
			expect.Equal(t, fmt.Sprintf("verdicts of batch %d", i), said, want)
		}
		want := []time.Duration{0, 0, 100 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond}
		expect.Equal(t, "moves after", after, want)
	})
}

func TestWaitingBatchCancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handle := always(schemas.Evicted, schemas.ReasonEvictionAccepted, 0)
		b := New(Config{Policy: policy.Policy{Rate: policy.Rate{EvictionsPerSecond: 1, Burst: 1}}}).batches(handle)
		defer b.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
		defer cancel()
		began := time.Now()
		got, err := b.Handle(ctx, batchOf(2))
		said := []string{string(got[0].Outcome), string(got[1].Outcome) + " " + string(got[1].Reason)}
		expect.Equal(t, "verdicts", said, []string{"evicted", "deferred APIUnavailable"})
		if waited := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || waited != 400*time.Millisecond {
			t.Errorf("error %v after %v", err, waited)
		}
	})
}

// A later batch of the same scope must not cancel moves of an earlier one.
func TestBatchesKeepMovesInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &stepped{delay: time.Second, began: time.Now()}
		a := New(Config{Policy: fast, View: webPods("uid-1", "uid-2")})
		a.background = m
		b := a.batches(stepping)
		all := batchOf(2)
		for i := range all {
			if _, err := b.Handle(t.Context(), all[i:i+1]); err != nil {
				t.Fatal(err)
			}
			time.Sleep(1500 * time.Millisecond)
		}
		m.mu.Lock()
		for _, call := range m.calls {
			if strings.HasPrefix(call, "cancel") {
				t.Errorf("calls %q, want no cancel", m.calls)
			}
		}
		m.mu.Unlock()
		b.Close()
	})
}

// An invalid intent must neither end the session nor hold up intents of other scopes.
func TestBatchesInvalidIntent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Config{Policy: fast}).batches(always(schemas.Evicted, schemas.ReasonEvictionAccepted, 0))
		defer b.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		handle := func(batch []Intent) (said []string) {
			got, err := b.Handle(ctx, batch)
			expect.Must(t, err)
			for _, v := range got {
				_, message, _ := strings.Cut(v.Message, "invalid event: ")
				said = append(said, fmt.Sprint(v.Outcome, " ", v.Reason, " ", message))
			}
			return said
		}
		all := batchOf(5)
		all[0].Scope.Key = "worker-2" // but its node is worker-1
		all[2].Intent = all[1].Intent
		all[1].Strategy, all[2].Strategy = "T", "T"
		const twice, evicted = "failed Invalid intents[1] has a duplicate id, intent-2", "evicted EvictionAccepted "
		expect.Equal(t, "verdicts", handle(all[:4]), []string{
			"failed Invalid intents[0].node is worker-1, but the scope is node worker-2", twice, twice, evicted,
		})
		expect.Equal(t, "verdicts of the next batch", handle(all[4:]), []string{evicted})
	})
}
