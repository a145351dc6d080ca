package equivalence

import (
	_ "embed"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/schematest"
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
	if err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
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
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range w.objects() {
		if err := o.Set(object, w.now); err != nil {
			t.Fatal(err)
		}
	}
	all := answers{}
	for _, s := range p.Profiles[0].Strategies {
		scopes, err := o.Payloads(p.Profiles[0].Name, s.Name, w.now)
		if err != nil {
			t.Fatal(err)
		}
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
		follow(t, p, s, wanted)
	}
	for _, s := range p.Profiles[0].Strategies {
		if *seed == 0 && wanted[s.Name] == 0 {
			t.Errorf("%s had no intents in any world", s.Name)
		}
	}
	t.Logf("intents compared: %v", wanted)
}

// follow changes a world and compares after every round.
func follow(t *testing.T, p policy.Policy, seed uint64, wanted map[string]int) {
	t.Helper()
	w := newWorld(seed)
	o, err := watcher.NewOffline(p)
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	must(o.Set(budget("one"), w.now))
	kept := answers{}
	for round := range 25 {
		for range 1 + w.IntN(6) {
			w.change(func(object any) { must(o.Set(object, w.now)) }, func(object any) { must(o.Remove(object, w.now)) })
			if w.often(5) {
				kept.take(t, o.Changed(w.now))
			}
		}
		w.now = w.now.Add(time.Duration(w.IntN(900)) * time.Second)
		kept.take(t, o.Changed(w.now))
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
