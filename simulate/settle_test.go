package simulate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/simulate"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// settle runs rounds with a policy and summarizes their moves, POD FROM>TO, and placements, POD >TO.
func settle(t *testing.T, c simulate.Config, objects []metav1.Object, rounds int) (moves [][]string, s simulate.Settlement) {
	t.Helper()
	c.Functions, c.Now = functions.All(), at
	s, err := simulate.Settle(t.Context(), c, objects, rounds)
	expect.Must(t, err)
	for _, r := range s.Rounds {
		var in []string
		for _, m := range r.Moves {
			in = append(in, fmt.Sprintf("%s %s>%s", m.Pod.Name, m.Node, m.To))
		}
		for _, p := range r.Placed {
			in = append(in, fmt.Sprintf("%s >%s", p.Pod.Name, p.Node))
		}
		moves = append(moves, in)
	}
	return moves, s
}

// avoided keeps other pods away from a node.
const avoided = `taints: [{key: gone, effect: NoSchedule}]`

// TestSettle runs a policy with RemovePodsViolatingNodeTaints unless the case names another strategy.
func TestSettle(t *testing.T) {
	// Moves pods off a node with a taint that the scheduler only avoids.
	const anyway = `RemovePodsViolatingNodeTaints {includedTaints: [soft], includePreferNoSchedule: true}`
	const soft = `taints: [{key: soft, effect: PreferNoSchedule}]`
	budget := `
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: r, namespace: a}
spec: {minAvailable: 1, selector: {matchLabels: {app: r}}}
status: {currentHealthy: 2, desiredHealthy: 1, disruptionsAllowed: 1}
---`
	running := func(p string) string {
		return strings.ReplaceAll(p, "status: {phase: Running}", `status: {phase: Running, conditions: [{type: Ready, status: "True"}]}`)
	}
	for _, c := range []struct {
		name, strategy, scheduler string
		objects                   []string
		rounds                    int
		want                      [][]string
		settled                   bool
		loop                      *int
		pending                   int
	}{
		{name: "empty_node_before_used_node", objects: []string{
			node("n1", 4, avoided), node("n2", 4), node("n3", 4), pod("one", "n1", "1"), pod("two", "n2", "1"),
		}, want: [][]string{{"one n1>n3"}, nil}, settled: true},
		{name: "used_node_with_MostAllocated", scheduler: "MostAllocated", objects: []string{
			node("n1", 4, avoided), node("n2", 4), node("n3", 4), pod("one", "n1", "1"), strings.ReplaceAll(pod("two", "n3", "1"), "app: r", "app: s"),
		}, want: [][]string{{"one n1>n3"}, nil}, settled: true},
		{name: "first_of_equal_nodes", objects: []string{
			node("n1", 4, avoided), node("n2", 4), node("n3", 4), pod("one", "n1", "1"),
		}, want: [][]string{{"one n1>n2"}, nil}, settled: true},
		{name: "one_slot_for_two", objects: []string{
			node("n1", 4, avoided), node("n2", 1), pod("one", "n1", "1"), pod("two", "n1", "1"),
		}, want: [][]string{{"one n1>n2", "two n1>"}, nil}, settled: true, pending: 1},
		{name: "pending_pod_takes_the_place_of_a_move", objects: []string{
			node("n1", 4, avoided), node("n2", 1), pod("one", "n1", "2"), strings.ReplaceAll(pod("waits", `""`, "4", "tolerations: [{operator: Exists}]"), "name: r", "name: s"),
		}, want: [][]string{{"one n1>", "waits >n1"}, nil}, settled: true, pending: 1},
		{name: "stateful_set_keeps_the_name", objects: []string{
			node("n1", 4, avoided), node("n2", 4, avoided), node("n3", 4), strings.ReplaceAll(pod("one", "n1", "1"), "ReplicaSet", "StatefulSet"),
		}, want: [][]string{{"one n1>n3"}, nil}, settled: true},
		{name: "budget_allows_one_pod_per_round", objects: []string{
			budget, node("n1", 4, avoided), node("n2", 4), running(pod("one", "n1", "1")), running(pod("two", "n1", "1")),
		}, want: [][]string{{"one n1>n2"}, {"two n1>n2"}, nil}, settled: true},
		{name: "budget_counts_pending_pods", objects: []string{
			budget, node("n1", 4, avoided), node("n2", 1), running(pod("one", "n1", "2")), running(pod("two", "n1", "1")),
		}, want: [][]string{{"one n1>"}, nil}, settled: true, pending: 1},
		{name: "loop", strategy: "PodLifeTime {states: [Running]}", objects: []string{
			node("n1", 4), node("n2", 1), pod("one", "n1", "2"),
		}, want: [][]string{{"one n1>n1"}, {"one~1 n1>n1"}}, loop: new(1)},
		{name: "no_move_back_to_its_node", strategy: anyway, objects: []string{
			node("n1", 4, soft), node("n2", 1), pod("one", "n1", "2"),
		}, want: [][]string{nil}, settled: true},
		{name: "too_few_rounds", rounds: 1, objects: []string{
			budget, node("n1", 4, avoided), node("n2", 4), running(pod("one", "n1", "1")), running(pod("two", "n1", "1")),
		}, want: [][]string{{"one n1>n2"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.strategy == "" {
				c.strategy = taints
			}
			if c.rounds == 0 {
				c.rounds = 10
			}
			p := parse(t, profile("p", "{}", c.strategy))
			p.Scheduler.Profile = c.scheduler
			got, s := settle(t, simulate.Config{Policy: p}, cluster(t, c.objects...), c.rounds)
			if !slices.EqualFunc(got, c.want, slices.Equal) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if pending := s.Rounds[len(s.Rounds)-1].After.Pending; s.Settled != c.settled || pending != c.pending ||
				(s.Loop == nil) != (c.loop == nil) || s.Loop != nil && *s.Loop != *c.loop {
				t.Errorf("settled %t, loop %v, %d pending, want %t, %v, %d", s.Settled, s.Loop, pending, c.settled, c.loop, c.pending)
			}
		})
	}
}

// The number of a replacement must increase, and the pods of a StatefulSet must keep their names.
func TestSettleNames(t *testing.T) {
	var got []string
	for _, kind := range []string{"ReplicaSet", "StatefulSet"} {
		_, s := settle(t, simulate.Config{Policy: parse(t, profile("p", "{}", taints))}, cluster(t,
			node("n1", 4, avoided), node("n2", 4), strings.ReplaceAll(pod("one", "n1", "1"), "ReplicaSet", kind),
			strings.ReplaceAll(pod("two~3", "n1", "1"), "ReplicaSet", kind)), 10)
		for _, m := range s.Rounds[0].Moves {
			got = append(got, m.Replacement)
		}
	}
	if want := []string{"one~1", "two~4", "one", "two~3"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A new pod on the same node must be another state if the strategy wants new pods.
func TestSettleRenewed(t *testing.T) {
	objects := cluster(t, node("n1", 4), node("n2", 4), restarted("a", 11, ""))
	got, s := settle(t, simulate.Config{Policy: parse(t, profile("p", "{}", restarts))}, objects, 10)
	if want := [][]string{{"a n1>n1"}, nil}; !slices.EqualFunc(got, want, slices.Equal) || !s.Settled {
		t.Errorf("got %q, settled %t, want %q", got, s.Settled, want)
	}
}

// The load of a pod must move with it.
func TestSettleLoads(t *testing.T) {
	used := func(cpu string) corev1.ResourceList { return corev1.ResourceList{"cpu": resource.MustParse(cpu)} }
	low := strings.Replace(profile("p", "{}", `LowNodeUtilization {thresholds: {cpu: 30}, targetThresholds: {cpu: 50}, `+
		`metricsUtilization: {source: KubernetesMetrics}}`), "deschedule", "balance", 1)
	p := parse(t, low, "metricsProviders: [{source: KubernetesMetrics}]\n")
	loads := simulate.Loads{
		Nodes: map[string]corev1.ResourceList{"n1": used("3"), "n2": used("100m")},
		Pods: map[types.NamespacedName]corev1.ResourceList{
			{Namespace: "a", Name: "one"}: used("1500m"), {Namespace: "a", Name: "two"}: used("1500m"),
		},
	}
	got, s := settle(t, simulate.Config{Policy: p, Loads: loads}, cluster(t,
		node("n1", 4), node("n2", 4), pod("one", "n1", "100m"), pod("two", "n1", "100m")), 10)
	if want := [][]string{{"one n1>n2"}, nil}; !slices.EqualFunc(got, want, slices.Equal) || !s.Settled {
		t.Errorf("got %q, settled %t, want %q", got, s.Settled, want)
	}
	if cpu := loads.Nodes["n1"]["cpu"]; cpu.String() != "3" {
		t.Errorf("the caller's load of n1 became %s", cpu.String())
	}
}

// An impossible load of a node must move nothing.
func TestAbsurdLoad(t *testing.T) {
	low := strings.Replace(profile("p", "{}", `LowNodeUtilization {thresholds: {cpu: 30}, targetThresholds: {cpu: 50}, `+
		`metricsUtilization: {source: KubernetesMetrics}}`), "deschedule", "balance", 1)
	p := parse(t, low, "metricsProviders: [{source: KubernetesMetrics}]\n")
	for _, c := range []struct {
		cpu  string
		want [][]string
	}{
		{"8", [][]string{{"one n1>n2"}, nil}},
		{"8001m", [][]string{nil}},
		{"1e12", [][]string{nil}},
	} {
		used := func(cpu string) corev1.ResourceList { return corev1.ResourceList{"cpu": resource.MustParse(cpu)} }
		loads := simulate.Loads{
			Nodes: map[string]corev1.ResourceList{"n1": used(c.cpu), "n2": used("0")},
			Pods:  map[types.NamespacedName]corev1.ResourceList{{Namespace: "a", Name: "one"}: used("1")},
		}
		got, _ := settle(t, simulate.Config{Policy: p, Loads: loads}, cluster(t,
			node("n1", 4), node("n2", 4), pod("one", "n1", "100m"), pod("two", "n1", "100m")), 10)
		if !slices.EqualFunc(got, c.want, slices.Equal) {
			t.Errorf("a load of %s on a node with 4 cores: got %q, want %q", c.cpu, got, c.want)
		}
	}
}

// TestSettleState compares a whole state.
func TestSettleState(t *testing.T) {
	_, s := settle(t, simulate.Config{Policy: parse(t, profile("p", "{}", taints))}, cluster(t,
		node("n1", 4, avoided), node("n2", 4), node("n3", 4), pod("one", "n1", "1", evenly), pod("two", "n1", "2", evenly)), 10)
	want := `{[{p RemovePodsViolatingNodeTaints 2 0}] [{ReplicaSet a/r kubernetes.io/hostname DoNotSchedule 1 2 map[n1:2 n2:0 n3:0]}] ` +
		`[{n1 2 75 0} {n2 0 0 0} {n3 0 0 0}] 0}`
	expect.Equal(t, "before", fmt.Sprint(s.Before), want)
}
