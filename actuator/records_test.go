package actuator

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator/limit"
	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// loopOf returns a workload circuit breaker of Deployment web/api on a node.
func loopOf(node string, returns int, until time.Time) WorkloadBreaker {
	return WorkloadBreaker{
		BreakerKey:    limit.BreakerKey{Workload: api.UID, Strategy: "A", Node: node},
		BreakerRecord: limit.BreakerRecord{Returns: returns, Returned: noon, Last: noon, Name: &api}, Until: until,
	}
}

func TestReadableRecords(t *testing.T) {
	flying := func(uid types.UID, method schemas.Method, change func(*record)) record {
		r := before(uid, time.Second)
		r.Settled, r.Method = false, method
		change(&r)
		return r
	}
	for _, c := range []struct {
		name string
		r    record
		want string
	}{
		{"a move that is settled", before("1", time.Second), ""},
		{"a requested eviction", flying("1", schemas.MethodEviction, func(r *record) { r.Moved = time.Time{} }), "the API server"},
		{"an eviction that is accepted", flying("1", schemas.MethodEviction, func(*record) {}), "a replacement that is ready"},
		{"one of a pod without a workload", flying("1", schemas.MethodEviction, func(r *record) { r.Workload = nil }), "the pod to be gone"},
		{"a restart", flying("1", schemas.MethodRestart, func(r *record) { r.State = move.State(`{}`) }), "the replacement that comes first"},
		{"one replica more", flying("1", schemas.MethodSurge, func(r *record) { r.State = move.State(`{}`) }), "the replacement that comes first"},
		{"a restart that is done", flying("1", schemas.MethodRestart, func(*record) {}), "a replacement that is ready"},
		{"a webhook", flying("1", schemas.MethodBackground, func(r *record) { r.State = move.State(`{}`) }), "the webhook that took over the eviction"},
		{"a request", flying("1", schemas.MethodEvictionRequest, func(r *record) { r.State = move.State(`{}`) }), "an answer to the EvictionRequest"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, bad := ReadLedger(remembering(t, map[string]any{c.r.key(): c.r}).ledger)
			i := c.r.Intent.Intent
			expect.Equal(t, "remembered", got, Remembered{Moves: []Move{{
				Pod: i.Pod, Node: "worker-1", Workload: c.r.Workload, Profile: "default", Strategy: "A", Intent: "A-1.1",
				Method: c.r.Method, Begun: noon.Add(-time.Second), Moved: c.r.Moved, WaitsFor: c.want,
			}}})
			expect.Equal(t, "in flight", got.Moves[0].InFlight(), c.want != "")
			expect.Equal(t, "errors", bad, nil)
		})
	}
}

func TestReadLedgerSortsAndReports(t *testing.T) {
	a, b, none := loopOf("worker-1", 1, noon), loopOf("worker-2", 3, noon), loopOf("worker-3", 0, time.Time{})
	storm := []StormCondition{{Reason: schemas.ReasonStormNodes, Message: "7 of 9", Since: noon}}
	m := remembering(t, map[string]any{
		"move.2": before("2", time.Second), "move.1": before("1", time.Minute), loopKey(b.BreakerKey): b, loopKey(a.BreakerKey): a,
		loopKey(none.BreakerKey): none, keyStorm: stormRecord{storm}, "move.3": "?", "loop.x": "?",
	})
	m.ledger["clear.all"] = ClearValue(noon)
	got, bad := ReadLedger(m.ledger)
	first, second := before("1", time.Minute), before("2", time.Second)
	expect.Equal(t, "remembered", got, Remembered{Moves: []Move{first.move(), second.move()}, Loops: []WorkloadBreaker{a, b}, Storm: storm})
	var messages []string
	for _, err := range bad {
		messages = append(messages, err.Error())
		if _, ok := errors.AsType[*json.UnmarshalTypeError](err); !ok {
			t.Errorf("%v does not wrap what is wrong", err)
		}
	}
	expect.Equal(t, "errors", len(messages), 2)
	expect.Equal(t, "keys", []string{messages[0][:20], messages[1][:20]}, []string{"ledger record loop.x", "ledger record move.3"})
}

// leading returns an actuator that leads with the ledger of m until stop.
func leading(t *testing.T, m *memory, p policy.Policy, v View) (a *Actuator, stop func()) {
	t.Helper()
	a = New(Config{Bus: m, Ledger: m, Source: "/test/actuator", Policy: p, View: v, Log: slog.New(slog.DiscardHandler)})
	return a, leads(t, a, always(schemas.Evicted, schemas.ReasonEvictionAccepted, 0))
}

// leads runs Lead of a until stop.
func leads(t *testing.T, a *Actuator, handle executeFunc) (stop func()) {
	t.Helper()
	if a.cfg.Client == nil && a.follows {
		a.cfg.Client = noPods.client(t)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.lead(ctx, handle) }()
	synctest.Wait()
	return func() {
		cancel()
		expect.Equal(t, "error of Lead", <-ended, nil)
	}
}

// remembers returns the readable content of the ledger of m.
func (m *memory) remembers(t *testing.T) Remembered {
	t.Helper()
	synctest.Wait()
	entries, err := m.Entries(t.Context())
	expect.Must(t, err)
	got, bad := ReadLedger(entries)
	expect.Equal(t, "entries that cannot be read", bad, nil)
	return got
}

func TestLedgerHasOpenClusterBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		m := remembering(t, map[string]any{keyStorm: stormRecord{[]StormCondition{{Reason: schemas.ReasonStormPending, Message: "old", Since: start}}}})
		bad := &given{nodes: []cluster.Node{{Name: "a"}, {Name: "b"}, {Name: "c"}}}
		a, stop := leading(t, m, policy.Policy{CircuitBreakers: policy.DefaultCircuitBreakers()}, bad)
		open := []StormCondition{{
			Reason: schemas.ReasonStormNodes, Since: start.UTC(),
			Message: "3 of 3 nodes went bad: 3 not ready, 0 tainted within 10m0s; moves stop at 30 percent",
		}}
		expect.Equal(t, "ledger while the breaker is open", m.remembers(t), Remembered{Storm: open})

		time.Sleep(time.Minute)
		a.Changed(cluster.Change{Node: "a"})
		expect.Equal(t, "ledger a minute later", m.remembers(t), Remembered{Storm: open})

		term := a.session.Load()
		term.mu.Lock()
		for i := range bad.nodes {
			bad.nodes[i].Ready = true
		}
		term.mu.Unlock()
		a.Changed(cluster.Change{Node: "a"})
		expect.Equal(t, "ledger when the breaker is closed", m.remembers(t), Remembered{})
		expect.Equal(t, "keys", len(m.ledger), 0)
		stop()
	})
}

func TestNewLeaderForgetsEndedStorm(t *testing.T) {
	m := remembering(t, map[string]any{keyStorm: stormRecord{[]StormCondition{{Reason: schemas.ReasonStormPending, Message: "old", Since: noon}}}})
	recalled(t, m, policy.Policy{CircuitBreakers: policy.DefaultCircuitBreakers()})
	expect.Equal(t, "ledger", m.ledger, map[string][]byte{})
}

// TestClearRequiresTime stores the reply of a server to an unauthenticated client under the key that clears
// all breakers.
func TestClearRequiresTime(t *testing.T) {
	acknowledged := []byte(`{"stream":"REHOME_REQUESTS","seq":1}`)
	for _, when := range []string{"while it leads", "before it leads"} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := remembering(t, map[string]any{loopKey(loopOf("worker-1", 1, noon).BreakerKey): loopOf("worker-1", 1, time.Now())})
				if when == "before it leads" {
					m.ledger[ClearKey("")] = acknowledged
				}
				_, stop := leading(t, m, policy.Policy{CircuitBreakers: policy.DefaultCircuitBreakers()}, nil)
				if when == "while it leads" {
					expect.Must(t, m.Put(t.Context(), ClearKey(""), acknowledged))
				}
				synctest.Wait()
				entries, _ := m.Entries(t.Context())
				got, bad := ReadLedger(entries)
				expect.Equal(t, "loop breakers that are left", len(got.Loops), 1)
				expect.Equal(t, "records that are set aside", len(bad), 0)
				_, left := entries[ClearKey("")]
				expect.Equal(t, "the request is left", left, false)
				stop()
			})
		})
	}
}

func TestClearWorkloadBreakers(t *testing.T) {
	other := schemas.ObjectRef{Kind: "StatefulSet", Namespace: "web", Name: "db", UID: "uid-db"}
	for _, c := range []struct {
		name string
		key  string
		left []string
	}{
		{"breakers of one workload", ClearKey(api.UID), []string{"statefulset/web/db"}},
		{"those of all", ClearKey(""), nil},
		{"a workload without breakers", ClearKey("uid-none"), []string{"deployment/web/api", "deployment/web/api", "statefulset/web/db"}},
	} {
		for _, when := range []string{"while it leads", "before it leads", "too long before it leads"} {
			t.Run(c.name+" "+when, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := newMemory()
					for _, l := range []WorkloadBreaker{loopOf("worker-1", 1, noon), loopOf("worker-2", 1, noon), loopOf("worker-1", 1, noon)} {
						if len(m.ledger) == 2 {
							l.Name, l.Workload = &other, other.UID
						}
						l.Returned, l.Last = time.Now(), time.Now()
						b := expect.ToJSON(t, l)
						m.ledger[loopKey(l.BreakerKey)] = b
					}
					want := c.left
					switch when {
					case "before it leads":
						m.ledger[c.key] = ClearValue(time.Now().Add(-clearFor))
					case "too long before it leads":
						m.ledger[c.key] = ClearValue(time.Now().Add(-clearFor - time.Second))
						want = []string{"deployment/web/api", "deployment/web/api", "statefulset/web/db"}
					}
					_, stop := leading(t, m, policy.Policy{CircuitBreakers: policy.DefaultCircuitBreakers()}, nil)
					if when == "while it leads" {
						expect.Equal(t, "workload circuit breakers before", len(m.remembers(t).Loops), 3)
						expect.Must(t, m.Put(t.Context(), c.key, ClearValue(time.Now())))
					}
					var left []string
					for _, l := range m.remembers(t).Loops {
						left = append(left, l.Name.String())
					}
					expect.Equal(t, "workload circuit breakers that are left", left, want)
					expect.Equal(t, "keys", len(m.ledger), len(want))
					stop()
				})
			})
		}
	}
}

func TestWorkloadBreakerRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		m := newMemory()
		l := loopOf("worker-1", 1, time.Time{})
		l.Returned, l.Last, l.Away = start, start, true
		b := expect.ToJSON(t, l)
		m.ledger[loopKey(l.BreakerKey)] = b
		a, stop := leading(t, m, policy.Policy{CircuitBreakers: policy.DefaultCircuitBreakers()}, nil)

		p := policy.Policy{CircuitBreakers: policy.DefaultCircuitBreakers()}
		p.CircuitBreakers.Workload.Delay = time.Minute
		a.SetPolicy(p)
		got := m.remembers(t).Loops
		if len(got) != 1 {
			t.Fatalf("got %d workload circuit breakers, want 1", len(got))
		}
		expect.Equal(t, "name", got[0].Name, &api)
		expect.Equal(t, "holds for", got[0].Until.Sub(start), time.Minute)

		term := a.session.Load()
		x := &inFlight{record: before("1", 0), at: limitKeys{"worker-1", "web", api.UID}}
		term.mu.Lock()
		term.recordLanding(x, ended{settlement: schemas.Settlement{Node: "worker-1"}}, start)
		term.mu.Unlock()
		got = m.remembers(t).Loops
		expect.Equal(t, "returns", got[0].Returns, 2)
		expect.Equal(t, "name after another return", got[0].Name, &api)
		expect.Equal(t, "holds for, after another return", got[0].Until.Sub(start), 2*time.Minute)
		stop()
	})
}

func TestWorkloadBreakerStrategies(t *testing.T) {
	known := map[string]policy.Traits{"Move": {}, "Renewal": {RenewsPods: true}}
	for strategy, want := range map[string]int{"Move": 1, "Renewal": 0, schemas.MaintenanceStrategy: 0} {
		t.Run(strategy, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMemory()
				a, stop := leading(t, m, policy.Policy{CircuitBreakers: policy.DefaultCircuitBreakers(), Known: known}, nil)
				term := a.session.Load()
				x := &inFlight{record: before("1", 0), at: limitKeys{"worker-1", "web", api.UID}}
				x.Intent.Strategy = strategy
				term.mu.Lock()
				term.movedOff(x, time.Now())
				term.recordLanding(x, ended{settlement: schemas.Settlement{Node: "worker-1"}}, time.Now())
				term.mu.Unlock()
				expect.Equal(t, "workload circuit breakers", len(m.remembers(t).Loops), want)
				stop()
			})
		})
	}
}

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
