package bus_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

func TestClusterLosesLeader(t *testing.T) {
	t.Parallel()
	servers := bustest.Cluster(t, 3)
	b := servers.Connect(t, "tester")
	bustest.SetUp(t, b, bus.Setup{Strategies: []string{strategy}, Replicas: 3})
	events, answers := bustest.Collect(t, b, bustest.DeltaChannels), follow(t, b)
	var mu sync.Mutex
	handled := make(map[string]bool)
	expect.Background(t, func(ctx context.Context) error {
		return b.Work(ctx, bus.Work{Strategy: strategy, RetryAfter: 10 * time.Millisecond},
			func(_ context.Context, e schemas.Event) error {
				mu.Lock()
				defer mu.Unlock()
				handled[e.ID] = true
				return nil
			})
	})
	try := func(what string, f func() error) {
		t.Helper()
		var err error
		expect.Eventually(t, what, func() bool {
			if err = f(); err != nil {
				t.Log(err)
			}
			return err == nil
		})
	}
	round := func(n int) {
		t.Helper()
		d, s := bustest.Delta(t, fmt.Sprint("node-", n)), scope(t, fmt.Sprint("node-", n), 1)
		try("a delta is stored", func() error { _, err := b.Publish(t.Context(), d); return err })
		try("a scope is stored", func() error { _, err := b.Publish(t.Context(), s); return err })
		e, a := answer(t, fmt.Sprint("node-", n), 1, "pod-1")
		try("an answer is stored", func() error { return b.Answer(t.Context(), e, a) })
		if got := events.Next(t); got.ID != d.ID {
			t.Errorf("round %d: got the event %s about %s, want %s about %s", n, got.ID, got.Subject, d.ID, d.Subject)
		}
		expect.Eventually(t, "the scope is handled", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return handled[s.ID]
		})
		for id := ""; id != e.ID; { // earlier ones may come again
			got := next(t, answers)
			got.end <- nil
			id = got.event.ID
		}
	}
	round(0)
	for i, stream := range []string{bus.StreamScopes, bus.StreamIntents, bus.StreamEvents} {
		leader := servers.StreamLeader(t, stream)
		servers.Stop(leader)
		began := time.Now()
		round(2*i + 1)
		t.Logf("without the leader of %s, one event of each kind went through after %v", stream, time.Since(began))
		servers.Start(t, leader)
		round(2*i + 2)
	}
	got := bustest.IDs(t, b, bus.Query{Channels: []string{bustest.DeltaChannels}})
	if slices.Sort(got); len(slices.Compact(got)) != 7 {
		t.Errorf("the history has %d deltas, want 7", len(got))
	}
}
