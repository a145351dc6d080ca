package watcher

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/delivery"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/fixtures"
	"github.com/rehome-dev/rehome/test/kit/schematest"
	"github.com/rehome-dev/rehome/test/kit/scopetest"
	"github.com/rehome-dev/rehome/watcher/load"
	"github.com/rehome-dev/rehome/watcher/scope"
)

// collected is a bus in memory that keeps the published events.
type collected struct {
	mu     sync.Mutex
	events []schemas.Event
	// verdicts are the stored verdicts; handle receives new ones.
	verdicts []schemas.Event
	handle   func(schemas.Event)
	past     time.Duration // the time it takes to read earlier verdicts
	// answers are returned by AnsweredScopes, unless it fails with unlisted.
	answers  []schemas.ScopeHead
	unlisted error
	// refuse returns the error for an event that the bus does not store. nil accepts every event.
	refuse  func(schemas.Event) error
	batches int // the number of calls of PublishAll
}

func (c *collected) AnsweredScopes(context.Context) ([]schemas.ScopeHead, error) {
	return c.answers, c.unlisted
}

func (c *collected) PublishAll(_ context.Context, events []schemas.Event) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.batches++
	var errs []error
	for _, e := range events {
		if c.refuse != nil {
			if err := c.refuse(e); err != nil {
				errs = append(errs, &delivery.Undelivered{ID: e.ID, Err: err})
				continue
			}
		}
		c.events = append(c.events, e)
	}
	return errors.Join(errs...)
}

func (c *collected) Verdicts(_ context.Context, since time.Time, handle func(schemas.Event)) error {
	time.Sleep(c.past)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.verdicts {
		if !e.Time.Before(since) {
			handle(e)
		}
	}
	return nil
}

func (c *collected) FollowVerdicts(ctx context.Context, since time.Time, handle func(schemas.Event)) error {
	_ = c.Verdicts(ctx, since, handle)
	c.mu.Lock()
	c.handle = handle
	c.mu.Unlock()
	<-ctx.Done()
	return ctx.Err()
}

// tell stores a verdict and delivers it.
func (c *collected) tell(e schemas.Event) {
	c.mu.Lock()
	c.verdicts = append(c.verdicts, e)
	handle := c.handle
	c.mu.Unlock()
	if handle != nil {
		handle(e)
	}
}

// take returns the kinds of the deltas and the scopes as STRATEGY KEY, sorted, that were published since the last call.
func (c *collected) take(t *testing.T) []string {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []string
	for _, e := range c.events {
		if e.Type == schemas.DeltaType {
			d := schematest.Decode[schemas.Delta](t, e)
			list = append(list, string(d.Kind))
			continue
		}
		h := schematest.Decode[schemas.ScopeHead](t, e)
		list = append(list, h.Strategy+" "+h.Key)
	}
	c.events = nil
	slices.Sort(list)
	return list
}

// scopes returns the scopes that were published since the last call.
func (c *collected) scopes() []schemas.Event {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	list := slices.DeleteFunc(c.events, func(e schemas.Event) bool { return e.Type != schemas.ScopeType })
	c.events = nil
	return list
}

// leading runs a leading watcher in a bubble of fake time.
func leading(t *testing.T, s fixture, script func(*Watcher, *collected)) {
	t.Helper()
	leadingWith(t, s, &collected{}, script)
}

func leadingWith(t *testing.T, s fixture, bus *collected, script func(*Watcher, *collected)) {
	t.Helper()
	leadingBy(t, s, bus, nil, script)
}

// testWatcher returns a watcher of the objects in a view.
func testWatcher(s fixture, bus Bus) *Watcher { return testWatcherOf(s, bus, nil) }

// testWatcherOf returns a watcher that measures every load at one source.
func testWatcherOf(s fixture, bus Bus, loads load.Source) *Watcher {
	w := newWatcher(Config{Source: "/test/watcher", Debounce: time.Millisecond, Resync: time.Hour, Bus: bus, Cluster: s.cluster})
	w.source = func(policy.Load, policy.Metrics) (load.Source, error) { return loads, nil }
	if err := w.SetPolicy(s.policy.Policy); err != nil {
		panic(err)
	}
	return w
}

// testSession returns the session of a watcher without goroutines.
func testSession(ctx context.Context, w *Watcher) *session {
	s := newSession(ctx, w, w.active.Load(), newOutbox(w.config.Bus, w.log, w.metrics))
	s.scopes.Rebuild(w.now())
	w.session.Store(s)
	return s
}

// leadingBy is leading with one source for every load.
func leadingBy(t *testing.T, s fixture, bus *collected, loads load.Source, script func(*Watcher, *collected)) {
	t.Helper()
	w := testWatcherOf(s, bus, loads)
	ctx, end := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = w.Run(ctx) })
	wg.Go(func() { w.lead(ctx) })
	time.Sleep(10 * time.Millisecond)
	script(w, bus)
	end()
	wg.Wait()
}

// with enables both kinds of strategies: nodes evaluates nodes, pods evaluates pods that have the age in args.
func with(selector string, strategies ...policy.Strategy) policy.Policy {
	p := policy.Policy{NodeSelector: selector, Profiles: []policy.Profile{{Name: "p"}}}
	for _, s := range strategies {
		p.Profiles[0].Strategies = append(p.Profiles[0].Strategies, policy.Enabled{Strategy: s, Args: json.RawMessage(`{}`)})
	}
	return p
}

// olderThan are the arguments of a strategy that moves pods of that age.
type olderThan struct {
	age time.Duration
}

func (olderThan) Validate() error { return nil }

func (o olderThan) Due(p *corev1.Pod) (time.Time, bool) { return p.CreationTimestamp.Add(o.age), true }

func nodesStrategy() policy.Strategy {
	return policy.Strategy{
		Name: "nodes", Scope: schemas.NodeKind, NewArgs: func() policy.Args { return &olderThan{} },
		Wakes: []schemas.DeltaKind{schemas.NodeTaints},
	}
}

func podsStrategy(age time.Duration) policy.Strategy {
	return policy.Strategy{
		Name: "pods", Scope: schemas.PodKind, Traits: policy.Traits{Facts: []policy.Fact{policy.FactDue}},
		NewArgs: func() policy.Args { return &olderThan{age} },
		Wakes:   []schemas.DeltaKind{schemas.PodLabels},
	}
}

func TestNewPolicyEvaluation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := placed("old", "n1", func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(time.Now().Add(-2 * time.Hour)) })
		young := placed("young", "n1", func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(time.Now()) })
		s := view(t, with("", nodesStrategy(), podsStrategy(time.Hour)),
			[]*corev1.Node{named("n1"), named("n2"), named("n3", func(n *corev1.Node) { n.Labels = map[string]string{"zone": "b"} })},
			[]*corev1.Pod{old, young})
		leading(t, s, func(w *Watcher, bus *collected) {
			steps := []struct {
				name   string
				policy policy.Policy
				want   []string
			}{
				{"the same once more", with("", nodesStrategy(), podsStrategy(time.Hour)), []string{"nodes n1", "nodes n2", "nodes n3", "pods web/old"}},
				{"a pod that is not due any more is evaluated, for its move may have to be withdrawn",
					with("", podsStrategy(10*time.Hour)), []string{"pods web/old"}},
				{"a pod that is not due is left alone", with("", podsStrategy(20*time.Hour)), nil},
				{"without a strategy there is nothing to evaluate", with(""), nil},
				{"nodes that are not looked at any more are evaluated, for moves may have to be withdrawn",
					with("zone=b", nodesStrategy()), []string{"nodes n1", "nodes n2", "nodes n3"}},
			}
			expect.Equal(t, "at the beginning", bus.take(t), steps[0].want)
			for _, step := range steps {
				expect.Must(t, w.SetPolicy(step.policy))
				time.Sleep(10 * time.Millisecond)
				expect.Equal(t, step.name, bus.take(t), step.want)
			}
			if w.session.Load().scopes.Unmovable(named("n3", func(n *corev1.Node) { n.Labels = map[string]string{"zone": "b"} })) == "" {
				t.Error("one node is selected, and there are enough")
			}
			w.nodeChanged(named("n1"), named("n1", fixtures.TaintedBy("a")), false)
			time.Sleep(10 * time.Millisecond)
			expect.Equal(t, "a delta under the last policy", bus.take(t), []string{"node.taints", "nodes n1"})
		})
	})
}

func TestInvalidArgumentsKeepPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := view(t, with("", nodesStrategy()), []*corev1.Node{named("n1"), named("n2")}, nil)
		leading(t, s, func(w *Watcher, bus *collected) {
			bus.take(t)
			before := w.active.Load()
			broken := with("", nodesStrategy())
			broken.Profiles[0].Strategies[0].Args = json.RawMessage(`[]`)
			if err := w.SetPolicy(broken); err == nil {
				t.Error("got no error")
			}
			time.Sleep(10 * time.Millisecond)
			if got := bus.take(t); got != nil || w.active.Load() != before {
				t.Errorf("got %q and another plan: %v, want nothing and the same", got, w.active.Load() != before)
			}
		})
	})
}

func TestReevaluationAfterVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := view(t, with("", nodesStrategy()), []*corev1.Node{named("n1"), named("n2")}, nil)
		leading(t, s, func(_ *Watcher, bus *collected) {
			bus.take(t)
			for _, c := range []struct {
				name, strategy string
				outcome        schemas.Outcome
				reason         schemas.ReasonCode
				want           []string
			}{
				{"the_actuator_has_not_read_the_policy", "nodes", schemas.Rejected, schemas.ReasonProfileUnknown, []string{"nodes n1"}},
				{"the_pod_is_protected", "nodes", schemas.Rejected, schemas.ReasonProtected, nil},
				{"the_strategy_is_gone", "gone", schemas.Rejected, schemas.ReasonProfileUnknown, nil},
				{"the_API_server_refuses", "nodes", schemas.Failed, schemas.ReasonInvalid, []string{"nodes n1"}},
			} {
				v := schemas.Verdict{
					Outcome: c.outcome, Reason: c.reason, Profile: "p", Strategy: c.strategy,
					Scope:  schemas.ScopeRef{Kind: schemas.NodeKind, Key: "n1"},
					Intent: schemas.Intent{Pod: schemas.PodRef{Namespace: "web", Name: "a", UID: "u"}},
				}
				e := schematest.Event(t, "/test", v, time.Now(), schemas.Event{})
				bus.tell(e)
				if got := bus.take(t); got != nil {
					t.Errorf("%s: at once: got %q, want nothing", c.name, got)
				}
				time.Sleep(delivery.FirstRetry + 10*time.Millisecond)
				if got := bus.take(t); !reflect.DeepEqual(got, c.want) {
					t.Errorf("%s: after %v: got %q, want %q", c.name, delivery.FirstRetry, got, c.want)
				}
			}
		})
	})
}

func TestNewLeaderEvaluatesPendingAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		young := placed("young", "n1", func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(time.Now()) })
		p := with("", podsStrategy(time.Hour), policy.Strategy{
			Name: "groups", Scope: schemas.WorkloadKind, NewArgs: func() policy.Args { return &scopetest.Args{} },
		})
		s := view(t, p, []*corev1.Node{named("n1"), named("n2")}, []*corev1.Pod{young})
		head := func(strategy string, kind schemas.ScopeKind, key string) schemas.ScopeHead {
			return schemas.ScopeHead{Profile: "p", Strategy: strategy, Kind: kind, Key: key}
		}
		bus := &collected{answers: []schemas.ScopeHead{
			head("pods", schemas.PodKind, "web/young"),                  // not due under the new policy
			head("groups", schemas.WorkloadKind, "web/ReplicaSet/gone"), // no such group
			head("other", schemas.NodeKind, "n1"),                       // the policy has no such strategy
		}}
		leadingWith(t, s, bus, func(_ *Watcher, bus *collected) {
			time.Sleep(scope.Cooldown) // the cooldown of groups
			want := []string{"groups web/ReplicaSet/gone", "pods web/young"}
			expect.Equal(t, "published", bus.take(t), want)
		})
	})
}

func TestPolicyChangeEvaluatesGroups(t *testing.T) {
	groups := policy.Strategy{Name: "groups", Scope: schemas.WorkloadKind, NewArgs: func() policy.Args { return &scopetest.Args{} }}
	for _, c := range []struct {
		name          string
		before, after policy.Policy
		unlisted      error
	}{
		{"a new strategy", with(""), with("", groups), nil},
		{"answers that the bus cannot list", with("", groups), with("zone=b", groups), errors.New("away")}, // no node has the zone
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				replicas := []*corev1.Pod{
					placed("a", "n1", func(p *corev1.Pod) { p.UID = "a" }), placed("b", "n1", func(p *corev1.Pod) { p.UID = "b" }),
				}
				s := view(t, c.before, []*corev1.Node{named("n1"), named("n2")}, replicas)
				leading(t, s, func(w *Watcher, bus *collected) {
					bus.take(t)
					bus.unlisted = c.unlisted
					expect.Must(t, w.SetPolicy(c.after))
					time.Sleep(scope.Cooldown + 10*time.Millisecond)
					expect.Equal(t, "published", bus.take(t), []string{"groups web/ReplicaSet/rs"})
				})
			})
		})
	}
}
