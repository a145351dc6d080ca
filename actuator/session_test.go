package actuator

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/metricstest"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// memory is a bus in memory: a table of answers by channel, and everything that was published.
type memory struct {
	mu        sync.Mutex
	sequence  uint64
	table     map[string]schemas.Event
	published []schemas.Event // verdicts
	stored    []schemas.Event // answers and verdicts, in order
	dead      []error
	ledger    map[string][]byte
	noted     []string      // the keys of the ledger that were put, in order
	refuse    error         // of everything that stores
	changed   chan struct{} // closed and replaced at every change
}

func newMemory() *memory {
	return &memory{table: map[string]schemas.Event{}, ledger: map[string][]byte{}, changed: make(chan struct{})}
}

// change announces a change. The caller holds mu.
func (m *memory) change() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// await waits until done returns true. done is called with mu held.
func (m *memory) await(ctx context.Context, done func() bool) error {
	for {
		m.mu.Lock()
		ok, changed := done(), m.changed
		m.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// put stores answers so fast that no reader can see one before the next is stored. Like the bus, it stores an answer
// without intents only over another one.
func (m *memory) put(answers ...schemas.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range answers {
		a, err := schemas.Decode[schemas.Intents](e)
		if _, answered := m.table[e.Channel]; err == nil && len(a.Intents) == 0 && !answered {
			continue
		}
		m.sequence++
		e.Sequence = m.sequence
		m.table[e.Channel] = e
		m.stored = append(m.stored, e)
	}
	m.change()
}

func (m *memory) FollowIntents(ctx context.Context, handle func(context.Context, schemas.Event) error) error {
	var seen uint64
	var fresh []schemas.Event
	for m.await(ctx, func() bool { fresh = m.after(seen); return len(fresh) > 0 }) == nil {
		for _, e := range fresh {
			seen = e.Sequence
			if err := handle(ctx, e); err != nil {
				m.mu.Lock()
				m.dead = append(m.dead, err)
				m.mu.Unlock()
			}
		}
	}
	return nil
}

// after returns the events that were added to the table after seen, in order. The caller holds mu.
func (m *memory) after(seen uint64) []schemas.Event {
	var out []schemas.Event
	for _, e := range m.table {
		if e.Sequence > seen {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b schemas.Event) int { return cmp.Compare(a.Sequence, b.Sequence) })
	return out
}

func (m *memory) DropIntents(_ context.Context, answer schemas.Event) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refuse == nil && m.table[answer.Channel].Sequence == answer.Sequence {
		delete(m.table, answer.Channel)
		m.change()
	}
	return m.refuse
}

func (m *memory) Publish(_ context.Context, e schemas.Event) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refuse != nil {
		return 0, m.refuse
	}
	m.sequence++
	m.published = append(m.published, e)
	m.stored = append(m.stored, e)
	m.change()
	return m.sequence, nil
}

func (m *memory) Entries(context.Context) (map[string][]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.ledger), m.refuse
}

func (m *memory) Put(_ context.Context, key string, value []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refuse == nil {
		m.ledger[key] = value
		m.noted = append(m.noted, key)
		m.change()
	}
	return m.refuse
}

func (m *memory) Delete(_ context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refuse == nil {
		delete(m.ledger, key)
	}
	return m.refuse
}

func (m *memory) Follow(ctx context.Context, prefix string, handle func(string, []byte)) error {
	m.mu.Lock()
	seen := len(m.noted)
	m.mu.Unlock()
	for m.await(ctx, func() bool { return len(m.noted) > seen }) == nil {
		m.mu.Lock()
		fresh, values := m.noted[seen:], maps.Clone(m.ledger)
		seen = len(m.noted)
		m.mu.Unlock()
		for _, key := range fresh {
			if strings.HasPrefix(key, prefix) {
				handle(key, values[key])
			}
		}
	}
	return nil
}

func (m *memory) setRefuse(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refuse = err
}

// left returns the number of answers in the table.
func (m *memory) left() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.table)
}

// heard is a stored verdict: intent ID, outcome, and time after the start. Verdicts of one moment are sorted by ID,
// because executions run in parallel.
type heard struct {
	ID     string
	Reason schemas.ReasonCode
	After  time.Duration
}

func (m *memory) heard(t testing.TB, start time.Time) []heard {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []heard
	for _, e := range m.published {
		v := schematest.Decode[schemas.Verdict](t, e)
		out = append(out, heard{v.Intent.ID, v.Reason, e.Time.Sub(start)})
	}
	slices.SortFunc(out, func(a, b heard) int {
		return cmp.Or(cmp.Compare(a.After, b.After), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// messages returns the messages of the stored verdicts, in order.
func (m *memory) messages(t *testing.T) []string {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for _, e := range m.published {
		v := schematest.Decode[schemas.Verdict](t, e)
		out = append(out, v.Message)
	}
	return out
}

// again returns the retry times of the verdicts after start, or 0.
func (m *memory) again(t *testing.T, start time.Time) []time.Duration {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []time.Duration
	for _, e := range m.published {
		v := schematest.Decode[schemas.Verdict](t, e)
		if v.Again.IsZero() {
			out = append(out, 0)
			continue
		}
		out = append(out, v.Again.Sub(start))
	}
	return out
}

// bench is an actuator in a bubble of fake time whose verdicts come from handle.
type bench struct {
	*Actuator
	bus   *memory
	start time.Time
	log   *bytes.Buffer // to be read after stop
	stop  func()
}

// put stores an answer of strategy whose intents expire ten minutes after the start.
func (b *bench) put(strategy string, sequence uint64, uids ...types.UID) {
	b.putOn("worker-1", strategy, sequence, uids...)
}

// putOn is put for pods of another node.
func (b *bench) putOn(node, strategy string, sequence uint64, uids ...types.UID) {
	b.bus.put(b.answer(node, strategy, sequence, uids...))
}

// answer returns the event of an answer.
func (b *bench) answer(node, strategy string, sequence uint64, uids ...types.UID) schemas.Event {
	a, _ := answerTo(strategy, sequence, uids...)
	a.Scope.Since, a.Scope.Key = b.start, node
	for i := range a.Intents {
		a.Intents[i].Node = node
		a.Intents[i].Expires = b.start.Add(10 * time.Minute)
	}
	e, err := schemas.NewEvent("/test", a, b.start, schemas.Event{})
	if err != nil {
		panic(err)
	}
	return e
}

// inBubble runs a script while an actuator leads. A nil handle means the real execution.
func inBubble(t *testing.T, cfg Config, handle executeFunc, script func(*testing.T, *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{bus: newMemory(), start: time.Now(), log: &bytes.Buffer{}}
		cfg.Bus, cfg.Ledger, cfg.Source = b.bus, b.bus, "/test/actuator"
		cfg.Log = slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		if cfg.Client == nil {
			cfg.Client = noPods.client(t)
		}
		b.Actuator = New(cfg)
		if handle == nil {
			handle = b.execute
		}
		b.stop = sync.OnceFunc(leads(t, b.Actuator, handle))
		defer b.stop()
		script(t, b)
	})
}

// fast is a policy that never delays a move.
var fast = policy.Policy{Rate: policy.Rate{EvictionsPerSecond: 1000, Burst: 1000}}

// always returns an API server that gives every intent the same outcome after some time.
func always(outcome schemas.Outcome, reason schemas.ReasonCode, after time.Duration) executeFunc {
	return func(_ context.Context, o Intent, _ saveFunc) (schemas.Verdict, error) {
		time.Sleep(after)
		return o.Verdict(outcome, reason, ""), nil
	}
}

// unsaved is for executions without a ledger.
func unsaved(context.Context, record) error { return nil }

const ms = time.Millisecond

func TestRejectionCostsNoToken(t *testing.T) {
	cfg := Config{Policy: policy.Policy{Rate: policy.Rate{EvictionsPerSecond: 0.1, Burst: 1}}}
	handle := func(_ context.Context, o Intent, _ saveFunc) (schemas.Verdict, error) {
		if o.Strategy == "Stale" {
			return o.Verdict(schemas.Rejected, schemas.ReasonPodGone, ""), nil
		}
		return o.Verdict(schemas.Evicted, schemas.ReasonEvictionAccepted, ""), nil
	}
	inBubble(t, cfg, handle, func(t *testing.T, b *bench) {
		b.put("Stale", 1, "1", "2", "3")
		synctest.Wait()
		b.put("True", 2, "4", "5")
		time.Sleep(time.Minute)
		expect.Equal(t, "verdicts", b.bus.heard(t, b.start), []heard{
			{"Stale-1.1", schemas.ReasonPodGone, 0},
			{"Stale-1.2", schemas.ReasonPodGone, 0},
			{"Stale-1.3", schemas.ReasonPodGone, 0},
			{"True-2.4", schemas.ReasonEvictionAccepted, 0},
			{"True-2.5", schemas.ReasonEvictionAccepted, 10 * time.Second},
		})
	})
}

func TestParallelIntentLimit(t *testing.T) {
	cfg := Config{Policy: fast, Parallel: 2}
	inBubble(t, cfg, always(schemas.Evicted, schemas.ReasonEvictionAccepted, time.Second), func(t *testing.T, b *bench) {
		b.put("A", 1, "1", "2", "3", "4", "5")
		time.Sleep(time.Minute)
		got := b.bus.heard(t, b.start)
		ok := schemas.ReasonEvictionAccepted
		expect.Equal(t, "verdicts", got, []heard{
			{"A-1.1", ok, time.Second}, {"A-1.2", ok, time.Second},
			{"A-1.3", ok, 2 * time.Second}, {"A-1.4", ok, 2 * time.Second}, {"A-1.5", ok, 3 * time.Second},
		})
	})
}

func TestWaitingIntentExpiry(t *testing.T) {
	cfg := Config{Policy: policy.Policy{Rate: policy.Rate{EvictionsPerSecond: 0.001, Burst: 1}}}
	inBubble(t, cfg, always(schemas.Evicted, schemas.ReasonEvictionAccepted, 0), func(t *testing.T, b *bench) {
		b.put("A", 1, "1", "2")
		time.Sleep(11 * time.Minute)
		expect.Equal(t, "verdicts", b.bus.heard(t, b.start), []heard{
			{"A-1.1", schemas.ReasonEvictionAccepted, 0},
			{"A-1.2", schemas.ReasonExpired, 10 * time.Minute},
		})
		expect.Equal(t, "answers left in the table", b.bus.left(), 0)
	})
}

func TestImmediateWithdrawalVerdict(t *testing.T) {
	cfg := Config{Policy: policy.Policy{Rate: policy.Rate{EvictionsPerSecond: 0.01, Burst: 1}}}
	inBubble(t, cfg, always(schemas.Evicted, schemas.ReasonEvictionAccepted, 0), func(t *testing.T, b *bench) {
		b.put("A", 1, "1", "2", "3")
		time.Sleep(time.Second)
		b.put("A", 2, "3")
		time.Sleep(time.Second)
		expect.Equal(t, "verdicts", b.bus.heard(t, b.start), []heard{
			{"A-1.1", schemas.ReasonEvictionAccepted, 0},
			{"A-1.2", schemas.ReasonSuperseded, time.Second},
		})
	})
}

func TestAPIServerOutage(t *testing.T) {
	const outage = 30 * time.Second
	var mu sync.Mutex
	running, most, tries := 0, 0, 0
	back := time.Now()
	handle := func(_ context.Context, o Intent, _ saveFunc) (schemas.Verdict, error) {
		mu.Lock()
		running++
		defer func() { running--; mu.Unlock() }()
		if time.Now().Before(back) {
			tries++
			if tries > 3 { // the first three fail together
				most = max(most, running)
			}
			mu.Unlock()
			time.Sleep(10 * ms)
			mu.Lock()
			return schemas.Verdict{}, fmt.Errorf("look at pod %s: %w", o.Pod, ErrUnavailable)
		}
		return o.Verdict(schemas.Evicted, schemas.ReasonEvictionAccepted, ""), nil
	}
	inBubble(t, Config{Policy: fast}, handle, func(t *testing.T, b *bench) {
		back = b.start.Add(outage)
		expect.Equal(t, "readiness before", b.Ready(), nil)
		b.put("A", 1, "1", "2", "3")
		time.Sleep(time.Second)
		if err := b.Ready(); !errors.Is(err, ErrUnavailable) {
			t.Errorf("readiness in the outage: %v, want an error that wraps ErrUnavailable", err)
		}
		b.put("A", 2, "1", "3") // a withdrawal is possible in an outage
		time.Sleep(time.Minute)
		expect.Equal(t, "readiness after", b.Ready(), nil)

		got := map[string]schemas.ReasonCode{}
		for _, h := range b.bus.heard(t, b.start) {
			got[h.ID] = h.Reason
			if h.Reason == schemas.ReasonEvictionAccepted && (h.After < outage || h.After > outage+maxBackoff+20*ms) {
				t.Errorf("%s was evicted %v after the start, want within %v of %v", h.ID, h.After, maxBackoff, outage)
			}
		}
		expect.Equal(t, "verdicts", got, map[string]schemas.ReasonCode{
			"A-1.1": schemas.ReasonEvictionAccepted, "A-1.3": schemas.ReasonEvictionAccepted, "A-1.2": schemas.ReasonSuperseded,
		})
		b.stop()
		expect.Equal(t, "tries at once in the outage", most, 1)
		if tries < 3+int(outage/maxBackoff)-1 || tries > 30 {
			t.Errorf("the API server was tried %d times in %v", tries, outage)
		}
		expect.Equal(t, "warnings", bytes.Count(b.log.Bytes(), []byte("level=WARN")), 1)
	})
}

func TestUnansweredCallKeepsOutage(t *testing.T) {
	handle := func(_ context.Context, o Intent, _ saveFunc) (schemas.Verdict, error) {
		if o.Pod.UID == "1" {
			return schemas.Verdict{}, fmt.Errorf("look at pod %s: %w", o.Pod, ErrUnavailable)
		}
		return o.Verdict(schemas.Deferred, schemas.ReasonAPIUnavailable, ""), nil
	}
	inBubble(t, Config{Policy: fast, Parallel: 1}, handle, func(t *testing.T, b *bench) {
		b.put("A", 1, "1", "2")
		time.Sleep(110 * ms)
		expect.Equal(t, "deferred", len(b.bus.heard(t, b.start)), 1)
		b.stop()
		expect.Equal(t, "outages in the log", bytes.Count(b.log.Bytes(), []byte("level=WARN")), 1)
	})
}

func TestUnreadablePodIsolation(t *testing.T) {
	handle := func(_ context.Context, o Intent, _ saveFunc) (schemas.Verdict, error) {
		if o.Pod.UID == "1" {
			return schemas.Verdict{}, fmt.Errorf("look at pod %s: %w", o.Pod, ErrUnavailable)
		}
		return o.Verdict(schemas.Evicted, schemas.ReasonEvictionAccepted, ""), nil
	}
	inBubble(t, Config{Policy: fast, Parallel: 1}, handle, func(t *testing.T, b *bench) {
		b.put("A", 1, "1", "2")
		time.Sleep(maxBackoff)
		b.put("B", 2, "3")
		time.Sleep(2 * maxBackoff)
		var ids []string
		for _, h := range b.bus.heard(t, b.start) {
			ids = append(ids, h.ID)
		}
		expect.Equal(t, "verdicts", ids, []string{"A-1.2", "B-2.3"})
		time.Sleep(10 * time.Minute)
		got := b.bus.heard(t, b.start)
		expect.Equal(t, "last verdict", got[len(got)-1], heard{"A-1.1", schemas.ReasonExpired, 10 * time.Minute})
	})
}

func TestLeadShutdown(t *testing.T) {
	handle := func(ctx context.Context, o Intent, _ saveFunc) (schemas.Verdict, error) {
		if o.Pod.UID == "2" { // not evicted yet when ctx ends
			<-ctx.Done()
			return schemas.Verdict{}, ctx.Err()
		}
		time.Sleep(time.Second)
		return o.Verdict(schemas.Evicted, schemas.ReasonEvictionAccepted, ""), nil
	}
	inBubble(t, Config{Policy: fast, Parallel: 2}, handle, func(t *testing.T, b *bench) {
		b.put("A", 1, "1", "2", "3")
		b.put("B", 2, "1") // behind the first
		time.Sleep(500 * ms)
		b.stop() // it may wait 5 ms for Kubernetes Events
		expect.Equal(t, "took", time.Since(b.start).Round(100*ms), time.Second)
		expect.Equal(t, "verdicts", b.bus.heard(t, b.start), []heard{
			{"A-1.1", schemas.ReasonEvictionAccepted, time.Second},
			{"B-2.1", schemas.ReasonPodTerminating, time.Second},
		})
		expect.Equal(t, "answers left in the table", b.bus.left(), 1)
		expect.Equal(t, "readiness", b.Ready(), nil)
	})
}

func TestNextLeaderContinuesIntents(t *testing.T) {
	cfg := Config{Policy: policy.Policy{Rate: policy.Rate{EvictionsPerSecond: 0.001, Burst: 1}}}
	inBubble(t, cfg, always(schemas.Evicted, schemas.ReasonEvictionAccepted, 0), func(t *testing.T, b *bench) {
		b.put("A", 1, "1", "2")
		synctest.Wait()
		b.stop()
		expect.Equal(t, "verdicts of the first", b.bus.heard(t, b.start), []heard{{"A-1.1", schemas.ReasonEvictionAccepted, 0}})

		next := New(Config{Bus: b.bus, Ledger: b.bus, Policy: fast, Log: slog.New(slog.DiscardHandler)})
		end := leads(t, next, always(schemas.Evicted, schemas.ReasonEvictionAccepted, 0))
		time.Sleep(time.Minute)
		end()
		got := b.bus.heard(t, b.start)[1:]
		expect.Equal(t, "verdicts of the next", got, []heard{{"A-1.2", schemas.ReasonEvictionAccepted, 0}})
		expect.Equal(t, "answers left in the table", b.bus.left(), 0)
	})
}

func TestBusOutage(t *testing.T) {
	t.Run("nothing_is_evicted_until_the_ledger_is_stored", func(t *testing.T) {
		var evicted []types.UID
		handle := saves(func(o Intent) { evicted = append(evicted, o.Pod.UID) })
		inBubble(t, Config{Policy: fast, Parallel: 1}, handle, func(t *testing.T, b *bench) {
			synctest.Wait() // the session has recovered
			b.bus.setRefuse(errors.New("no leader"))
			b.put("A", 1, "1", "2")
			time.Sleep(20 * time.Second)
			synctest.Wait()
			expect.Equal(t, "evicted while the bus is away", evicted, nil)
			b.bus.setRefuse(nil)
			time.Sleep(maxBackoff)
			synctest.Wait()
			expect.Equal(t, "evicted", evicted, []types.UID{"1", "2"})
			var ids []string
			for _, h := range b.bus.heard(t, b.start) {
				ids = append(ids, h.ID)
			}
			expect.Equal(t, "verdicts", ids, []string{"A-1.1", "A-1.2"})
			expect.Equal(t, "intents messages left in the table", b.bus.left(), 0)
		})
	})
	t.Run("a_session_that_cannot_recover_evicts_nothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			executed := 0
			b := &bench{bus: newMemory(), start: time.Now()}
			b.Actuator = New(Config{Bus: b.bus, Ledger: b.bus, Policy: fast, Log: slog.New(slog.DiscardHandler)})
			b.bus.setRefuse(errors.New("no leader"))
			b.put("A", 1, "1")
			end := leads(t, b.Actuator, saves(func(Intent) { executed++ }))
			time.Sleep(20 * time.Second)
			synctest.Wait()
			expect.Equal(t, "executed while the bus is away", executed, 0)
			b.bus.setRefuse(nil)
			time.Sleep(maxBackoff)
			synctest.Wait()
			expect.Equal(t, "executed", executed, 1)
			end()
		})
	})
}

func TestLeadShutdownWithoutBus(t *testing.T) {
	handle := always(schemas.Evicted, schemas.ReasonEvictionAccepted, time.Second)
	inBubble(t, Config{Policy: fast}, handle, func(t *testing.T, b *bench) {
		b.put("A", 1, "1")
		time.Sleep(500 * ms)
		b.bus.setRefuse(errors.New("no leader"))
		time.Sleep(time.Minute)
		began := time.Now()
		b.stop()
		expect.Equal(t, "took", time.Since(began), DrainTimeout)
		expect.Equal(t, "verdicts", b.bus.heard(t, b.start), nil)
		expect.Equal(t, "answers left in the table", b.bus.left(), 1)
	})
}

func TestLeadLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{bus: newMemory(), start: time.Now()}
		b.Actuator = New(Config{Bus: b.bus, Ledger: b.bus, Policy: fast, Log: slog.New(slog.DiscardHandler)})
		var gaveUp time.Duration
		handle := func(ctx context.Context, o Intent, _ saveFunc) (schemas.Verdict, error) {
			calling, end := detached(ctx)
			defer end()
			select {
			case <-calling.Done():
				gaveUp = time.Since(b.start)
				return o.Verdict(schemas.Deferred, schemas.ReasonAPIUnavailable, ""), nil
			case <-time.After(time.Hour):
				return o.Verdict(schemas.Evicted, schemas.ReasonEvictionAccepted, ""), nil
			}
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.lead(ctx, handle) }()
		b.put("A", 1, "1")
		time.Sleep(time.Second)
		cancel(fmt.Errorf("the lease is another's: %w", ErrNotLeading))
		expect.Equal(t, "error", <-ended, nil)
		expect.Equal(t, "the call was given up, and Lead ended, after", []time.Duration{gaveUp, time.Since(b.start)},
			[]time.Duration{time.Second, time.Second})
		b.bus.mu.Lock()
		defer b.bus.mu.Unlock()
		expect.Equal(t, "verdicts", len(b.bus.published), 0)
	})
}

// The next leader finds out what became of the call. A canceled call could be interrupted inside the API server.
func TestLeadLostDuringEviction(t *testing.T) {
	var canceled, answered atomic.Bool
	client := wire(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/eviction") {
			select {
			case <-r.Context().Done():
				canceled.Store(true)
				return nil, r.Context().Err()
			case <-time.After(5 * time.Second):
			}
			answered.Store(true)
			return created(), nil
		}
		return response(http.StatusOK, ownedPod("pod-1", "1", "api")), nil
	}).client(t)
	synctest.Test(t, func(t *testing.T) {
		b := &bench{bus: newMemory(), start: time.Now()}
		b.Actuator = New(Config{Client: client, Bus: b.bus, Ledger: b.bus, Policy: enabledPolicy(), Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.lead(ctx, b.execute) }()
		b.put("A", 1, "1")
		time.Sleep(time.Second)
		cancel(fmt.Errorf("the lease is another's: %w", ErrNotLeading))
		expect.Equal(t, "error", <-ended, nil)
		expect.Equal(t, "Lead ended after", time.Since(b.start), time.Second)
		time.Sleep(time.Minute)
		expect.Equal(t, "the call was canceled, the call was answered", []bool{canceled.Load(), answered.Load()}, []bool{false, true})
		b.bus.mu.Lock()
		defer b.bus.mu.Unlock()
		expect.Equal(t, "verdicts", len(b.bus.published), 0)
	})
}

func TestVerdictCauseAndMetric(t *testing.T) {
	registry := prometheus.NewRegistry()
	cfg := Config{Policy: fast, Metrics: registry}
	inBubble(t, cfg, always(schemas.Evicted, schemas.ReasonEvictionAccepted, 300*ms), func(t *testing.T, b *bench) {
		a, _ := answerTo("A", 1, "1")
		a.Scope.Since, a.Intents[0].Expires = b.start, b.start.Add(time.Minute)
		cause := schematest.Event(t, "/test", a, b.start, schemas.Event{ID: "scope", CorrelationID: "delta"})
		b.bus.put(cause)
		time.Sleep(time.Second)
		b.stop()

		got := b.bus.published[0]
		expect.Equal(t, "trace", got.TraceParent[:36], cause.TraceParent[:36])
		v := a.Intents[0]
		verdict := schematest.Decode[schemas.Verdict](t, got)
		expect.Equal(t, "verdict", verdict, schemas.Verdict{
			Outcome: schemas.Evicted, Reason: schemas.ReasonEvictionAccepted, Profile: "default", Strategy: "A",
			Scope:  schemas.ScopeRef{Kind: schemas.NodeKind, Key: "worker-1", Event: "A-1", Sequence: 1, Since: b.start.UTC()},
			Intent: schemas.Intent{ID: v.ID, Pod: v.Pod, Node: v.Node, Reason: v.Reason, Expires: v.Expires.UTC()},
		})
		want := schemas.Event{ // with the same ID, if it is stored again after a crash
			ID: "A-1.1.evicted", Source: "/test/actuator", Type: schemas.VerdictType, Subject: "namespaces/web/pods/pod-1",
			Time: b.start.Add(300 * ms).UTC(), CorrelationID: "delta", CausationID: cause.ID, TraceParent: got.TraceParent,
			Data: got.Data, Channel: "rehome.verdict.evicted.A.web.pod-1", Parent: cause.TraceParent, Began: cause.Time,
		}
		expect.Equal(t, "event", got, want)
		metrics := `# TYPE rehome_move_delay_seconds histogram
rehome_move_delay_seconds_bucket{le="0.05"} 0
rehome_move_delay_seconds_bucket{le="0.1"} 0
rehome_move_delay_seconds_bucket{le="0.2"} 0
rehome_move_delay_seconds_bucket{le="0.3"} 1
rehome_move_delay_seconds_bucket{le="0.5"} 1
rehome_move_delay_seconds_bucket{le="1"} 1
rehome_move_delay_seconds_bucket{le="2"} 1
rehome_move_delay_seconds_bucket{le="5"} 1
rehome_move_delay_seconds_bucket{le="10"} 1
rehome_move_delay_seconds_bucket{le="30"} 1
rehome_move_delay_seconds_bucket{le="60"} 1
rehome_move_delay_seconds_bucket{le="300"} 1
rehome_move_delay_seconds_bucket{le="600"} 1
rehome_move_delay_seconds_bucket{le="+Inf"} 1
rehome_move_delay_seconds_sum 0.3
rehome_move_delay_seconds_count 1
# TYPE rehome_open_intents gauge
rehome_open_intents 0
# TYPE rehome_verdicts_total counter
rehome_verdicts_total{method="",namespace="web",outcome="evicted",profile="default",reason="EvictionAccepted",strategy="A"} 1
`
		metricstest.Compare(t, registry, metrics, "rehome_move_delay_seconds", "rehome_open_intents", "rehome_verdicts_total")
	})
}
