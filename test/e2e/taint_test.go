package e2e

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

func TestTaintEvictionLatency(t *testing.T) {
	s := newScene(t, 3)
	s.deployment("api", 8, preferring(s.nodes[0]))
	s.rehome(s.policy(), filetest.ShortDir(t))

	// Usually three taints of five must be fast: a single one could coincide with other load on the machine. A constantly busy
	// machine gets ten more.
	var delays []time.Duration
	for inTime := 0; inTime < 3; {
		before := s.pods(s.nodes[0])
		if len(before) != 8 {
			t.Fatalf("%d pods on %s, want 8", len(before), s.nodes[0])
		}
		from := len(s.evictions())
		tainted := time.Now()
		s.taint(s.nodes[0], "dedicated")
		s.emptied(s.nodes[0])
		s.ready("api")
		got := s.evicted(from, 8)
		if !reflect.DeepEqual(uids(got), before) {
			t.Fatalf("evicted %v, want %v", uids(got), before)
		}
		delays = append(delays, got[0].time.Sub(tainted))
		t.Logf("first eviction after %v, last after %v", got[0].time.Sub(tainted), got[len(got)-1].time.Sub(tainted))
		if delays[len(delays)-1] <= time.Second {
			inTime++
		}
		if len(delays) == 15 && inTime < 3 {
			t.Fatalf("the first evictions came %v after the taint, want three of them within a second", delays)
		}
		s.back("api", 8)
	}
}

func TestTolerantAndProtectedPods(t *testing.T) {
	s := newScene(t, 2)
	node := s.nodes[0]
	s.deployment("moves", 2, preferring(node))
	s.deployment("tolerates", 1, on(node), tolerating("dedicated"), tolerating("again"))
	s.deployment("moves-at-the-second", 1, on(node), tolerating("dedicated"))
	s.deployment("critical", 1, on(node), func(p *corev1.PodTemplateSpec) {
		p.Spec.PriorityClassName = "system-cluster-critical"
	})
	s.daemonSet("agent")
	s.pod("bare", node, nil)
	s.pod("mirror", node, map[string]string{"kubernetes.io/config.mirror": "x"})
	want := []string{"agent", "bare", "critical", "mirror", "tolerates"}
	moving := s.pods(node)
	maps.DeleteFunc(moving, func(_ types.UID, name string) bool { return !strings.HasPrefix(name, "moves-") })

	dir := filetest.ShortDir(t)
	s.rehome(s.policy(), dir)
	events := record(t, at(dir))
	s.taint(node, "dedicated")
	events.until("both pods are evicted", func(v []schemas.Verdict) bool { return len(of(schemas.Evicted, v)) == 2 })

	// The second taint makes sure that all pods were evaluated again: protected pods must stay.
	s.taint(node, "again")
	events.until("one more pod is evicted", func(v []schemas.Verdict) bool { return len(of(schemas.Evicted, v)) == 3 })
	if got := uids(s.evicted(0, 3)); !reflect.DeepEqual(got, moving) {
		t.Errorf("evicted %v, want %v", got, moving)
	}
	var stayed []string
	for _, name := range s.pods(node) {
		workload, _, _ := strings.Cut(name, "-")
		stayed = append(stayed, workload)
	}
	slices.Sort(stayed)
	if !reflect.DeepEqual(stayed, want) {
		t.Errorf("stayed %v, want %v", stayed, want)
	}
}

func TestBudgetDefersMove(t *testing.T) {
	s := newScene(t, 2)
	s.deployment("api", 2, preferring(s.nodes[0]))
	s.budget("keep-api", "api", 2)
	dir := filetest.ShortDir(t)
	p := s.rehome(s.policy(), dir)
	events := record(t, at(dir))

	tainted := time.Now()
	s.taint(s.nodes[0], "dedicated")
	verdicts := events.until("both pods are deferred", func(v []schemas.Verdict) bool { return len(of(schemas.Deferred, v)) >= 2 })
	for _, v := range verdicts {
		if len(v.Blockers) == 1 {
			v.Blockers[0].UID = ""
		}
		got := schemas.Verdict{Outcome: v.Outcome, Reason: v.Reason, Message: v.Message, Blockers: v.Blockers}
		want := schemas.Verdict{
			Outcome: schemas.Deferred, Reason: schemas.ReasonDisruptionBudget,
			Message:  "poddisruptionbudget " + s.namespace + "/keep-api: 2 of 2 healthy pods needed",
			Blockers: []schemas.ObjectRef{{Kind: "PodDisruptionBudget", Namespace: s.namespace, Name: "keep-api"}},
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	}
	if got := s.evictions(); got != nil {
		t.Fatalf("evicted %v although the budget allows none", got)
	}

	s.changeBudget("keep-api", 1)
	events.until("both pods are evicted", func(v []schemas.Verdict) bool { return len(of(schemas.Evicted, v)) == 2 })
	s.ready("api")
	if got := s.evicted(0, 2); len(got) != 2 || got[0].received.Sub(tainted) >= firstRetry {
		t.Errorf("evictions %v after the taint at %v, want 2, the first within %v", got, tainted, firstRetry)
	}
	if code := p.stop(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// firstRetry is the delay until the watcher evaluates a deferred pod again. An earlier move is the result of a change of the
// budget.
const firstRetry = 15 * time.Second

// uids returns the evicted pods.
func uids(list []eviction) map[types.UID]string {
	pods := map[types.UID]string{}
	for _, e := range list {
		pods[e.uid] = e.pod
	}
	return pods
}

// emptied waits until no pod of the scene is on the node.
func (s *scene) emptied(node string) {
	s.t.Helper()
	_, err := s.cluster.WaitPods(s.t.Context(), s.namespace, "", "no pod on "+node, func(pods []*corev1.Pod) bool {
		return !slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.Spec.NodeName == node })
	})
	s.t.Must(err)
}

// back removes all taints from the first node, and restarts a Deployment until its n pods run there, because the scheduler may
// notice late that the taints are gone.
func (s *scene) back(deployment string, n int) {
	s.t.Helper()
	s.untaint(s.nodes[0])
	expect.EventuallyWithState(s.t, fmt.Sprintf("%d pods are back on the first node", n), func() (bool, string) {
		s.restart(deployment)
		pods := s.pods(s.nodes[0])
		return len(pods) == n, fmt.Sprint(pods)
	})
}

// restart replaces the pods of a Deployment like `kubectl rollout restart`, and waits until the new pods run.
func (s *scene) restart(name string) {
	s.t.Helper()
	patch := `{"spec":{"template":{"metadata":{"annotations":{"restarted":"` + time.Now().String() + `"}}}}}`
	_, err := s.client.AppsV1().Deployments(s.namespace).Patch(s.t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	s.t.Must(err)
	s.ready(name)
}

// daemonSet creates a DaemonSet on the nodes of the scene, and waits until its pods run.
func (s *scene) daemonSet(name string) {
	s.t.Helper()
	pods := template(name)
	pods.Spec.NodeSelector = map[string]string{"scene": s.namespace}
	_, err := s.client.AppsV1().DaemonSets(s.namespace).Create(s.t.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: pods.Labels}, Template: pods},
	}, metav1.CreateOptions{})
	s.t.Must(err)
	s.running("app="+name, len(s.nodes))
}

// pod creates a pod without an owner on a node, and waits until it runs.
func (s *scene) pod(name, node string, annotations map[string]string) {
	s.t.Helper()
	s.create(node, name, annotations)
	s.running("app="+name, 1)
}

// running waits until n pods with the labels run.
func (s *scene) running(selector string, n int) {
	s.t.Helper()
	_, err := s.cluster.WaitPods(s.t.Context(), s.namespace, selector, "running", func(pods []*corev1.Pod) bool {
		return len(pods) == n && !slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.Status.Phase != corev1.PodRunning })
	})
	s.t.Must(err)
}

// budget creates a PodDisruptionBudget for the pods of a Deployment, and waits until it counts them.
func (s *scene) budget(name, deployment string, minAvailable int32) {
	s.t.Helper()
	spec := policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(minAvailable))}
	_, err := s.cluster.AddBudget(s.t.Context(), s.namespace, name, deployment, spec)
	s.t.Must(err)
}

// changeBudget changes the number of pods that a budget requires.
func (s *scene) changeBudget(name string, minAvailable int32) {
	s.t.Helper()
	b, err := s.client.PolicyV1().PodDisruptionBudgets(s.namespace).Get(s.t.Context(), name, metav1.GetOptions{})
	s.t.Must(err)
	least := intstr.FromInt32(minAvailable)
	b.Spec.MinAvailable = &least
	_, err = s.client.PolicyV1().PodDisruptionBudgets(s.namespace).Update(s.t.Context(), b, metav1.UpdateOptions{})
	s.t.Must(err)
}
