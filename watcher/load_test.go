package watcher

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schematest"
	"github.com/rehome-dev/rehome/test/kit/scopetest"
	"github.com/rehome-dev/rehome/watcher/load"
	"github.com/rehome-dev/rehome/watcher/scope"
)

// above are the arguments of a strategy that moves pods from nodes whose measured cpu is above a percentage.
type above struct {
	Percent float64 `json:"percent"`
}

func (above) Validate() error                  { return nil }
func (above) Resources() []corev1.ResourceName { return []corev1.ResourceName{"cpu", "memory", "pods"} }
func (above) Load() policy.Load                { return policy.Load{Source: policy.LoadKubernetes} }
func (a above) Sources(nodes []schemas.NodeUsage) []string {
	var over []string
	for _, n := range nodes {
		used, all := n.Used["cpu"], n.Capacity["cpu"]
		if used.AsApproximateFloat64() > a.Percent/100*all.AsApproximateFloat64() {
			over = append(over, n.Name)
		}
	}
	return over
}

// loadPolicy enables the strategy twice, with thresholds of 50 and 80 percent.
func loadPolicy() policy.Policy {
	p := policy.Policy{Profiles: []policy.Profile{{Name: "p"}}}
	for _, percent := range []int{50, 80} {
		p.Profiles[0].Strategies = append(p.Profiles[0].Strategies, policy.Enabled{
			Strategy: policy.Strategy{
				Name: fmt.Sprintf("above%d", percent), Scope: schemas.UsageKind, NewArgs: func() policy.Args { return &above{} },
				Wakes: []schemas.DeltaKind{schemas.NodeLoad},
			},
			Args: json.RawMessage(fmt.Sprintf(`{"percent":%d}`, percent)),
		})
	}
	return p
}

// tenCores returns a node that offers ten cores.
func tenCores(name string) *corev1.Node {
	return named(name, func(n *corev1.Node) { n.Status.Allocatable = amount("cpu", "10", "memory", "1000", "pods", "10") })
}

func cores(cpu string) corev1.ResourceList { return amount("cpu", cpu, "memory", "100") }

// told is a load source whose values the test sets.
type told struct {
	answer chan struct{} // answers when closed; nil answers at once
	smooth bool
	mu     sync.Mutex
	nodes  map[string]corev1.ResourceList
	pods   map[types.NamespacedName]corev1.ResourceList
	// The number of calls of each method.
	askedNodes, askedPods, closed int
}

func (s *told) Nodes(context.Context) (map[string]load.Sample, error) {
	if s.answer != nil {
		<-s.answer
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.askedNodes++
	samples := map[string]load.Sample{}
	for name, used := range s.nodes {
		samples[name] = load.Sample{Used: used, Good: time.Now().Add(time.Minute)}
	}
	return samples, nil
}

func (s *told) Pods(context.Context) (map[types.NamespacedName]corev1.ResourceList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.askedPods++
	return maps.Clone(s.pods), nil
}

func (s *told) Smooth() bool { return s.smooth }

func (s *told) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed++
}

// counted returns the number of calls of each method since the last call of counted.
func (s *told) counted() (nodes, pods, closed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	nodes, pods, closed = s.askedNodes, s.askedPods, s.closed
	s.askedNodes, s.askedPods, s.closed = 0, 0, 0
	return nodes, pods, closed
}

// round sets the load of nodes and waits for the next sample, which is due every five seconds.
func (s *told) round(nodes map[string]corev1.ResourceList) {
	s.mu.Lock()
	s.nodes = nodes
	s.mu.Unlock()
	time.Sleep(5 * time.Second)
	synctest.Wait()
}

// byLoad runs a leading watcher in a cluster with two nodes and a pod on the first. The script sets the loads.
func byLoad(t *testing.T, script func(loads *told, bus *collected)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		loads, bus := &told{}, &collected{}
		overTwoNodes(t, bus, loads, func(*Watcher) {
			bus.take(t)
			script(loads, bus)
		})
	})
}

// overTwoNodes is byLoad with the default policy.
func overTwoNodes(t *testing.T, bus *collected, loads *told, script func(*Watcher)) {
	t.Helper()
	plan := compiled(t, loadPolicy())
	leadingBy(t, newFixture(t, plan, tenCores("n1"), tenCores("n2"), placed("a", "n1")), bus, loads, func(w *Watcher, _ *collected) { script(w) })
}

// loadDeltas returns the deltas published since the last call, as NODE: BEFORE → AFTER of cpu.
func loadDeltas(t *testing.T, bus *collected) []string {
	t.Helper()
	synctest.Wait()
	bus.mu.Lock()
	defer bus.mu.Unlock()
	var list []string
	for _, e := range bus.events {
		if e.Type != schemas.DeltaType {
			continue
		}
		d := schematest.Decode[schemas.Delta](t, e)
		text := func(s *schemas.State) string {
			if s == nil {
				return "unknown"
			}
			return fmt.Sprintf("%v", s.Load)
		}
		list = append(list, fmt.Sprintf("%s %s: %s, %s", d.Kind, d.Object.Name, text(d.Before), text(d.After)))
	}
	bus.events = slices.DeleteFunc(bus.events, func(e schemas.Event) bool { return e.Type == schemas.DeltaType })
	return list
}

func TestLoadThresholdCrossed(t *testing.T) {
	byLoad(t, func(loads *told, bus *collected) {
		for _, step := range []struct {
			name   string
			loads  map[string]corev1.ResourceList
			deltas []string
			woken  []string
		}{
			{"nothing is known", nil, nil, nil},
			{"no node is over-used", map[string]corev1.ResourceList{"n1": cores("1"), "n2": cores("1")}, nil, nil},
			{"one comes to be", map[string]corev1.ResourceList{"n1": cores("6"), "n2": cores("2")},
				[]string{"node.load n1: map[cpu:10 memory:10], map[cpu:60 memory:10]"}, []string{"above50 cluster: node.load node/n1"}},
			{"it stays so", map[string]corev1.ResourceList{"n1": cores("7"), "n2": cores("3")}, nil, nil},
			{"it crosses a second threshold", map[string]corev1.ResourceList{"n1": cores("9"), "n2": cores("4")},
				[]string{"node.load n1: map[cpu:70 memory:10], map[cpu:90 memory:10]"}, []string{"above80 cluster: node.load node/n1"}},
			{"two nodes change for both strategies", map[string]corev1.ResourceList{"n1": cores("5"), "n2": cores("8500m")},
				[]string{"node.load n1: map[cpu:90 memory:10], map[cpu:50 memory:10]", "node.load n2: map[cpu:40 memory:10], map[cpu:85 memory:10]"},
				[]string{"above50 cluster: node.load node/n1 node.load node/n2", "above80 cluster: node.load node/n1 node.load node/n2"}},
			{"a sample is missing", map[string]corev1.ResourceList{"n1": cores("5")},
				[]string{"node.load n2: map[cpu:85 memory:10], unknown"}, []string{"above50 cluster: node.load node/n2", "above80 cluster: node.load node/n2"}},
		} {
			loads.round(step.loads)
			if got := loadDeltas(t, bus); !slices.Equal(got, step.deltas) {
				t.Errorf("%s: deltas\ngot  %q\nwant %q", step.name, got, step.deltas)
			}
			time.Sleep(2 * usageDebounce)
			if got := scopesOf(t, bus); !slices.Equal(got, step.woken) {
				t.Errorf("%s: woken\ngot  %q\nwant %q", step.name, got, step.woken)
			}
		}
	})
}

// One absurd sample must not count as a tenth of a smoothed load, which can be plausible.
func TestAbsurdLoadNotSmoothed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loads, bus := &told{smooth: true}, &collected{}
		overTwoNodes(t, bus, loads, func(*Watcher) {
			bus.take(t)
			for _, cpu := range []string{"1", "100", "1"} {
				loads.round(map[string]corev1.ResourceList{"n1": cores(cpu), "n2": cores("1")})
				time.Sleep(2 * usageDebounce)
				if got := scopesOf(t, bus); got != nil {
					t.Errorf("after a load of %s of 10 cores: got %q, want nothing", cpu, got)
				}
			}
		})
	})
}

func TestOverusedNodeRepeated(t *testing.T) {
	byLoad(t, func(loads *told, bus *collected) {
		var got []string
		for began := time.Now(); time.Since(began) < 5*time.Minute; {
			loads.round(map[string]corev1.ResourceList{"n1": cores("6")})
			for _, scope := range scopesOf(t, bus) {
				got = append(got, fmt.Sprint(time.Since(began).Round(10*time.Second), " ", scope))
			}
		}
		want := []string{"10s above50 cluster: node.load node/n1", "2m10s above50 cluster: due", "4m10s above50 cluster: due"}
		expect.Equal(t, "result", got, want)
	})
}

func TestLoadPauseAfterMove(t *testing.T) {
	byLoad(t, func(loads *told, bus *collected) {
		moved := time.Now()
		bus.tell(movedBy(t, moved))
		loads.round(map[string]corev1.ResourceList{"n1": cores("9")})
		time.Sleep(time.Until(moved.Add(scope.LoadCooldown - time.Second)))
		expect.Equal(t, "before two minutes are over", scopesOf(t, bus), []string{"above80 cluster: node.load node/n1"})
		time.Sleep(2 * time.Second)
		expect.Equal(t, "when they are over", scopesOf(t, bus), []string{"above50 cluster: resync node.load node/n1"})
	})
}

func TestLoadInScope(t *testing.T) {
	usage := func(cpu, memory, pods string) corev1.ResourceList {
		return amount("cpu", cpu, "memory", memory, "pods", pods)
	}
	type shown struct {
		Nodes []schemas.NodeUsage
		Pods  map[string]corev1.ResourceList
	}
	want := shown{
		[]schemas.NodeUsage{
			{Name: "n1", Capacity: usage("10", "1000", "10"), Used: usage("9", "100", "2")},
			{Name: "n2", Capacity: usage("10", "1000", "10"), Used: usage("1", "100", "1")},
		},
		map[string]corev1.ResourceList{"a": usage("4", "100", "1"), "b": nil},
	}
	synctest.Test(t, func(t *testing.T) {
		loads, bus := &told{pods: map[types.NamespacedName]corev1.ResourceList{
			{Namespace: "web", Name: "a"}: cores("4"), {Namespace: "web", Name: "c"}: cores("1"),
		}}, &collected{}
		f := newFixture(t, compiled(t, loadPolicy()), tenCores("n1"), tenCores("n2"), tenCores("n3"), placed("a", "n1"),
			placed("b", "n1", numbered("b")), placed("c", "n2", numbered("c")))
		leadingBy(t, f, bus, loads, func(*Watcher, *collected) {
			loads.round(map[string]corev1.ResourceList{"n1": cores("9"), "n2": cores("1")})
			time.Sleep(2 * usageDebounce)
			events := bus.scopes()
			if len(events) != 2 {
				t.Fatalf("got %d scopes, want one of each strategy", len(events))
			}
			for _, e := range events {
				scope := schematest.Decode[schemas.UsageScope](t, e)
				got := shown{scope.Nodes, map[string]corev1.ResourceList{}}
				for _, p := range scope.Pods {
					got.Pods[p.Pod.Name] = p.Used
				}
				if g, w := string(expect.ToJSON(t, got)), string(expect.ToJSON(t, want)); g != w {
					t.Errorf("%s\ngot  %s\nwant %s", scope.Strategy, g, w)
				}
			}
			for _, want := range []int{2, 0} {
				loads.round(map[string]corev1.ResourceList{"n2": cores("1")})
				time.Sleep(2 * usageDebounce)
				expect.Equal(t, "without the load of n1", len(bus.scopes()), want)
			}
		})
	})
}

func TestLoadScopeNeedsMeasurement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loads, bus := &told{answer: make(chan struct{})}, &collected{}
		answered := schemas.ScopeHead{Kind: schemas.UsageKind, Key: "cluster", Profile: "p", Strategy: "above50"}
		bus.answers = []schemas.ScopeHead{answered} // of the previous leader
		overTwoNodes(t, bus, loads, func(*Watcher) {
			time.Sleep(4 * time.Second)
			expect.Equal(t, "before the first answer", scopesOf(t, bus), nil)
			close(loads.answer)
			time.Sleep(2 * usageDebounce)
			expect.Equal(t, "after it", scopesOf(t, bus), []string{"above50 cluster: resync resync"})
		})
	})
}

func TestNeedlessLoadMeasurement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loads, bus := &told{}, &collected{}
		overTwoNodes(t, bus, loads, func(w *Watcher) {
			loads.round(nil)
			if nodes, pods, closed := loads.counted(); nodes != 2 || pods != 0 || closed != 0 {
				t.Errorf("without an over-used node: %d calls of Nodes, %d of Pods; want 2 and 0", nodes, pods)
			}
			loads.round(map[string]corev1.ResourceList{"n1": cores("6")})
			if nodes, pods, closed := loads.counted(); nodes != 1 || pods != 1 || closed != 0 {
				t.Errorf("with an over-used node: %d calls of Nodes, %d of Pods; want 1 and 1", nodes, pods)
			}
			for _, p := range []policy.Policy{scopetest.GroupPolicy(), loadPolicy()} {
				expect.Must(t, w.SetPolicy(p))
				time.Sleep(9 * time.Second)
			}
			if nodes, pods, closed := loads.counted(); nodes != 2 || pods != 2 || closed != 1 {
				t.Errorf("after a policy without load and one with load: %d calls of Nodes, %d of Pods, %d of Close; want 2, 2 and 1",
					nodes, pods, closed)
			}
		})
	})
}
