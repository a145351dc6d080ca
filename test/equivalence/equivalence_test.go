package equivalence

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schematest"
	"github.com/rehome-dev/rehome/watcher"
)

//go:embed testdata/everything.yaml
var everything []byte

var (
	seed   = flag.Uint64("seed", 0, "the only world to try; 0: many random ones")
	worlds = flag.Int("worlds", 60, "how many random worlds to try")
)

// everyStrategy returns a policy with all strategies.
func everyStrategy(t *testing.T) policy.Policy {
	t.Helper()
	p, err := policy.Parse("everything.yaml", everything, settings.Strategies())
	expect.Must(t, err)
	on := map[string]bool{}
	for _, s := range p.Profiles[0].Strategies {
		on[s.Name] = true
	}
	for _, s := range settings.Strategies() {
		if !on[s.Name] {
			t.Fatalf("testdata/everything.yaml does not switch on %s", s.Name)
		}
	}
	return p
}

// answers has a line for each intent in order, by scope. Scopes without intents are missing.
type answers map[string][]string

// take evaluates each scope.
func (a answers) take(t *testing.T, scopes []schemas.Event) {
	t.Helper()
	for _, scope := range scopes {
		head := schematest.Decode[schemas.ScopeHead](t, scope)
		i := slices.IndexFunc(functions.All(), func(f functions.Function) bool { return f.Strategy.Name == head.Strategy })
		answer, err := functions.All()[i].Evaluate(scope)
		expect.Must(t, err)
		key := head.Strategy + " " + head.About()
		delete(a, key)
		for _, intent := range answer.Intents {
			line := fmt.Sprintf("%s from %s: %s", intent.Pod.UID, intent.Node, intent.Reason)
			if head.Kind == schemas.PodKind { // the reason contains the age of the pod
				line = fmt.Sprintf("%s from %s", intent.Pod.UID, intent.Node)
			}
			if intent.Ended {
				line += ended
			}
			a[key] = append(a[key], line)
		}
	}
}

// everythingAnew evaluates everything in the world.
func everythingAnew(t *testing.T, p policy.Policy, w *world) answers {
	t.Helper()
	o, err := watcher.NewOffline(p)
	expect.Must(t, err)
	for _, object := range w.objects() {
		if err := o.Set(object); err != nil {
			t.Fatal(err)
		}
	}
	all := answers{}
	for _, s := range p.Profiles[0].Strategies {
		scopes, err := o.Payloads(p.Profiles[0].Name, s.Name, w.now)
		expect.Must(t, err)
		for _, scope := range scopes {
			e := schematest.Event(t, "/offline", scope, w.now, schemas.Event{})
			all.take(t, []schemas.Event{e})
		}
	}
	return all
}

func TestIncrementalEqualsFullEvaluation(t *testing.T) {
	p := everyStrategy(t)
	seeds := []uint64{*seed}
	if *seed == 0 {
		seeds = nil
		for range *worlds {
			seeds = append(seeds, 1+rand.Uint64())
		}
	}
	wanted := map[string]int{}
	for _, s := range seeds {
		synctest.Test(t, func(t *testing.T) { follow(t, p, s, wanted) })
	}
	for _, s := range p.Profiles[0].Strategies {
		if *seed == 0 && wanted[s.Name] == 0 {
			t.Errorf("%s had no intents in any world", s.Name)
		}
	}
	t.Logf("intents compared: %v", wanted)
}

// follow changes a world and compares after every round. It runs in a bubble of fake time.
func follow(t *testing.T, p policy.Policy, seed uint64, wanted map[string]int) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		expect.Must(t, err)
	}
	c, err := cluster.NewOffline(watcher.Kinds()...)
	must(err)
	bus := &published{}
	follower, err := watcher.New(watcher.Config{Cluster: c, Bus: bus, Policy: p, Source: "/test/watcher", Resync: 1000 * time.Hour})
	must(err)
	ctx, end := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer end()
	wg.Go(func() { _ = follower.Lead(ctx) })
	time.Sleep(time.Second)
	w := newWorld(seed)
	must(c.Set(budget("one")))
	kept := answers{}
	for round := range 25 {
		for range 1 + w.IntN(6) {
			w.change(func(object any) { must(c.Set(object)) }, func(object any) { must(c.Remove(object)) })
			if w.often(5) {
				w.wait(settles)
				kept.take(t, bus.take())
			}
		}
		w.wait(settles + time.Duration(w.IntN(900))*time.Second)
		kept.take(t, bus.take())
		want := everythingAnew(t, p, w)
		kept.reject(w)
		if text := difference(kept, want); text != "" {
			t.Fatalf("round %d differs; repeat it with go test ./test/equivalence -seed %d\n%s", round, seed, text)
		}
		for key, lines := range want {
			var name string
			_, _ = fmt.Sscan(key, &name)
			wanted[name] += len(lines)
		}
	}
}

// settles is longer than the watcher waits with any evaluation: the longest wait is for a pod without a node.
const settles = time.Minute

// published is a bus that keeps the scopes.
type published struct {
	mu     sync.Mutex
	scopes []schemas.Event
}

func (b *published) PublishAll(_ context.Context, events []schemas.Event) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range events {
		if e.Type == schemas.ScopeType {
			b.scopes = append(b.scopes, e)
		}
	}
	return nil
}

// take returns the scopes since the last call.
func (b *published) take() []schemas.Event {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.scopes
	b.scopes = nil
	return list
}

func (*published) AnsweredScopes(context.Context) ([]schemas.ScopeHead, error) { return nil, nil }

func (*published) Verdicts(context.Context, time.Time, func(schemas.Event)) error { return nil }

func (*published) FollowVerdicts(ctx context.Context, _ time.Time, _ func(schemas.Event)) error {
	<-ctx.Done()
	return ctx.Err()
}

// reject drops intents that the actuator would reject: for pods that are gone, terminating, or ended, or whose node is gone.
func (a answers) reject(w *world) {
	for key, lines := range a {
		a[key] = slices.DeleteFunc(lines, func(line string) bool {
			uid, _, _ := strings.Cut(line, " ")
			p := w.pods[types.UID(uid)]
			return p == nil || w.nodes[p.Spec.NodeName] == nil || p.DeletionTimestamp != nil ||
				schemas.Ended(p) && !strings.HasSuffix(line, ended)
		})
		if len(a[key]) == 0 {
			delete(a, key)
		}
	}
}

// ended marks the intent for a pod that had already ended.
const ended = " (ended)"

// difference describes the difference between two sets of answers, or returns "".
func difference(got, want answers) string {
	keys := maps.Clone(got)
	maps.Copy(keys, want)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if !slices.Equal(got[key], want[key]) {
			return fmt.Sprintf("%s\nincremental: %q\n       full: %q", key, got[key], want[key])
		}
	}
	return ""
}
