package actuator

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// stepped is a method with steps. It requests a delay before each step and records its calls.
type stepped struct {
	move.Starter // nil: each move has begun

	delay time.Duration
	takes time.Duration // how long a step takes
	// fails returns the error of a step that long after the start, or nil.
	fails func(after time.Duration, canceled bool) error

	stage    move.Stage // that Step returns
	canceled move.Stage // the result of Cancel; the zero value means Undone

	mu    sync.Mutex
	calls []string
	began time.Time
	busy  bool // a step is running
}

func (m *stepped) note(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = append(m.calls, fmt.Sprint(what, " after ", time.Since(m.began)))
}

func (m *stepped) Step(_ context.Context, _ move.State, canceled bool, _ time.Time) (move.Progress, error) {
	if m.fails != nil {
		if err := m.fails(time.Since(m.began), canceled); err != nil {
			return move.Progress{}, err
		}
	}
	if canceled {
		m.note("cancel")
		return move.Progress{Stage: cmp.Or(m.canceled, move.Undone), Message: "canceled"}, nil
	}
	if m.takes > 0 {
		m.mu.Lock()
		if m.busy {
			m.calls = append(m.calls, "two at once")
		}
		m.busy = true
		m.mu.Unlock()
		time.Sleep(m.takes)
		m.mu.Lock()
		m.busy = false
		m.mu.Unlock()
	}
	m.note("step")
	if m.stage == move.Released {
		return move.Refused(schemas.MethodBackground, move.Deferred(schemas.ReasonTakenBack, "stepped")), nil
	}
	return move.Progress{Stage: m.stage, Delay: m.delay, Message: "stepped"}, nil
}

// planning is a method with a new plan after each step. It counts the steps whose plan is not in the ledger. The first plan
// is stored when the move begins, under another key.
type planning struct {
	move.Starter // nil: each move has begun

	ledger         *memory
	steps, unknown int
}

func (m *planning) Step(_ context.Context, plan move.State, _ bool, _ time.Time) (move.Progress, error) {
	m.ledger.mu.Lock()
	defer m.ledger.mu.Unlock()
	if r, err := readRecord("move.1", m.ledger.ledger["move.1"]); m.steps > 0 && (err != nil || string(r.State) != string(plan)) {
		m.unknown++
	}
	m.steps++
	return move.Progress{State: move.State(fmt.Sprint(m.steps)), Delay: ms}, nil
}

// stepping begins each move with a method that has more steps.
func stepping(ctx context.Context, o Intent, save saveFunc) (schemas.Verdict, error) {
	err := save(ctx, record{Intent: o, Method: schemas.MethodBackground, Workload: &api, State: move.State(`{}`)})
	v := o.Verdict(schemas.Requested, schemas.ReasonBackgroundAccepted, "")
	v.Method = schemas.MethodBackground
	return v, err
}

// TestMoveInFlight covers moves with several steps.
func TestMoveInFlight(t *testing.T) {
	t.Run("step_after_the_delay_it_asked_for", func(t *testing.T) {
		m := &stepped{delay: 3 * time.Second}
		inBubble(t, Config{Policy: fast, View: webPods("1")}, stepping, func(t *testing.T, b *bench) {
			b.background, m.began = m, time.Now()
			b.put("A", 1, "1")
			time.Sleep(10 * time.Second)
			m.mu.Lock()
			defer m.mu.Unlock()
			expect.Equal(t, "calls", m.calls, []string{"step after 0s", "step after 3s", "step after 6s", "step after 9s"})
		})
	})
	t.Run("a_step_waits_for_the_record_of_the_one_before", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := &slowPuts{memory: newMemory(), disk: make(chan struct{}, 1)}
			m := &planning{ledger: l.memory}
			a := New(Config{Bus: l.memory, Ledger: l, Source: "/test/actuator", Policy: fast, View: webPods("1")})
			a.background = m
			end := leads(t, a, stepping)
			(&bench{Actuator: a, bus: l.memory, start: time.Now()}).put("A", 1, "1")
			time.Sleep(time.Second)
			end()
			if m.steps < 5 || m.unknown > 0 {
				t.Errorf("%d of %d steps began before their plan was stored, want none of at least 5", m.unknown, m.steps)
			}
		})
	})
	t.Run("contrary_evaluation_cancels_it", func(t *testing.T) {
		m := &stepped{delay: time.Minute}
		inBubble(t, Config{Policy: fast, View: webPods("1")}, stepping, func(t *testing.T, b *bench) {
			b.background, m.began = m, time.Now()
			b.put("A", 1, "1")
			time.Sleep(10 * time.Second)
			b.put("A", 2, "1") // still wanted
			time.Sleep(10 * time.Second)
			b.put("A", 3) // the taint is gone
			time.Sleep(10 * time.Second)
			m.mu.Lock()
			defer m.mu.Unlock()
			expect.Equal(t, "calls", m.calls, []string{"step after 0s", "cancel after 20s"})
			expect.Equal(t, "verdicts", b.bus.heard(t, b.start), []heard{
				{"A-1.1", schemas.ReasonBackgroundAccepted, 0}, {"A-2.1", schemas.ReasonMoving, 10 * time.Second},
				{"A-1.1", schemas.ReasonTakenBack, 20 * time.Second},
			})
			b.bus.mu.Lock()
			defer b.bus.mu.Unlock()
			expect.Equal(t, "intents messages in the table", len(b.bus.table), 0)
		})
	})
	t.Run("contrary_evaluation_while_it_begins_cancels_it", func(t *testing.T) {
		for _, at := range []time.Duration{500 * ms, 1500 * ms} {
			m := &stepped{delay: time.Minute}
			slowly := func(ctx context.Context, o Intent, save saveFunc) (schemas.Verdict, error) {
				time.Sleep(time.Second)
				if v, err := stepping(ctx, o, save); err != nil {
					return v, err
				}
				time.Sleep(time.Second)
				return stepping(ctx, o, save)
			}
			inBubble(t, Config{Policy: fast, View: webPods("1")}, slowly, func(t *testing.T, b *bench) {
				b.background, m.began = m, time.Now()
				b.put("A", 1, "1")
				time.Sleep(at)
				b.put("A", 2) // the taint is gone
				time.Sleep(10 * time.Second)
				m.mu.Lock()
				defer m.mu.Unlock()
				expect.Equal(t, "calls", m.calls, []string{"cancel after 2s"})
				expect.Equal(t, "verdicts", b.bus.heard(t, b.start), []heard{
					{"A-1.1", schemas.ReasonBackgroundAccepted, 2 * time.Second}, {"A-1.1", schemas.ReasonTakenBack, 2 * time.Second},
				})
			})
		}
	})
	t.Run("one_step_at_a_time", func(t *testing.T) {
		m := &stepped{delay: time.Minute, takes: time.Second}
		inBubble(t, Config{Policy: fast, View: webPods("1")}, stepping, func(t *testing.T, b *bench) {
			b.background, m.began = m, time.Now()
			b.put("A", 1, "1")
			time.Sleep(500 * ms)
			b.session.Load().queues.wanted.Add("1") // the key of an intent that has its verdict by now
			time.Sleep(10 * time.Second)
			m.mu.Lock()
			defer m.mu.Unlock()
			expect.Equal(t, "calls", m.calls, []string{"step after 1s"})
		})
	})
	t.Run("canceled_while_it_is_given_up_it_is_never_evicted", func(t *testing.T) {
		m := &stepped{stage: move.Released, takes: time.Second}
		inBubble(t, Config{Policy: fast, View: webPods("1")}, stepping, func(t *testing.T, b *bench) {
			b.background, m.began = m, time.Now()
			b.put("A", 1, "1")
			time.Sleep(500 * ms)
			b.put("A", 2) // the taint is gone; reading the pod before an eviction would fail the test
			time.Sleep(10 * time.Second)
			expect.Equal(t, "verdicts", b.bus.heard(t, b.start), []heard{
				{"A-1.1", schemas.ReasonBackgroundAccepted, 0}, {"A-1.1", schemas.ReasonTakenBack, time.Second},
			})
		})
	})
	t.Run("an_eviction_instead_waits_for_a_token", func(t *testing.T) {
		m := &stepped{stage: move.Released}
		var evicted []time.Duration
		var mu sync.Mutex
		start := time.Time{}
		pod := ownedPod("pod-1", "1", "api")
		client := wire(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodGet {
				return response(http.StatusOK, pod), nil
			}
			if strings.HasSuffix(r.URL.Path, "/eviction") {
				mu.Lock()
				defer mu.Unlock()
				evicted = append(evicted, time.Since(start).Truncate(time.Second))
			}
			return created(), nil
		}).client(t)
		cfg := Config{Policy: enabling(policy.Rate{EvictionsPerSecond: 0.05, Burst: 1}, "A"), View: webPods("1"), Client: client}
		inBubble(t, cfg, stepping, func(t *testing.T, b *bench) {
			start = b.start
			b.background, m.began = m, time.Now()
			b.put("A", 1, "1") // its start takes the only token, which returns after 20 s
			time.Sleep(time.Minute)
			mu.Lock()
			defer mu.Unlock()
			expect.Equal(t, "evictions", evicted, []time.Duration{20 * time.Second})
		})
	})
	t.Run("a_shutdown_during_a_step_starts_no_eviction", func(t *testing.T) {
		m := &stepped{stage: move.Released, takes: time.Second}
		inBubble(t, Config{Policy: fast, View: webPods("1")}, stepping, func(t *testing.T, b *bench) {
			b.background, m.began = m, time.Now()
			b.put("A", 1, "1")
			time.Sleep(500 * ms)
			b.stop() // reading the pod before an eviction would fail the test
			expect.Equal(t, "verdicts", b.bus.heard(t, b.start), []heard{{"A-1.1", schemas.ReasonBackgroundAccepted, 0}})
			moves, _, _, _ := readLedger(b.bus.ledger)
			expect.Equal(t, "moves for the next leader", len(moves), 1)
			expect.Equal(t, "state of the move", string(moves[0].State), `{}`)
		})
	})
	t.Run("a_canceled_move_is_never_evicted", func(t *testing.T) {
		m := &stepped{delay: time.Minute, canceled: move.Released}
		inBubble(t, Config{Policy: fast, View: webPods("1")}, stepping, func(t *testing.T, b *bench) {
			b.background, m.began = m, time.Now()
			b.put("A", 1, "1")
			time.Sleep(time.Second)
			b.put("A", 2) // the taint is gone
			time.Sleep(time.Second)
			expect.Equal(t, "verdicts", b.bus.heard(t, b.start), []heard{
				{"A-1.1", schemas.ReasonBackgroundAccepted, 0}, {"A-1.1", schemas.ReasonTakenBack, time.Second},
			})
			s := b.session.Load()
			s.mu.Lock()
			defer s.mu.Unlock()
			expect.Equal(t, "in flight", len(s.moves.all), 0)
		})
	})
}

// A newer evaluation that does not list the pod must cancel a move, unless the move itself caused that.
func TestCancelUnlisted(t *testing.T) {
	for _, c := range []struct {
		name     string
		kinds    []schemas.ScopeKind
		replaced bool          // the workload has a newer pod
		after    time.Duration // from the begin of the move to the evaluation
		want     bool
	}{
		{"each_pod_by_itself", []schemas.ScopeKind{schemas.NodeKind, schemas.PodKind, schemas.DomainKind}, true, -time.Second, true},
		{"pods_count_together", []schemas.ScopeKind{schemas.WorkloadKind, schemas.SpreadKind, schemas.UsageKind}, false, time.Second, true},
		{"with_a_replacement", []schemas.ScopeKind{schemas.WorkloadKind, schemas.SpreadKind, schemas.UsageKind}, true, time.Second, false},
		{"evaluated_before_the_move", []schemas.ScopeKind{schemas.WorkloadKind, schemas.SpreadKind, schemas.UsageKind}, false, -time.Second, false},
	} {
		for _, kind := range c.kinds {
			t.Run(c.name+"/"+string(kind), func(t *testing.T) {
				x := evicted()
				x.State, x.Intent.Scope.Kind, x.seen = move.State(`{}`), kind, 1
				old := cluster.Pod{Ref: x.Intent.Pod, Workload: api, Ready: true}
				v := given{pods: map[types.UID]cluster.Pod{x.uid(): old}, order: []types.UID{x.uid()}}
				if c.replaced {
					next := replica("1", "worker-2", 1)
					v.pods[next.Ref.UID], v.order = next, append(v.order, next.Ref.UID)
				}
				a := New(Config{View: &v, Log: slog.New(slog.DiscardHandler)})
				s := newSession(t.Context(), func() bool { return false }, a, nil, recorder{})
				defer s.queues.shutDown()
				s.moves.add(x, &v)
				contrary := schemas.Intents{Profile: x.Intent.Profile, Strategy: x.Intent.Strategy, Scope: x.Intent.Scope}
				contrary.Scope.Sequence++
				contrary.Scope.Now = x.Begun.Add(c.after)
				s.cancelUnlisted(contrary)
				expect.Equal(t, "canceled", x.Canceled, c.want)
			})
		}
	}
}

// counting is a view that counts its calls.
type counting struct {
	given
	mu    *sync.Mutex
	asked *int
}

func (c counting) count(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*c.asked += n
}

func (c counting) Pod(uid types.UID) (cluster.Pod, bool) {
	c.count(1)
	p, ok := c.pods[uid]
	return p, ok
}

func (c counting) Tally(w types.UID) cluster.Tally {
	c.count(1)
	return c.given.Tally(w)
}

func (c counting) Pods(w types.UID) []cluster.Pod {
	list := c.given.Pods(w)
	c.count(len(list))
	return list
}

func (c counting) Seen(uid types.UID) uint64 {
	return uint64(c.pods[uid].Created.Sub(noon)/time.Second) + 1
}

// TestTracking measures the cost of following moves.
func TestTracking(t *testing.T) {
	// follow moves 270 pods and replaces each, and returns how many pods were read.
	follow := func(t *testing.T, workloads, replicas int) int {
		asked := 0
		v := counting{given{pods: map[types.UID]cluster.Pod{}, tallies: map[types.UID]cluster.Tally{}}, &sync.Mutex{}, &asked}
		add := func(i int, of types.UID, ready bool) types.UID {
			p := replica(fmt.Sprint(i), "worker-1", i)
			p.Workload.UID, p.Ready = of, ready
			v.pods[p.Ref.UID], v.order = p, append(v.order, p.Ref.UID)
			return p.Ref.UID
		}
		for i := range workloads * replicas {
			of := types.UID(fmt.Sprint("w", i%workloads))
			add(i, of, true)
			v.tallies[of] = cluster.Tally{Wanted: replicas, Ready: replicas}
		}
		a := New(Config{
			Policy: policy.Policy{Rate: policy.DefaultRate(), Limits: policy.Limits{Unavailable: most("100%")}}, View: &v, Bus: newMemory(), Now: func() time.Time { return noon.Add(time.Second) },
		})
		s := newSession(t.Context(), func() bool { return false }, a, nil, recorder{})
		defer s.queues.shutDown()
		asked = 0
		var moves []*inFlight
		for i := range 270 {
			o := wish()
			o.Pod.UID = types.UID(fmt.Sprint("uid-", i))
			if p, blocks := s.parks(o, keysOf(o, &v), noon); blocks {
				t.Fatalf("admission: %+v", p)
			}
			o.ID = fmt.Sprint(i)
			x := &inFlight{record: record{Intent: o, Begun: noon, Workload: &api}, at: keysOf(o, &v), seen: uint64(workloads * replicas), reported: true}
			s.moves.add(x, &v)
			s.moves.accepted(x, noon)
			moves = append(moves, x)
		}
		for i, x := range moves {
			uid := add(workloads*replicas+i, x.at.workload, false)
			s.track(t.Context(), x)
			s.learn(cluster.Change{Workload: x.at.workload, Pod: uid})
			s.learn(cluster.Change{Workload: x.at.workload, Pod: x.uid()})
		}
		found := 0
		for _, w := range s.moves.workloads {
			found += len(w.replacements)
		}
		expect.Equal(t, "replacements that were found", found, 270)
		return asked
	}
	t.Run("cost_per_move_not_per_workload", func(t *testing.T) {
		many, one := follow(t, 40, 50), follow(t, 1, 2000)
		t.Logf("%d pods looked at for 40 workloads of 50, %d for one of 2,000", many, one)
		if one > 2*many {
			t.Errorf("%d pods are read for one workload of 2,000, and %d for 40 of 50: want no difference", one, many)
		}
	})
	t.Run("informers_never_wait_for_a_lock", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a := New(Config{Policy: fast, Bus: newMemory(), View: webPods("1")})
			stop := leads(t, a, stepping)
			s := a.session.Load()
			s.mu.Lock() // regardless of the other work of the session
			a.Changed(cluster.Change{Workload: api.UID, Pod: "1"})
			a.Changed(cluster.Change{Node: "worker-1"})
			s.mu.Unlock()
			stop()
		})
	})
}

// slowPublisher is a bus that takes a second for each verdict.
type slowPublisher struct{ *memory }

func (b slowPublisher) Publish(ctx context.Context, e schemas.Event) (uint64, error) {
	time.Sleep(time.Second)
	return b.memory.Publish(ctx, e)
}

// A slow bus must not delay ledger writes, and verdicts must not wait for each other.
func TestVerdicts(t *testing.T) {
	t.Run("published_at_once_beside_ledger_writes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := newMemory()
			start := time.Now()
			a := New(Config{Bus: slowPublisher{m}, Ledger: m, Source: "/test/actuator", Policy: fast})
			stop := leads(t, a, always(schemas.Evicted, schemas.ReasonEvictionAccepted, 0))
			b := &bench{Actuator: a, bus: m, start: start}
			b.put("A", 1, "1", "2", "3", "4", "5", "6", "7", "8")
			b.put("B", 2, "1", "2", "3", "4", "5", "6", "7", "8") // behind them
			s := a.session.Load()
			time.Sleep(100 * ms)
			s.mu.Lock()
			s.change("loop.x", 1)
			s.mu.Unlock()
			time.Sleep(100 * ms)
			m.mu.Lock()
			_, written := m.ledger["loop.x"]
			m.mu.Unlock()
			expect.Equal(t, "the ledger is written while verdicts are on their way", written, true)
			time.Sleep(3 * time.Second)
			expect.Equal(t, "verdicts", len(m.heard(t, start)), 16)
			stop()
		})
	})
}
