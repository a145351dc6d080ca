package watcher

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schematest"
	"github.com/rehome-dev/rehome/test/kit/scopetest"
	"github.com/rehome-dev/rehome/watcher/scope"
)

// slow are the arguments of a strategy that takes long to list what it needs.
type slow struct{ scopetest.Args }

var slowAsked, slowAnswers = make(chan bool, 100), make(chan bool)

func (*slow) Sources([]schemas.NodeUsage) []string {
	slowAsked <- true
	<-slowAnswers
	return nil
}

func TestHandlersDuringScopeBuild(t *testing.T) {
	p := policy.Policy{Profiles: []policy.Profile{{Name: "p", Strategies: []policy.Enabled{{
		Strategy: policy.Strategy{Name: "slow", Scope: schemas.UsageKind, NewArgs: func() policy.Args { return &slow{} }},
		Args:     json.RawMessage(`{}`),
	}}}}}
	s := view(t, p, []*corev1.Node{tenCores("n1"), tenCores("n2")}, nil)
	w := testWatcher(s, &collected{})
	l := testSession(t.Context(), w)
	built := make(chan error)
	go func() {
		_, err := l.scopes.Build(l.policy.Strategies[0].Key(scope.Cluster), nil, time.Now())
		built <- err
	}()
	<-slowAsked
	handled := make(chan bool)
	go func() {
		w.podChanged(nil, guest("a", "n1"), false)
		w.nodeChanged(tenCores("n1"), tenCores("n1"), false)
		close(handled)
	}()
	select {
	case <-handled:
	case <-time.After(5 * time.Second):
		t.Error("the handler of a pod waits for the scope")
	}
	close(slowAnswers)
	if err := <-built; err != nil {
		t.Error(err)
	}
}

// A session remembers which scopes can have an answer. It must not remember every pod, node, and request that ever had one.
func TestAnsweredScopesOfGoneObjects(t *testing.T) {
	stays := guest("stays", "n1")
	f := newFixture(t, compiled(t, with("", nodesStrategy(), podsStrategy(0))), roomy("n1"), roomy("n2"), stays)
	s := testSession(t.Context(), testWatcher(f, &collected{}))
	nodes, pods := s.policy.Strategies[0], s.policy.Strategies[1]
	remember := func(keys ...scope.Key) {
		for _, key := range keys {
			if list := s.Reconcile([]*workItem{{key: key}}, time.Now()); len(list) != 1 {
				t.Fatalf("%v: %d scopes, want one", key, len(list))
			}
		}
	}
	want := []scope.Key{nodes.Key("n1"), nodes.Key("n2"), pods.Key("web/stays")}
	remember(want...)
	for i := range 3000 {
		name := fmt.Sprint("gone-", i)
		node, pod := roomy(name), guest(name, name)
		put(t, f.cluster, node, pod)
		remember(nodes.Key(name), pods.Key("web/"+name))
		for _, o := range []metav1.Object{node, pod} {
			expect.Must(t, f.cluster.Remove(o))
		}
		s.answered[scope.Key{Profile: "p", Strategy: schemas.RequestStrategy, Kind: schemas.RequestKind, Name: "admin/" + name}] = true
	}
	if got := len(s.answered); got > 1100 {
		t.Errorf("%d scopes are remembered, want at most 1100", got)
	}
	for _, key := range want {
		if !s.answered[key] {
			t.Errorf("%v is forgotten, but exists", key)
		}
	}
}

func TestExpiredIntents(t *testing.T) {
	expired := func(t *testing.T) schemas.Event {
		t.Helper()
		return schematest.Event(t, "/test", schemas.Verdict{
			Outcome: schemas.Expired, Profile: "p", Strategy: "nodes", Scope: schemas.ScopeRef{Kind: schemas.NodeKind, Key: "n1"},
			Intent: schemas.Intent{Pod: schemas.PodRef{Namespace: "web", Name: "a", UID: "u"}},
		}, time.Now(), schemas.Event{})
	}
	t.Run("are_renewed_after_a_growing_delay", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := view(t, with("", nodesStrategy()), []*corev1.Node{named("n1"), named("n2")},
				[]*corev1.Pod{placed("a", "n1", numbered("u"))})
			leading(t, s, func(_ *Watcher, bus *collected) {
				bus.take(t)
				began := time.Now()
				var got []time.Duration
				for range 5 { // the actuator finds each new intent expired
					bus.tell(expired(t))
					for len(bus.take(t)) == 0 {
						time.Sleep(100 * time.Millisecond)
					}
					got = append(got, time.Since(began).Round(time.Second))
				}
				second := time.Second
				if want := []time.Duration{1 * second, 3 * second, 7 * second, 15 * second, 31 * second}; !reflect.DeepEqual(got, want) {
					t.Errorf("evaluated after %v, want %v", got, want)
				}
			})
		})
	})
}

// movedBy delivers a verdict that a load strategy moved a pod.
func movedBy(t *testing.T, at time.Time) schemas.Event {
	t.Helper()
	return schematest.Event(t, "/test/actuator", schemas.Verdict{
		Profile: "p", Strategy: "above50", Outcome: schemas.Evicted, Scope: schemas.ScopeRef{Kind: schemas.UsageKind, Key: scope.Cluster},
		Intent: schemas.Intent{Pod: schemas.PodRef{Namespace: "web", Name: "a", UID: "a"}, Node: "n1"},
	}, at, schemas.Event{})
}

// rests returns how long a scope of a strategy is not built.
func rests(w *Watcher, strategy int, key string) time.Duration {
	l := w.session.Load()
	return time.Until(l.scopes.EarliestBuild(l.policy.Strategies[strategy], key))
}

// After a move, load strategies must decide nothing for two minutes, even under a new leader or policy.
func TestLoadCooldown(t *testing.T) {
	rest := func(w *Watcher) time.Duration { return rests(w, 0, scope.Cluster).Round(time.Second) }
	synctest.Test(t, func(t *testing.T) {
		loads := &told{nodes: map[string]corev1.ResourceList{"n1": cores("1"), "n2": cores("1")}}
		bus := &collected{}
		overTwoNodes(t, bus, loads, func(w *Watcher) {
			synctest.Wait()
			bus.tell(movedBy(t, time.Now()))
			expect.Must(t, w.SetPolicy(loadPolicy()))
			time.Sleep(time.Second)
			expect.Equal(t, "after another policy: rests", rest(w), scope.LoadCooldown-time.Second)
		})
		time.Sleep(29 * time.Second)
		overTwoNodes(t, bus, loads, func(w *Watcher) {
			synctest.Wait()
			expect.Equal(t, "of another leader: rests", rest(w), scope.LoadCooldown-30*time.Second)
		})
	})
}

func TestSmoothingSurvivesPolicyChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loads := &told{nodes: map[string]corev1.ResourceList{"n1": cores("1"), "n2": cores("1")}}
		overTwoNodes(t, &collected{}, loads, func(w *Watcher) {
			synctest.Wait()
			loads.answer = make(chan struct{}) // the next sampler gets no answer
			defer close(loads.answer)
			before := w.active.Load().sampler
			expect.Must(t, w.SetPolicy(loadPolicy()))
			after, from := w.active.Load().sampler, w.active.Load().Loads()[0]
			if before == after || after.FirstRoundDone(from) {
				t.Fatal("the sampler was not replaced")
			}
			got := after.Node(from, "n1")
			if want := before.Node(from, "n1"); want == nil || !reflect.DeepEqual(got, want) {
				t.Errorf("got %v, want %v, as before", got, want)
			}
		})
	})
}

func TestGroupCooldown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := view(t, scopetest.GroupPolicy(), []*corev1.Node{named("n1"), named("n2")}, nil)
		rest := func(w *Watcher) time.Duration { return rests(w, 0, "web/ReplicaSet/rs").Round(100 * time.Millisecond) }
		leading(t, s, func(w *Watcher, _ *collected) {
			if got := rest(w); got > 0 {
				t.Errorf("the first leader waits %v, want nothing", got)
			}
			expect.Must(t, w.SetPolicy(scopetest.GroupPolicy()))
			time.Sleep(10 * time.Millisecond)
			expect.Equal(t, "after another policy: rests", rest(w), scope.Cooldown)
		})
		evicted := schematest.Event(t, "/test/actuator", schemas.Verdict{
			Profile: "p", Strategy: string(schemas.WorkloadKind), Outcome: schemas.Evicted,
			Intent: schemas.Intent{Pod: schemas.PodRef{Namespace: "web", Name: "a", UID: "a"}, Node: "n1"},
		}, time.Now().Add(-300*time.Millisecond), schemas.Event{})
		leadingWith(t, s, &collected{verdicts: []schemas.Event{evicted}}, func(w *Watcher, _ *collected) {
			expect.Equal(t, "another leader after a move: rests", rest(w), scope.Cooldown)
		})
		duplicates := []*corev1.Pod{
			placed("a", "n1", ofOwners("rs"), numbered("a")), placed("b", "n1", ofOwners("rs"), numbered("b")),
		}
		crowded := view(t, scopetest.GroupPolicy(), []*corev1.Node{named("n1"), named("n2")}, duplicates)
		leadingWith(t, crowded, &collected{past: 3 * time.Second}, func(_ *Watcher, bus *collected) {
			time.Sleep(2 * time.Second)
			if got := bus.take(t); got != nil {
				t.Errorf("published %q before the past was read", got)
			}
			time.Sleep(5 * time.Second)
			if got := bus.take(t); got == nil {
				t.Error("nothing was published when the past was read")
			}
		})
		answers := []schemas.ScopeHead{{Kind: schemas.WorkloadKind, Key: "web/ReplicaSet/rs", Profile: "p", Strategy: string(schemas.WorkloadKind)}}
		leadingWith(t, s, &collected{answers: answers}, func(w *Watcher, _ *collected) {
			expect.Equal(t, "another leader: rests", rest(w), scope.Cooldown)
		})
	})
}

// A strategy that uses requests must wait for a pending replacement even under a new leader or policy, because the pod counts on
// no node yet.
func TestPendingReplacement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
		replacement := placed("b", "", numbered("b"), func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(ago(18 * time.Second)) })
		s := view(t, scopetest.GroupPolicy(), []*corev1.Node{named("n1"), named("n2")}, []*corev1.Pod{replacement})
		evicted := schematest.Event(t, "/test/actuator", schemas.Verdict{
			Profile: "p", Strategy: string(schemas.UsageKind), Outcome: schemas.Evicted,
			Scope:  schemas.ScopeRef{Kind: schemas.UsageKind, Key: scope.Cluster},
			Intent: schemas.Intent{Pod: schemas.PodRef{Namespace: "web", Name: "a", UID: "a"}, Node: "n1"},
		}, ago(20*time.Second), schemas.Event{})
		rest := func(w *Watcher) time.Duration { return rests(w, 3, scope.Cluster).Round(time.Second) }
		leadingWith(t, s, &collected{verdicts: []schemas.Event{evicted}}, func(w *Watcher, _ *collected) {
			expect.Equal(t, "under a new leader: rests", rest(w), 12*time.Second)
			time.Sleep(5 * time.Second)
			expect.Must(t, w.SetPolicy(scopetest.GroupPolicy()))
			time.Sleep(10 * time.Millisecond)
			expect.Equal(t, "under a new policy: rests", rest(w), 7*time.Second)
		})
	})
}

// A leader that another one has replaced must not publish scopes from its old cache: they would follow newer ones.
func TestDeposedLeader(t *testing.T) {
	const queued = batch + 20
	// deposed runs a leader with that many keys until end, and returns the number of batches that it publishes. It calls depose
	// during the first one, which cannot hold all keys.
	deposed := func(t *testing.T, depose func(w *Watcher, end func())) int {
		var pods []*corev1.Pod
		for i := range queued {
			name := fmt.Sprint("pod-", i)
			pods = append(pods, placed(name, "n1", numbered(types.UID(name))))
		}
		bus := &collected{}
		w := testWatcher(view(t, with("", podsStrategy(0)), []*corev1.Node{named("n1"), named("n2")}, pods), bus)
		ctx, end := context.WithCancel(t.Context())
		first := sync.OnceFunc(func() {
			depose(w, end)
			time.Sleep(time.Millisecond)
		})
		bus.refuse = func(schemas.Event) error { first(); return nil }
		var led sync.WaitGroup
		led.Go(func() { w.lead(ctx) })
		time.Sleep(time.Second)
		end()
		led.Wait()
		return bus.batches
	}
	t.Run("leaves_queued_keys", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			expect.Equal(t, "published", deposed(t, func(_ *Watcher, end func()) { end() }), 1)
		})
	})
	t.Run("leaves_queued_keys_of_the_old_policy", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			got := deposed(t, func(w *Watcher, _ func()) {
				if err := w.SetPolicy(with("")); err != nil {
					t.Error(err)
				}
			})
			expect.Equal(t, "published", got, 1)
		})
	})
	t.Run("publishes_nothing_without_its_lease", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := view(t, with("", podsStrategy(0)), []*corev1.Node{named("n1"), named("n2")}, []*corev1.Pod{placed("a", "n1", numbered("a"))})
			bus, valid := &collected{}, atomic.Bool{}
			w := testWatcher(s, bus)
			w.config.LeaseValid = valid.Load
			ctx, end := context.WithCancel(t.Context())
			var led sync.WaitGroup
			led.Go(func() { w.lead(ctx) })
			time.Sleep(time.Second)
			if got := bus.take(t); got != nil {
				t.Errorf("without the lease: published %q", got)
			}
			valid.Store(true)
			time.Sleep(5 * time.Second)
			expect.Equal(t, "when the lease is renewed: published", bus.take(t), []string{"pods web/a"})
			end()
			led.Wait()
		})
	})
}

// A pod can be gone when the verdict that defers it arrives. No later event makes the watcher forget it.
func TestDeferralOfGonePod(t *testing.T) {
	f := newFixture(t, compiled(t, with("", nodesStrategy())), roomy("n1"), roomy("n2"), placed("stays", "n1", numbered("stays")))
	s := testSession(t.Context(), testWatcher(f, &collected{}))
	for _, pod := range []schemas.PodRef{
		{Namespace: "web", Name: "gone", UID: "gone"}, {Namespace: "web", Name: "stays", UID: "stays"},
	} {
		for reason, outcome := range map[schemas.ReasonCode]schemas.Outcome{
			schemas.ReasonDisruptionBudget: schemas.Deferred, schemas.ReasonMoving: schemas.Rejected,
		} {
			v := schemas.Verdict{
				Outcome: outcome, Reason: reason, Profile: "p", Strategy: "nodes", Scope: schemas.ScopeRef{Kind: schemas.NodeKind, Key: "n1"},
				Intent: schemas.Intent{Pod: pod, Node: "n1"}, Blockers: []schemas.ObjectRef{{Kind: "Node", Name: "n1"}},
			}
			s.verdict(schematest.Event(t, "/test", v, time.Now(), schemas.Event{}))
		}
	}
	expect.Equal(t, "blocked", slices.Collect(maps.Keys(s.blocked.pods)), []types.UID{"stays"})
}
