package actuator

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator/limit"
	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/expect"
)

// webPods returns a view of pods of Deployment web/api with these UIDs.
func webPods(uids ...types.UID) given {
	g := given{pods: map[types.UID]cluster.Pod{}, tallies: map[types.UID]cluster.Tally{"uid-api": {Wanted: len(uids), Ready: len(uids)}}}
	for _, uid := range uids {
		p := replica(string(uid), "worker-1", 0)
		p.Ref.UID, p.Budgeted = uid, true
		g.pods[uid], g.order = p, append(g.order, uid)
	}
	return g
}

// remembering returns a bus whose ledger has these values.
func remembering(t *testing.T, entries map[string]any) *memory {
	t.Helper()
	m := newMemory()
	for key, value := range entries {
		b := expect.ToJSON(t, value)
		m.ledger[key] = b
	}
	return m
}

// recalled returns a session that has recovered from the ledger at noon and stored its consequences.
func recalled(t *testing.T, m *memory, p policy.Policy) *session {
	t.Helper()
	a := New(Config{
		Bus: m, Ledger: m, Source: "/test/actuator", Policy: p, View: webPods("1", "2"),
		Now: func() time.Time { return noon }, Log: slog.New(slog.DiscardHandler),
	})
	events, closeEvents := a.startEvents()
	defer closeEvents()
	tm := newSession(t.Context(), func() bool { return false }, a, nil, events)
	if err := tm.recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	tm.publishing.Wait()
	tm.ledgerWrites.queue.ShutDown()
	tm.ledgerWrites.run()
	tm.queues.shutDown()
	return tm
}

// before returns the record of a settled move of the pod with that UID, accepted that long before noon.
func before(uid types.UID, ago time.Duration) record {
	_, e := answerTo("A", 1, uid)
	a, _ := answerTo("A", 1, uid)
	return record{
		Intent: intentOf(a, a.Intents[0], e), Method: schemas.MethodEviction, Workload: &api,
		Begun: noon.Add(-ago), Moved: noon.Add(-ago), Settled: true,
	}
}

func TestNoPauseAfterRejection(t *testing.T) {
	cfg := Config{View: webPods("1", "2"), Policy: policy.Policy{Rate: fast.Rate, Limits: policy.Limits{Pause: time.Hour}}}
	handle := func(_ context.Context, o Intent, _ saveFunc) (schemas.Verdict, error) {
		if o.Intent.Pod.UID == "1" {
			return o.Verdict(schemas.Rejected, schemas.ReasonProtected, ""), nil
		}
		return o.Verdict(schemas.Evicted, schemas.ReasonEvictionAccepted, ""), nil
	}
	inBubble(t, cfg, handle, func(t *testing.T, b *bench) {
		b.put("A", 1, "1", "2")
		time.Sleep(2 * time.Minute)
		expect.Equal(t, "verdicts", b.bus.heard(t, b.start), []heard{
			{"A-1.1", schemas.ReasonProtected, 0}, {"A-1.2", schemas.ReasonEvictionAccepted, 0},
		})
	})
}

func TestRecalledPauses(t *testing.T) {
	for _, c := range []struct {
		name  string
		pause time.Duration
		want  map[types.UID]time.Time
	}{
		{"as long as it lasts", time.Hour, map[types.UID]time.Time{"uid-api": noon.Add(-30 * time.Minute)}},
		{"and no longer", 30 * time.Minute, map[types.UID]time.Time{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := before("1", 30*time.Minute)
			m := remembering(t, map[string]any{r.key(): r})
			tm := recalled(t, m, policy.Policy{Limits: policy.Limits{Pause: c.pause}})
			expect.Equal(t, "the latest moves", tm.moves.last, c.want)
		})
	}
}

func TestDisabledWorkloadBreakerClearsLedger(t *testing.T) {
	k := limit.BreakerKey{Workload: "uid-api", Strategy: "A", Node: "worker-1"}
	l := WorkloadBreaker{BreakerKey: k, BreakerRecord: limit.BreakerRecord{Returns: 1, Returned: noon, Last: noon}}
	t.Run("in the next process", func(t *testing.T) {
		m := remembering(t, map[string]any{loopKey(k): l})
		recalled(t, m, policy.Policy{})
		expect.Equal(t, "ledger", m.ledger, map[string][]byte{})
	})
	t.Run("while it runs", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := remembering(t, map[string]any{loopKey(k): WorkloadBreaker{BreakerKey: k, BreakerRecord: limit.BreakerRecord{Returns: 1, Returned: time.Now(), Last: time.Now()}}})
			a := New(Config{Bus: m, Ledger: m, Source: "/test/actuator", Policy: policy.Policy{CircuitBreakers: policy.DefaultCircuitBreakers()},
				Log: slog.New(slog.DiscardHandler)})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- a.lead(ctx, nil) }()
			synctest.Wait()
			expect.Equal(t, "entries before", len(m.ledger), 1)
			a.SetPolicy(policy.Policy{})
			synctest.Wait()
			expect.Equal(t, "ledger", m.ledger, map[string][]byte{})
			cancel()
			expect.Equal(t, "error", <-ended, nil)
		})
	})
}
