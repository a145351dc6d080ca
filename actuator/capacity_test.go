package actuator

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/fixtures"
)

// threeForOneSlot returns an actuator of a cluster with three pods on worker-1, which is cordoned, and capacity for one
// pod on worker-2.
func threeForOneSlot(t *testing.T, args policy.EvictorArgs, facts ...policy.Fact) (*Actuator, *cluster.Cache, []*corev1.Pod) {
	t.Helper()
	return threePods(t, map[string]string{"worker-2": "1"}, true, args, policy.Strategy{Traits: policy.Traits{Facts: facts}})
}

// threePods returns an actuator of a cluster with three pods on worker-1, which may be cordoned. The other nodes have
// the given CPU.
func threePods(
	t *testing.T, others map[string]string, cordoned bool, args policy.EvictorArgs, strategy policy.Strategy,
) (*Actuator, *cluster.Cache, []*corev1.Pod) {
	t.Helper()
	objects := []any{fixtures.Node("worker-1", withCPU("4"), func(n *corev1.Node) { n.Spec.Unschedulable = cordoned })}
	for name, cpu := range others {
		objects = append(objects, fixtures.Node(name, withCPU(cpu)))
	}
	var pods []*corev1.Pod
	for i := range 3 {
		p := fixtures.Pod(fmt.Sprint("api-", i), "worker-1", fixtures.ControlledBy("ReplicaSet", "rs"), fixtures.Requests("1"))
		p.UID = types.UID(fmt.Sprint("uid-", i))
		objects, pods = append(objects, p), append(pods, p)
	}
	cache := offline(t, objects...)
	evictor, err := policy.NewEvictor(args)
	expect.Must(t, err)
	strategy.Name = wish().Strategy
	a := New(Config{Facts: cache, Capacity: cache, Policy: policy.Policy{Profiles: []policy.Profile{{
		Name: "default", Evictor: evictor, Strategies: []policy.Enabled{{Strategy: strategy, Args: json.RawMessage("{}")}},
	}}}})
	return a, cache, pods
}

// withCPU gives a node capacity for that much CPU in ten pods. The scheduler does not spread pods over nodes without labels.
func withCPU(cpu string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Labels, n.Status.Allocatable = nil, fixtures.Resources("cpu", cpu, "pods", "10")
	}
}

func TestNodeFitGate(t *testing.T) {
	ask := func(a *Actuator, p *corev1.Pod) *move.Refusal {
		i := wish()
		i.Pod = schemas.PodRef{Namespace: p.Namespace, Name: p.Name, UID: p.UID}
		return a.judge(i, p, noon)
	}
	outcomes := func(a *Actuator, pods []*corev1.Pod) (got []schemas.ReasonCode) {
		for _, p := range pods {
			got = append(got, cmp.Or(ask(a, p), new(move.Refusal)).Reason)
		}
		return got
	}
	one := []schemas.ReasonCode{"", schemas.ReasonNodeFit, schemas.ReasonNodeFit}
	t.Run("three_pods_for_one_slot", func(t *testing.T) {
		a, cache, pods := threeForOneSlot(t, policy.EvictorArgs{NodeFit: true})
		expect.Equal(t, "outcomes", outcomes(a, pods), one)
		expect.Equal(t, "rejection", ask(a, pods[1]), &move.Refusal{
			Outcome: schemas.Deferred, Reason: schemas.ReasonNodeFit,
			Message:  "NodeFit: does not fit on the only other node: resource, while capacity is reserved for the replacements of web/api-0",
			Blockers: []schemas.ObjectRef{{Kind: "Pod", Namespace: "web", Name: "api-0", UID: "uid-0"}},
		})
		cache.Release("uid-0")
		expect.Equal(t, "outcomes after the first move has ended", outcomes(a, pods[1:]), one[:2])
	})
	t.Run("a_strategy_needs_it_without_nodeFit", func(t *testing.T) {
		a, _, pods := threeForOneSlot(t, policy.EvictorArgs{}, policy.FactFit)
		expect.Equal(t, "outcomes", outcomes(a, pods), one)
	})
	t.Run("nothing_asks_for_it", func(t *testing.T) {
		a, _, pods := threeForOneSlot(t, policy.EvictorArgs{})
		expect.Equal(t, "outcomes", outcomes(a, pods), []schemas.ReasonCode{"", "", ""})
	})
	t.Run("pods_that_cannot_be_judged", func(t *testing.T) {
		for _, c := range []struct {
			args policy.EvictorArgs
			want schemas.ReasonCode
		}{{policy.EvictorArgs{NodeFit: true}, schemas.ReasonNodeFit}, {policy.EvictorArgs{}, ""}} {
			a, _, pods := threeForOneSlot(t, c.args, policy.FactFit)
			pods[0].Spec.SchedulerName = "other"
			expect.Equal(t, "outcome", cmp.Or(ask(a, pods[0]), new(move.Refusal)).Reason, c.want)
		}
	})
	t.Run("a_request_overrides_it", func(t *testing.T) {
		a, _, pods := threeForOneSlot(t, policy.EvictorArgs{NodeFit: true})
		i := wish()
		i.Strategy, i.Asked = schemas.RequestStrategy, &schemas.Asked{Override: []string{policy.NodeFitRule}}
		for _, p := range pods {
			i.Pod = schemas.PodRef{Namespace: p.Namespace, Name: p.Name, UID: p.UID}
			expect.Equal(t, "rejection", a.judge(i, p, noon), nil)
		}
	})
}

// api-0 is the only pod that is moved; uid-1 is the pod that would take the slot.
func TestReservationOfNextSession(t *testing.T) {
	moved := before("uid-0", 0)
	moved.Settled = false
	synctest.Test(t, func(t *testing.T) {
		a, cache, pods := threeForOneSlot(t, policy.EvictorArgs{NodeFit: true})
		fits := func() bool {
			synctest.Wait()
			ok, _, _ := cache.Elsewhere(pods[1], policy.Targets{})
			return ok
		}
		moved.Begun, moved.Moved = time.Now(), time.Now()
		m := remembering(t, map[string]any{moved.key(): moved})
		a.cfg.Bus, a.cfg.View, a.ledger, a.follows = m, webPods("uid-0"), m, true
		var got []bool
		for range 2 {
			stop := leads(t, a, nil)
			got = append(got, fits())
			stop()
			got = append(got, fits())
		}
		expect.Equal(t, "another pod fits while the actuator leads, and after that", got, []bool{false, true, false, true})

		// The session ends before the API server answers: it gives the move up, and the next one finds it in the ledger.
		moved.Moved = time.Time{}
		x := &inFlight{record: moved, at: keysOf(moved.Intent, a.cfg.View)}
		s := newSession(t.Context(), func() bool { return false }, a, nil, recorder{})
		defer s.queues.shutDown()
		defer s.ledgerWrites.queue.ShutDown()
		s.moves.add(x, a.cfg.View)
		cache.Reserve(cluster.Move{Pod: pods[0], Scheduler: a.scheduler.Load()})
		got = []bool{fits()}
		s.abandon(x)
		got = append(got, fits())
		s.restore([]*inFlight{x})
		expect.Equal(t, "another pod fits during the call, then, and in the next session", append(got, fits()),
			[]bool{false, true, false})
	})
}

// overHalf are the arguments of a strategy that moves pods from nodes with more than half of their CPU requested.
type overHalf struct{}

func (overHalf) Validate() error { return nil }

func (overHalf) Resources() []corev1.ResourceName { return []corev1.ResourceName{"cpu"} }

func (overHalf) Load() policy.Load { return policy.Load{} }

func (overHalf) Sources(nodes []schemas.NodeUsage) (names []string) {
	for _, n := range nodes {
		used, capacity := n.Used["cpu"], n.Capacity["cpu"]
		if 2*used.MilliValue() > capacity.MilliValue() {
			names = append(names, n.Name)
		}
	}
	return names
}

// overMean are the arguments of a strategy that moves pods from nodes whose part of requested CPU is above the mean.
type overMean struct{ overHalf }

func (overMean) Sources(nodes []schemas.NodeUsage) (names []string) {
	parts, sum := make([]float64, len(nodes)), 0.0
	for i, n := range nodes {
		used, capacity := n.Used["cpu"], n.Capacity["cpu"]
		parts[i] = used.AsApproximateFloat64() / capacity.AsApproximateFloat64()
		sum += parts[i]
	}
	for i, n := range nodes {
		if parts[i]*float64(len(nodes)) > sum {
			names = append(names, n.Name)
		}
	}
	return names
}

// The only owner of the pods does not control them, so their replicas are unknown.
func TestInVainWithoutController(t *testing.T) {
	a, cache, pods := threePods(t, map[string]string{"worker-2": "4"}, false, policy.EvictorArgs{},
		policy.Strategy{Traits: policy.Traits{SpreadsReplicas: true}})
	for _, p := range pods {
		p.OwnerReferences[0].Controller = nil
		expect.Must(t, cache.Set(p))
	}
	expect.Equal(t, "rejection", a.judge(wish(), pods[0], noon), nil)
}

// Three pods with 1 CPU each are on worker-1, which has 4 CPUs and is schedulable.
func TestInVain(t *testing.T) {
	balance := policy.Strategy{Scope: schemas.UsageKind, NewArgs: func() policy.Args { return new(overHalf) }}
	// With the replacement on worker-2, worker-1 and worker-2 use half of their CPU. An empty third node lowers the mean if
	// it counts. The scheduler places nothing there.
	mean, half := policy.Strategy{Scope: schemas.UsageKind, NewArgs: func() policy.Args { return new(overMean) }}, map[string]string{"worker-2": "2"}
	const another = "the scheduler would place the replacement on worker-2, which RemovePodsViolatingNodeTaints takes pods from, too"
	for _, c := range []struct {
		name     string
		others   map[string]string
		strategy policy.Strategy
		want     string // empty means the pod moves
		third    *corev1.Node
	}{
		{"the_scheduler_would_return_the_pod", map[string]string{"worker-2": "1"}, policy.Strategy{},
			"the scheduler would place the replacement on worker-1 again", nil},
		{"another_node_is_better", map[string]string{"worker-2": "4"}, policy.Strategy{}, "", nil},
		{"a_strategy_that_renews_pods", map[string]string{"worker-2": "1"}, policy.Strategy{Traits: policy.Traits{RenewsPods: true}}, "", nil},
		{"pods_that_may_return", map[string]string{"worker-2": "1"}, policy.Strategy{Traits: policy.Traits{MayReturn: true}}, "", nil},
		{"fewer_replicas_there", map[string]string{"worker-2": "4"}, policy.Strategy{Traits: policy.Traits{SpreadsReplicas: true}}, "", nil},
		{"the_node_would_lose_pods_itself", map[string]string{"worker-2": "1900m"}, balance,
			another, nil},
		{"the_node_would_keep_the_pod", map[string]string{"worker-2": "8"}, balance, "", nil},
		{"the_third_node_lowers_the_mean", half, mean, another, fixtures.Node("worker-3", fixtures.TaintedBy("dedicated"))},
		{"the_third_node_is_not_ready", half, mean, "",
			fixtures.Node("worker-3", fixtures.TaintedBy("dedicated"), fixtures.Readiness(corev1.ConditionFalse))},
		{"another_program_drains_the_third_node", half, mean, "", fixtures.Node("worker-3", fixtures.TaintedBy("karpenter.sh/disrupted"))},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, cache, pods := threePods(t, c.others, false, policy.EvictorArgs{}, c.strategy)
			if c.third != nil {
				expect.Must(t, cache.Set(c.third))
			}
			got := a.judge(wish(), pods[0], noon)
			var want *move.Refusal
			if c.want != "" {
				want = &move.Refusal{Outcome: schemas.Deferred, Reason: schemas.ReasonInVain, Message: c.want}
			}
			expect.Equal(t, "rejection", got, want)
		})
	}
}

// The scheduler does not know that another program empties worker-2, so it may place a replacement there.
func TestInVainOnExcludedNode(t *testing.T) {
	inVain := &move.Refusal{
		Outcome: schemas.Deferred, Reason: schemas.ReasonInVain, Message: "the scheduler would place the replacement on worker-2, " +
			`which is excluded: its annotation weave.works/kured-reboot-in-progress is "since noon"`,
	}
	for _, c := range []struct {
		name     string
		strategy policy.Strategy
		others   map[string]string
		want     *move.Refusal
	}{
		{"the_best_node", policy.Strategy{}, map[string]string{"worker-3": "4"}, inVain},
		{"the_only_node", policy.Strategy{}, nil, inVain},
		{"the_only_node_with_nodeFit", policy.Strategy{Traits: policy.Traits{Facts: []policy.Fact{policy.FactFit}}}, nil, &move.Refusal{
			Outcome: schemas.Deferred, Reason: schemas.ReasonNodeFit,
			Message: "NodeFit: there is no other node that is ready and not excluded",
		}},
		{"another_node_is_better", policy.Strategy{}, map[string]string{"worker-3": "64"}, nil},
		{"a_strategy_that_renews_pods", policy.Strategy{Traits: policy.Traits{RenewsPods: true}}, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, cache, pods := threePods(t, c.others, true, policy.EvictorArgs{}, c.strategy)
			expect.Must(t, cache.Set(fixtures.Node("worker-2", withCPU("16"), fixtures.RestartedByKured)))
			expect.Equal(t, "rejection", a.judge(wish(), pods[0], noon), c.want)
		})
	}
}

func TestRoomForSecondPod(t *testing.T) {
	for _, c := range []struct {
		name, scheduler, cpu string
		want                 bool
	}{
		{"fits", "", "1", true},
		{"fits_nowhere", "", "0", false},
		{"is_not_judged", "other", "0", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, _, pods := threePods(t, map[string]string{"worker-2": c.cpu}, false, policy.EvictorArgs{}, policy.Strategy{})
			pods[0].Spec.SchedulerName = c.scheduler
			got, _ := a.takesSecond(pods[0])
			expect.Equal(t, "another node takes it", got, c.want)
		})
	}
}

// The answer to the first change was lost, and no other node has room when the actuator asks the gates again.
func TestPlannedMoveWithoutRoom(t *testing.T) {
	for _, c := range []struct {
		name, owner, want string
	}{
		{"its_replacement_took_the_room", "rs", "step"},
		{"another_pod_took_the_room", "other", "cancel"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, cache, pods := threeForOneSlot(t, policy.EvictorArgs{NodeFit: true})
			tm := recalled(t, newMemory(), *a.policy.Load())
			view := cache.Workloads()
			tm.cfg.View, tm.cfg.Capacity = view, cache
			live := pods[0].DeepCopy()
			live.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
			tm.cfg.Client = serving(live).client(t)
			x := &inFlight{
				record: record{
					Intent: wish(), Method: schemas.MethodSurge, State: move.State(`{"phase":"Planned"}`), Begun: noon, Moved: noon,
				},
				at: keysOf(wish(), view), seen: view.Latest(), reported: true,
			}
			tm.moves.add(x, view)
			other := pods[0].DeepCopy()
			other.Name, other.UID, other.Spec.NodeName, other.OwnerReferences[0].UID = "new", "new", "worker-2", types.UID(c.owner)
			expect.Must(t, cache.Set(other))
			method := &stepped{began: time.Now()}
			tm.step(t.Context(), x, method, x.State, false)
			tm.publishing.Wait()
			word, _, _ := strings.Cut(strings.Join(method.calls, ", "), " ")
			expect.Equal(t, "first call", word, c.want)
		})
	}
}
