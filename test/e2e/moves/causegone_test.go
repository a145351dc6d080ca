package moves

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/scene"
)

// doNotDisrupt is a patch that protects a pod.
const doNotDisrupt = `{"metadata":{"annotations":{"karpenter.sh/do-not-disrupt":"true"}}}`

// TestLateAnnotation protects pods of a tainted node while their intents wait for the rate. They stay, although a new policy raises
// the rate, until the annotation goes.
func TestLateAnnotation(t *testing.T) {
	s := scene.New(t, 2)
	for i := range 4 {
		s.AddDeployment(fmt.Sprint("api-", i), 1, scene.PreferNode(s.Nodes[0]))
	}
	before := s.PodsOn(s.Nodes[0])
	dir, slow := filetest.ShortDir(t), "rate: {evictionsPerSecond: 0.001, burst: 1}"
	file := s.Policy(slow)
	s.StartRun(file, dir).WaitLeads()
	events := scene.Record(t, scene.BusIn(dir))
	s.Taint(s.Nodes[0], "dedicated")
	s.WaitEvicted(0, 1)
	free, protected := "", map[string]bool{}
	for _, name := range s.PodsOn(s.Nodes[0]) {
		if free == "" {
			free = name
			continue
		}
		protected[name] = true
		s.PatchPod(name, doNotDisrupt)
	}
	events.WaitVerdicts("the intents of the protected pods are withdrawn", func(all []schemas.Verdict) bool {
		withdrawn := map[string]bool{}
		for _, v := range scene.WithOutcome(schemas.Withdrawn, all) {
			withdrawn[v.Intent.Pod.Name] = true
		}
		return reflect.DeepEqual(withdrawn, protected)
	})
	filetest.Write(s.T, file, strings.Replace(s.ReadPolicy(file), slow, "", 1))
	if got := s.CheckMoved(1, 1); got[0].Pod != free {
		t.Errorf("evicted %s, want %s: the others are protected", got[0].Pod, free)
	}
	for name := range protected {
		s.PatchPod(name, strings.Replace(doNotDisrupt, `"true"`, "null", 1))
	}
	s.WaitEmpty(s.Nodes[0])
	s.CheckEvictedOnce(before)
}

// TestCauseGoneBehindBudget removes the taint of one of two nodes while budgets block the pods of both and Rehome is down. The
// budgets then allow the evictions, and only the pods of the other node move: no stale intent is left for the next leader.
func TestCauseGoneBehindBudget(t *testing.T) {
	s := scene.New(t, 3)
	for i, name := range []string{"stays", "goes"} {
		s.AddDeployment(name, 2, scene.PreferNode(s.Nodes[i]))
		s.WaitPlaced(name, map[string]int{s.Nodes[i]: 2})
		s.AddBudget(name, name, 2)
	}
	goes := s.PodsOn(s.Nodes[1])
	file, dir := s.Policy("limits: {unavailable: 100%}"), filetest.ShortDir(t)
	rehome := s.StartRun(file, dir)
	rehome.WaitLeads()
	events := scene.Record(t, scene.BusIn(dir))
	for _, node := range s.Nodes[:2] {
		s.Taint(node, "dedicated")
	}
	events.WaitVerdicts("all four pods are deferred", func(all []schemas.Verdict) bool {
		deferred := map[string]bool{}
		for _, v := range scene.WithOutcome(schemas.Deferred, all) {
			if v.Reason == schemas.ReasonDisruptionBudget {
				deferred[v.Intent.Pod.Name] = true
			}
		}
		return len(deferred) == 4
	})
	table := bustest.Connect(t, scene.BusIn(dir))
	expect.EventuallyWithState(t, "the intents table is empty", func() (bool, string) {
		heads, err := table.AnsweredScopes(t.Context())
		return err == nil && len(heads) == 0, fmt.Sprint(heads, err)
	})
	rehome.Kill()
	s.Untaint(s.Nodes[0])
	for _, name := range []string{"stays", "goes"} {
		s.ChangeBudget(name, 0)
		expect.EventuallyWithState(t, "the budget "+name+" allows evictions", func() (bool, string) {
			b, err := s.Client.PolicyV1().PodDisruptionBudgets(s.Namespace).Get(t.Context(), name, metav1.GetOptions{})
			s.T.Must(err)
			return b.Status.DisruptionsAllowed == 2, fmt.Sprintf("%+v", b.Status)
		})
	}
	s.StartRun(file, dir).WaitLeads()
	if got := scene.UIDs(s.CheckMoved(0, 2)); !reflect.DeepEqual(got, goes) {
		t.Errorf("evicted %v, want %v", got, goes)
	}
}

// TestRestartCauseGone removes the cause of a move while its replacement waits for a node. The pod stays, and the spec of its
// Deployment is restored.
func TestRestartCauseGone(t *testing.T) {
	t.Parallel()
	for _, method := range []struct {
		name    string
		accepts schemas.ReasonCode
	}{{"RolloutRestart", schemas.ReasonRestartAccepted}, {"Surge", schemas.ReasonSurgeAccepted}} {
		for name, end := range map[string]func(*scene.Scene){
			"the_taint_goes":       func(s *scene.Scene) { s.Untaint(s.Nodes[0]) },
			"the_pod_is_protected": func(s *scene.Scene) { s.PatchPod(onNode(s, s.Nodes[0]), doNotDisrupt) },
		} {
			t.Run(method.name+"/"+name, parallel(func(t *testing.T) {
				s := scene.New(t, 2)
				gated(s)
				s.WaitAvailable("api")
				old, before := s.PodsOf("api")[0], s.GetDeployment("api")
				events := follow(s, s.Policy("restart: {workloads: All, method: "+method.name+", timeout: 1h}"))
				s.Taint(s.Nodes[0], "dedicated")
				events.WaitVerdicts("the move has begun", func(v []schemas.Verdict) bool { return len(v) == 1 && v[0].Reason == method.accepts })
				expect.EventuallyWithState(t, "there is a replacement", func() (bool, string) {
					pods := s.PodsOf("api")
					return len(pods) == 2, fmt.Sprint(names(pods))
				})
				end(s)
				settled := waitSettled(s, events)
				if want := "the cause of the move is gone"; settled.Reason != schemas.ReasonTakenBack || settled.Message != want {
					t.Errorf("settled %s: %s, want %s: %s", settled.Reason, settled.Message, schemas.ReasonTakenBack, want)
				}
				onlyPod(s, old)
				if got := s.GetDeployment("api"); !reflect.DeepEqual(got.Spec, before.Spec) {
					t.Errorf("the spec of the Deployment is %+v, want %+v", got.Spec, before.Spec)
				}
				s.CheckMoved(0, 0)
			}))
		}
	}
}

// onNode returns the name of the only pod on a node.
func onNode(s *scene.Scene, node string) string {
	s.T.Helper()
	pods := s.PodsOn(node)
	if len(pods) != 1 {
		s.T.Fatalf("on %s are %v, want one pod", node, pods)
	}
	for _, name := range pods {
		return name
	}
	return ""
}

// TestSchedulerOutage stops the scheduler during a drain. At most as many replacements wait as may be in flight, the circuit
// breaker opens, and the drain completes when the scheduler is back.
func TestSchedulerOutage(t *testing.T) {
	const most = 8
	s := scene.New(t, 3)
	s.AddDeployment("api", 40, scene.PreferNode(s.Nodes[0]))
	before := s.PodsOn(s.Nodes[0])
	if len(before) < 3*most {
		t.Fatalf("%d pods are on the first node, want nearly all of 40", len(before))
	}
	dir := filetest.ShortDir(t)
	p := s.StartRun(s.Policy(fmt.Sprintf("limits: {unavailable: 100%%, inFlight: {total: %d}}", most),
		fmt.Sprintf("circuitBreakers: {cluster: {nodes: 0%%, pending: %d, pendingFor: 5s}}", most)), dir)
	p.WaitLeads()
	s.T.Must(s.Cluster.StopScheduler())
	start := func() {
		if err := s.Cluster.StartScheduler(); err != nil {
			t.Error(err)
		}
	}
	defer func() {
		if start != nil {
			start()
		}
	}()
	s.Taint(s.Nodes[0], "dedicated")
	p.WaitClusterBreaker(schemas.ReasonStormPending)
	s.CheckMoved(0, most)
	p.WaitClusterBreaker(schemas.ReasonStormPending)

	start()
	start = nil
	p.WaitClusterBreaker("")
	s.WaitEmpty(s.Nodes[0])
	s.WaitReady("api")
	s.CheckEvictedOnce(before)
}
