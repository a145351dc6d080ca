package e2e

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
)

// doNotDisrupt is a patch that protects a pod.
const doNotDisrupt = `{"metadata":{"annotations":{"karpenter.sh/do-not-disrupt":"true"}}}`

// TestLateAnnotation protects pods of a tainted node while their intents wait for the rate. They stay, although a new policy raises
// the rate, until the annotation goes.
func TestLateAnnotation(t *testing.T) {
	s := newScene(t, 2)
	for i := range 4 {
		s.deployment(fmt.Sprint("api-", i), 1, preferring(s.nodes[0]))
	}
	before := s.pods(s.nodes[0])
	dir, slow := filetest.ShortDir(t), "rate: {evictionsPerSecond: 0.001, burst: 1}"
	file := s.policy(slow)
	s.rehome(file, dir).leads()
	events := record(t, at(dir))
	s.taint(s.nodes[0], "dedicated")
	s.evicted(0, 1)
	free, protected := "", map[string]bool{}
	for _, name := range s.pods(s.nodes[0]) {
		if free == "" {
			free = name
			continue
		}
		protected[name] = true
		s.patchPod(name, doNotDisrupt)
	}
	events.until("the intents of the protected pods are withdrawn", func(all []schemas.Verdict) bool {
		withdrawn := map[string]bool{}
		for _, v := range of(schemas.Withdrawn, all) {
			withdrawn[v.Intent.Pod.Name] = true
		}
		return reflect.DeepEqual(withdrawn, protected)
	})
	filetest.Write(s.t, file, strings.Replace(s.text(file), slow, "", 1))
	if got := s.moved(1, 1); got[0].pod != free {
		t.Errorf("evicted %s, want %s: the others are protected", got[0].pod, free)
	}
	for name := range protected {
		s.patchPod(name, strings.Replace(doNotDisrupt, `"true"`, "null", 1))
	}
	s.emptied(s.nodes[0])
	s.evictedOnce(before)
}

// TestCauseGoneBehindBudget removes the taint of one of two nodes while budgets block the pods of both and Rehome is down. The
// budgets then allow the evictions, and only the pods of the other node move: no stale intent is left for the next leader.
func TestCauseGoneBehindBudget(t *testing.T) {
	s := newScene(t, 3)
	for i, name := range []string{"stays", "goes"} {
		s.deployment(name, 2, preferring(s.nodes[i]))
		s.placed(name, map[string]int{s.nodes[i]: 2})
		s.budget(name, name, 2)
	}
	goes := s.pods(s.nodes[1])
	file, dir := s.policy("limits: {unavailable: 100%}"), filetest.ShortDir(t)
	rehome := s.rehome(file, dir)
	rehome.leads()
	events := record(t, at(dir))
	for _, node := range s.nodes[:2] {
		s.taint(node, "dedicated")
	}
	events.until("all four pods are deferred", func(all []schemas.Verdict) bool {
		deferred := map[string]bool{}
		for _, v := range of(schemas.Deferred, all) {
			if v.Reason == schemas.ReasonDisruptionBudget {
				deferred[v.Intent.Pod.Name] = true
			}
		}
		return len(deferred) == 4
	})
	table := bustest.Connect(t, at(dir))
	expect.EventuallyWithState(t, "the intents table is empty", func() (bool, string) {
		heads, err := table.Asked(t.Context())
		return err == nil && len(heads) == 0, fmt.Sprint(heads, err)
	})
	rehome.Kill()
	s.untaint(s.nodes[0])
	for _, name := range []string{"stays", "goes"} {
		s.changeBudget(name, 0)
		expect.EventuallyWithState(t, "the budget "+name+" allows evictions", func() (bool, string) {
			b, err := s.client.PolicyV1().PodDisruptionBudgets(s.namespace).Get(t.Context(), name, metav1.GetOptions{})
			s.t.Must(err)
			return b.Status.DisruptionsAllowed == 2, fmt.Sprintf("%+v", b.Status)
		})
	}
	s.rehome(file, dir).leads()
	if got := uids(s.moved(0, 2)); !reflect.DeepEqual(got, goes) {
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
		for name, end := range map[string]func(*scene){
			"the_taint_goes":       func(s *scene) { s.untaint(s.nodes[0]) },
			"the_pod_is_protected": func(s *scene) { s.patchPod(s.onNode(s.nodes[0]), doNotDisrupt) },
		} {
			t.Run(method.name+"/"+name, beside(func(t *testing.T) {
				s := newScene(t, 2)
				s.gated()
				s.available("api")
				old, before := s.podsOf("api")[0], s.live("api")
				events := s.follow(s.policy("restart: {workloads: All, method: " + method.name + ", timeout: 1h}"))
				s.taint(s.nodes[0], "dedicated")
				events.until("the move has begun", func(v []schemas.Verdict) bool { return len(v) == 1 && v[0].Reason == method.accepts })
				expect.EventuallyWithState(t, "there is a replacement", func() (bool, string) {
					pods := s.podsOf("api")
					return len(pods) == 2, fmt.Sprint(names(pods))
				})
				end(s)
				settled := s.settledOnce(events)
				if want := "the cause of the move is gone"; settled.Reason != schemas.ReasonTakenBack || settled.Message != want {
					t.Errorf("settled %s: %s, want %s: %s", settled.Reason, settled.Message, schemas.ReasonTakenBack, want)
				}
				s.onlyPod(old)
				if got := s.live("api"); !reflect.DeepEqual(got.Spec, before.Spec) {
					t.Errorf("the spec of the Deployment is %+v, want %+v", got.Spec, before.Spec)
				}
				s.moved(0, 0)
			}))
		}
	}
}

// onNode returns the name of the only pod on a node.
func (s *scene) onNode(node string) string {
	s.t.Helper()
	pods := s.pods(node)
	if len(pods) != 1 {
		s.t.Fatalf("on %s are %v, want one pod", node, pods)
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
	s := newScene(t, 3)
	s.deployment("api", 40, preferring(s.nodes[0]))
	before := s.pods(s.nodes[0])
	if len(before) < 3*most {
		t.Fatalf("%d pods are on the first node, want nearly all of 40", len(before))
	}
	dir := filetest.ShortDir(t)
	p := s.rehome(s.policy(fmt.Sprintf("limits: {unavailable: 100%%, inFlight: {total: %d}}", most),
		fmt.Sprintf("circuitBreakers: {cluster: {nodes: 0%%, pending: %d, pendingFor: 5s}}", most)), dir)
	p.leads()
	s.t.Must(s.cluster.StopScheduler())
	start := func() {
		if err := s.cluster.StartScheduler(); err != nil {
			t.Error(err)
		}
	}
	defer func() {
		if start != nil {
			start()
		}
	}()
	s.taint(s.nodes[0], "dedicated")
	p.clusterBreaker(schemas.ReasonStormPending)
	s.moved(0, most)
	p.clusterBreaker(schemas.ReasonStormPending)

	start()
	start = nil
	p.clusterBreaker("")
	s.emptied(s.nodes[0])
	s.ready("api")
	s.evictedOnce(before)
}
