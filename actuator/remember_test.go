package actuator

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator/limit"
	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
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
	expect.Must(t, tm.recover(t.Context()))
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
			end := leads(t, a, nil)
			expect.Equal(t, "entries before", len(m.ledger), 1)
			a.SetPolicy(policy.Policy{})
			synctest.Wait()
			expect.Equal(t, "ledger", m.ledger, map[string][]byte{})
			end()
		})
	})
}
