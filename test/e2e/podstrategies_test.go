package e2e

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

func TestTooManyRestarts(t *testing.T) {
	s := newScene(t, 2)
	s.deployment("api", 1)
	dir := filetest.ShortDir(t)
	p := s.rehome(s.enable("RemovePodsHavingTooManyRestarts",
		[]string{"{name: RemovePodsHavingTooManyRestarts, args: {podRestartThreshold: 3}}"}), dir)
	p.leads()
	events := record(t, at(dir))
	pod := s.podsOf("api")[0]
	s.hold(pod.Name)

	s.container(pod.Name, 2, `{"running":{}}`)
	p.decided("RemovePodsHavingTooManyRestarts")
	if got := s.evictions(); got != nil {
		t.Fatalf("after two restarts: evicted %v, want none", got)
	}
	s.container(pod.Name, 3, `{"waiting":{"reason":"CrashLoopBackOff"}}`)
	verdicts := events.until("the pod is evicted", func(v []schemas.Verdict) bool { return len(v) > 0 })
	s.ready("api")

	if got, want := outcomes(verdicts), []string{pod.Name + " evicted: restarted 3 times, the threshold is 3"}; !slices.Equal(got, want) {
		t.Errorf("verdicts %q, want %q", got, want)
	}
	if got, want := uids(s.evictions()), map[types.UID]string{pod.UID: pod.Name}; !maps.Equal(got, want) {
		t.Errorf("evicted %v, want %v", got, want)
	}
}

func TestFailedPodMinimumTime(t *testing.T) {
	s := newScene(t, 2)
	dir := filetest.ShortDir(t)
	s.rehome(s.enable("RemoveFailedPods", []string{"{name: RemoveFailedPods, args: {minPodLifetimeSeconds: 20}}"}), dir).leads()
	events := record(t, at(dir))
	s.inTime(func() map[types.UID]time.Time {
		s.deployment("api", 1)
		pod := s.podsOf("api")[0]
		old := pod.CreationTimestamp.Add(20 * time.Second)

		s.hold(pod.Name)
		s.patchPod(pod.Name, `{"status":{"phase":"Failed","reason":"OutOfcpu"}}`, "status")
		s.ready("api") // its owner creates a replacement, and leaves the failed pod
		events.delta(schemas.PodFailed, pod.Name)
		failed := time.Now()
		due := map[types.UID]time.Time{pod.UID: old}
		verdicts := events.until("the pod is removed", func(v []schemas.Verdict) bool { return len(about(due, v)) > 0 })

		if got, want := aged(about(due, verdicts)), []string{pod.Name + " evicted: failed: OutOfcpu; SECONDS old"}; !slices.Equal(got, want) {
			t.Errorf("verdicts %q, want %q", got, want)
		}
		return s.stillYoung(failed, due)
	})
}

func TestPodLifeTime(t *testing.T) {
	s := newScene(t, 2)
	dir := filetest.ShortDir(t)
	s.rehome(s.enable("PodLifeTime", []string{"{name: PodLifeTime, args: {maxPodLifeTimeSeconds: 10, labelSelector: {matchLabels: {app: api}}}}"}), dir)
	events := record(t, at(dir))
	s.deployment("other", 1)
	s.inTime(func() map[types.UID]time.Time {
		s.deployment("api", 5)
		over := map[types.UID]time.Time{}
		var want []string
		for _, p := range s.podsOf("api") {
			over[p.UID] = p.CreationTimestamp.Add(11 * time.Second)
			want = append(want, p.Name+" evicted: SECONDS old, the limit is 10s")
		}
		verdicts := events.until("all five are evicted", func(v []schemas.Verdict) bool { return len(about(over, v)) >= 5 })

		if got := aged(about(over, verdicts)); !sameSet(got, want) {
			t.Errorf("verdicts %q, want %q", got, want)
		}
		return over
	})
	for _, v := range events.verdicts() {
		if deploymentOf(v) != "api" {
			t.Errorf("verdict on %s, which the selector does not select", v.Intent.Pod)
		}
	}
}

func TestMinPodAge(t *testing.T) {
	s := newScene(t, 2)
	dir := filetest.ShortDir(t)
	s.rehome(s.enable("RemovePodsViolatingNodeTaints",
		[]string{"{name: DefaultEvictor, args: {minPodAge: 20s}}", "{name: RemovePodsViolatingNodeTaints}"}), dir)
	events := record(t, at(dir))
	s.inTime(func() map[types.UID]time.Time {
		from := len(events.verdicts())
		s.untaint(s.nodes[0])
		s.deployment("api", 5, preferring(s.nodes[0]))
		old := map[types.UID]time.Time{}
		for _, p := range s.podsOf("api") {
			if p.Spec.NodeName != s.nodes[0] { // the scheduler may notice late that the taint is gone
				return nil
			}
			old[p.UID] = p.Status.StartTime.Add(20 * time.Second)
		}

		s.taint(s.nodes[0], "dedicated")
		tainted := time.Now()
		verdicts := events.until("all five are evicted", func(v []schemas.Verdict) bool { return len(v) >= from+5 })[from:]
		s.emptied(s.nodes[0])
		s.ready("api")
		if got := of(schemas.Evicted, about(old, verdicts)); len(got) != 5 || len(verdicts) != 5 {
			t.Errorf("verdicts %s, want five evictions and nothing else", summary(verdicts))
		}
		return s.stillYoung(tainted, old)
	})
}

func TestRecoveredPodNotMoved(t *testing.T) {
	s := newScene(t, 2)
	s.deployment("api", 3)
	pods := s.podsOf("api")
	for _, p := range pods {
		s.hold(p.Name)
		s.container(p.Name, 1, `{"waiting":{"reason":"CrashLoopBackOff"}}`)
	}
	dir := filetest.ShortDir(t)
	s.rehome(s.enable("PodLifeTime", []string{"{name: PodLifeTime, args: {states: [CrashLoopBackOff]}}"}, "rate: {evictionsPerSecond: 0.02, burst: 1}"), dir)
	events := record(t, at(dir))
	verdicts := events.until("the first pod is evicted", func(v []schemas.Verdict) bool { return len(v) > 0 })
	first := verdicts[0].Intent.Pod.Name

	want := []string{first + " evicted: in state CrashLoopBackOff"}
	for _, p := range pods {
		if p.Name != first {
			s.container(p.Name, 1, `{"running":{}}`)
			want = append(want, p.Name+" withdrawn: in state CrashLoopBackOff")
		}
	}
	verdicts = events.until("the others are withdrawn", func(v []schemas.Verdict) bool { return len(v) >= 3 })
	if got := outcomes(verdicts); !sameSet(got, want) {
		t.Errorf("verdicts %q, want %q", got, want)
	}
	if got := s.evictions(); len(got) != 1 || got[0].pod != first {
		t.Errorf("evicted %v, want %s alone", got, first)
	}
}

// podsOf returns the pods of a Deployment that are not terminating, by name.
func (s *scene) podsOf(deployment string) []corev1.Pod {
	s.t.Helper()
	list, err := s.client.CoreV1().Pods(s.namespace).List(s.t.Context(), metav1.ListOptions{LabelSelector: "app=" + deployment})
	s.t.Must(err)
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
}

// hold prevents the simulated kubelet from changing the status of a pod.
func (s *scene) hold(pod string) {
	s.t.Helper()
	s.patchPod(pod, fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, cluster.HoldAnnotation))
}

// container sets the restarts and the state of the only container of a pod.
func (s *scene) container(pod string, restarts int, state string) {
	s.t.Helper()
	s.patchPod(pod, fmt.Sprintf(`{"status":{"containerStatuses":[
		{"name":"main","image":"none","imageID":"","ready":false,"restartCount":%d,"state":%s}]}}`, restarts, state), "status")
}

// leads waits until the watcher leads, a little after it is ready. Earlier changes have no deltas.
func (p *process) leads() {
	p.t.Helper()
	p.eventually("the watcher leads", func() (bool, string) {
		return strings.Contains(p.Log.String(), "leading: evaluating everything"), "no such line in its log"
	})
}

// decided waits until a scope of the strategy was built. A scope without a possible answer is not published.
func (p *process) decided(strategy string) {
	p.t.Helper()
	count := regexp.MustCompile(fmt.Sprintf(`(?m)^rehome_scopes_total{.*strategy=%q} [1-9]`, strategy))
	p.eventually(strategy+" is evaluated", func() (bool, string) {
		_, metrics := p.Get("metrics")
		return count.MatchString(metrics), metrics
	})
}

// mostRounds limits the rounds of a scene until Rehome was in time, because other load on the machine may delay it.
const mostRounds = 5

// inTime repeats a scene until in one round half of the pods were evicted within a second of their time, and fails after
// mostRounds. No pod may ever be evicted before its time. play creates the Deployment api, and returns when its evicted pods were
// due, or nothing if the machine was too slow.
func (s *scene) inTime(play func() map[types.UID]time.Time) {
	s.t.Helper()
	var late [][]time.Duration
	for range mostRounds {
		if due := play(); due != nil {
			delays := s.evictedAt(due)
			if delays[len(delays)/2] <= time.Second {
				return
			}
			late = append(late, delays)
		}
		if s.t.Failed() {
			return
		}
		s.withoutAPI()
	}
	s.t.Errorf("in %d rounds pods were evicted %v after their time, want half of them within a second in one round", mostRounds, late)
}

// withoutAPI deletes the Deployment api, and waits until its pods are gone.
func (s *scene) withoutAPI() {
	s.t.Helper()
	s.t.Must(s.client.AppsV1().Deployments(s.namespace).Delete(s.t.Context(), "api", metav1.DeleteOptions{
		PropagationPolicy: new(metav1.DeletePropagationForeground),
	}))
	_, err := s.cluster.WaitPods(s.t.Context(), s.namespace, "app=api", "none of api", func(p []*corev1.Pod) bool { return len(p) == 0 })
	s.t.Must(err)
	expect.EventuallyWithState(s.t, "the Deployment api is gone", func() (bool, string) {
		_, err := s.client.AppsV1().Deployments(s.namespace).Get(s.t.Context(), "api", metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
}

// stillYoung returns when the pods are due if none was due yet, or nothing if the machine was too slow.
func (s *scene) stillYoung(at time.Time, due map[types.UID]time.Time) map[types.UID]time.Time {
	for _, old := range due {
		if !at.Before(old) {
			s.t.Logf("it was %v, and a pod was old enough since %v: the round says nothing", at, old)
			return nil
		}
	}
	return due
}

// evictedAt checks in the audit log that each of these pods was evicted once and not before its time. It returns the delays in
// order.
func (s *scene) evictedAt(due map[types.UID]time.Time) []time.Duration {
	s.t.Helper()
	var delays []time.Duration
	expect.EventuallyWithState(s.t, fmt.Sprintf("the evictions of %d pods are in the audit log", len(due)), func() (bool, string) {
		delays = nil
		for _, e := range s.evictions() {
			if at, one := due[e.uid]; one {
				delays = append(delays, e.time.Sub(at))
			}
		}
		return len(delays) >= len(due), fmt.Sprint(delays)
	})
	slices.Sort(delays)
	s.t.Logf("evicted %v after their time", delays)
	if len(delays) != len(due) || delays[0] < 0 {
		s.t.Errorf("%d evictions of %d pods, %v after their time: want each once, none before", len(delays), len(due), delays)
	}
	return delays
}

// about returns the verdicts on these pods.
func about(pods map[types.UID]time.Time, verdicts []schemas.Verdict) []schemas.Verdict {
	return slices.DeleteFunc(slices.Clone(verdicts), func(v schemas.Verdict) bool {
		_, one := pods[v.Intent.Pod.UID]
		return !one
	})
}

// aged is [outcomes] without the age of pods in seconds, which depends on the machine.
func aged(verdicts []schemas.Verdict) []string {
	list := outcomes(verdicts)
	for i, line := range list {
		list[i] = regexp.MustCompile(`\b\d+s old`).ReplaceAllString(line, "SECONDS old")
	}
	return list
}

// outcomes returns a line for each verdict: the pod, the outcome, and the reason of the strategy.
func outcomes(verdicts []schemas.Verdict) []string {
	var list []string
	for _, v := range verdicts {
		list = append(list, fmt.Sprintf("%s %s: %s", v.Intent.Pod.Name, v.Outcome, v.Intent.Reason))
	}
	return list
}

func sameSet(a, b []string) bool {
	return reflect.DeepEqual(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
