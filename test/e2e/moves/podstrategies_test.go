package moves

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
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
	"github.com/rehome-dev/rehome/test/kit/scene"
)

func TestTooManyRestarts(t *testing.T) {
	s := scene.New(t, 2)
	s.AddDeployment("api", 1)
	dir := filetest.ShortDir(t)
	p := s.StartRun(s.DeschedulePolicy("RemovePodsHavingTooManyRestarts",
		[]string{"{name: RemovePodsHavingTooManyRestarts, args: {podRestartThreshold: 3}}"}), dir)
	p.WaitLeads()
	events := scene.Record(t, scene.BusIn(dir))
	pod := s.PodsOf("api")[0]
	holdStatus(s, pod.Name)

	setContainer(s, pod.Name, 2, `{"running":{}}`)
	waitDecided(p, "RemovePodsHavingTooManyRestarts")
	if got := s.Evictions(); got != nil {
		t.Fatalf("after two restarts: evicted %v, want none", got)
	}
	setContainer(s, pod.Name, 3, `{"waiting":{"reason":"CrashLoopBackOff"}}`)
	verdicts := events.WaitVerdicts("the pod is evicted", func(v []schemas.Verdict) bool { return len(v) > 0 })
	s.WaitReady("api")

	if got, want := outcomes(verdicts), []string{pod.Name + " evicted: restarted 3 times, the threshold is 3"}; !slices.Equal(got, want) {
		t.Errorf("verdicts %q, want %q", got, want)
	}
	if got, want := scene.UIDs(s.Evictions()), map[types.UID]string{pod.UID: pod.Name}; !maps.Equal(got, want) {
		t.Errorf("evicted %v, want %v", got, want)
	}
}

func TestFailedPodMinimumTime(t *testing.T) {
	s := scene.New(t, 2)
	dir := filetest.ShortDir(t)
	s.StartRun(s.DeschedulePolicy("RemoveFailedPods", []string{"{name: RemoveFailedPods, args: {minPodLifetimeSeconds: 20}}"}), dir).WaitLeads()
	events := scene.Record(t, scene.BusIn(dir))
	repeatUntilInTime(s, func() map[types.UID]time.Time {
		s.AddDeployment("api", 1)
		pod := s.PodsOf("api")[0]
		old := pod.CreationTimestamp.Add(20 * time.Second)

		holdStatus(s, pod.Name)
		s.PatchPod(pod.Name, `{"status":{"phase":"Failed","reason":"OutOfcpu"}}`, "status")
		s.WaitReady("api") // its owner creates a replacement, and leaves the failed pod
		waitDelta(events, schemas.PodFailed, pod.Name)
		failed := time.Now()
		due := map[types.UID]time.Time{pod.UID: old}
		verdicts := events.WaitVerdicts("the pod is removed", func(v []schemas.Verdict) bool { return len(verdictsOn(due, v)) > 0 })

		if got, want := aged(verdictsOn(due, verdicts)), []string{pod.Name + " evicted: failed: OutOfcpu; SECONDS old"}; !slices.Equal(got, want) {
			t.Errorf("verdicts %q, want %q", got, want)
		}
		return stillYoung(s, failed, due)
	})
}

func TestPodLifeTime(t *testing.T) {
	s := scene.New(t, 2)
	dir := filetest.ShortDir(t)
	s.StartRun(s.DeschedulePolicy("PodLifeTime", []string{"{name: PodLifeTime, args: {maxPodLifeTimeSeconds: 10, labelSelector: {matchLabels: {app: api}}}}"}), dir)
	events := scene.Record(t, scene.BusIn(dir))
	s.AddDeployment("other", 1)
	repeatUntilInTime(s, func() map[types.UID]time.Time {
		s.AddDeployment("api", 5)
		over := map[types.UID]time.Time{}
		var want []string
		for _, p := range s.PodsOf("api") {
			over[p.UID] = p.CreationTimestamp.Add(11 * time.Second)
			want = append(want, p.Name+" evicted: SECONDS old, the limit is 10s")
		}
		verdicts := events.WaitVerdicts("all five are evicted", func(v []schemas.Verdict) bool { return len(verdictsOn(over, v)) >= 5 })

		if got := aged(verdictsOn(over, verdicts)); !sameSet(got, want) {
			t.Errorf("verdicts %q, want %q", got, want)
		}
		return over
	})
	for _, v := range events.Verdicts() {
		if deploymentOf(v) != "api" {
			t.Errorf("verdict on %s, which the selector does not select", v.Intent.Pod)
		}
	}
}

func TestMinPodAge(t *testing.T) {
	s := scene.New(t, 2)
	dir := filetest.ShortDir(t)
	s.StartRun(s.DeschedulePolicy("RemovePodsViolatingNodeTaints",
		[]string{"{name: DefaultEvictor, args: {minPodAge: 20s}}", "{name: RemovePodsViolatingNodeTaints}"}), dir)
	events := scene.Record(t, scene.BusIn(dir))
	repeatUntilInTime(s, func() map[types.UID]time.Time {
		from := len(events.Verdicts())
		s.Untaint(s.Nodes[0])
		s.AddDeployment("api", 5, scene.PreferNode(s.Nodes[0]))
		old := map[types.UID]time.Time{}
		for _, p := range s.PodsOf("api") {
			if p.Spec.NodeName != s.Nodes[0] { // the scheduler may notice late that the taint is gone
				return nil
			}
			old[p.UID] = p.Status.StartTime.Add(20 * time.Second)
		}

		s.Taint(s.Nodes[0], "dedicated")
		tainted := time.Now()
		verdicts := events.WaitVerdicts("all five are evicted", func(v []schemas.Verdict) bool { return len(v) >= from+5 })[from:]
		s.WaitEmpty(s.Nodes[0])
		s.WaitReady("api")
		if got := scene.WithOutcome(schemas.Evicted, verdictsOn(old, verdicts)); len(got) != 5 || len(verdicts) != 5 {
			t.Errorf("verdicts %s, want five evictions and nothing else", scene.Summary(verdicts))
		}
		return stillYoung(s, tainted, old)
	})
}

func TestRecoveredPodNotMoved(t *testing.T) {
	s := scene.New(t, 2)
	s.AddDeployment("api", 3)
	pods := s.PodsOf("api")
	for _, p := range pods {
		holdStatus(s, p.Name)
		setContainer(s, p.Name, 1, `{"waiting":{"reason":"CrashLoopBackOff"}}`)
	}
	dir := filetest.ShortDir(t)
	s.StartRun(s.DeschedulePolicy("PodLifeTime", []string{"{name: PodLifeTime, args: {states: [CrashLoopBackOff]}}"}, "rate: {evictionsPerSecond: 0.02, burst: 1}"), dir)
	events := scene.Record(t, scene.BusIn(dir))
	verdicts := events.WaitVerdicts("the first pod is evicted", func(v []schemas.Verdict) bool { return len(v) > 0 })
	first := verdicts[0].Intent.Pod.Name

	want := []string{first + " evicted: in state CrashLoopBackOff"}
	for _, p := range pods {
		if p.Name != first {
			setContainer(s, p.Name, 1, `{"running":{}}`)
			want = append(want, p.Name+" withdrawn: in state CrashLoopBackOff")
		}
	}
	verdicts = events.WaitVerdicts("the others are withdrawn", func(v []schemas.Verdict) bool { return len(v) >= 3 })
	if got := outcomes(verdicts); !sameSet(got, want) {
		t.Errorf("verdicts %q, want %q", got, want)
	}
	if got := s.Evictions(); len(got) != 1 || got[0].Pod != first {
		t.Errorf("evicted %v, want %s alone", got, first)
	}
}

// holdStatus prevents the simulated kubelet from changing the status of a pod.
func holdStatus(s *scene.Scene, pod string) {
	s.T.Helper()
	s.PatchPod(pod, fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, cluster.HoldAnnotation))
}

// setContainer sets the restarts and the state of the only container of a pod.
func setContainer(s *scene.Scene, pod string, restarts int, state string) {
	s.T.Helper()
	s.PatchPod(pod, fmt.Sprintf(`{"status":{"containerStatuses":[
		{"name":"main","image":"none","imageID":"","ready":false,"restartCount":%d,"state":%s}]}}`, restarts, state), "status")
}

// waitDecided waits until a scope of the strategy was built. A scope without a possible answer is not published.
func waitDecided(p *scene.Process, strategy string) {
	p.T.Helper()
	count := regexp.MustCompile(fmt.Sprintf(`(?m)^rehome_scopes_total{.*strategy=%q} [1-9]`, strategy))
	p.Eventually(strategy+" is evaluated", func() (bool, string) {
		_, metrics := p.Get("metrics")
		return count.MatchString(metrics), metrics
	})
}

// mostRounds limits the rounds of a scene until Rehome was in time, because other load on the machine may delay it.
const mostRounds = 5

// repeatUntilInTime repeats a scene until in one round half of the pods were evicted within a second of their time, and fails after
// mostRounds. No pod may ever be evicted before its time. play creates the Deployment api, and returns when its evicted pods were
// due, or nothing if the machine was too slow.
func repeatUntilInTime(s *scene.Scene, play func() map[types.UID]time.Time) {
	s.T.Helper()
	var late [][]time.Duration
	for range mostRounds {
		if due := play(); due != nil {
			delays := evictedAt(s, due)
			if delays[len(delays)/2] <= time.Second {
				return
			}
			late = append(late, delays)
		}
		if s.T.Failed() {
			return
		}
		deleteAPI(s)
	}
	s.T.Errorf("in %d rounds pods were evicted %v after their time, want half of them within a second in one round", mostRounds, late)
}

// deleteAPI deletes the Deployment api, and waits until its pods are gone.
func deleteAPI(s *scene.Scene) {
	s.T.Helper()
	s.T.Must(s.Client.AppsV1().Deployments(s.Namespace).Delete(s.T.Context(), "api", metav1.DeleteOptions{
		PropagationPolicy: new(metav1.DeletePropagationForeground),
	}))
	_, err := s.Cluster.WaitPods(s.T.Context(), s.Namespace, "app=api", "none of api", func(p []*corev1.Pod) bool { return len(p) == 0 })
	s.T.Must(err)
	expect.EventuallyWithState(s.T, "the Deployment api is gone", func() (bool, string) {
		_, err := s.Client.AppsV1().Deployments(s.Namespace).Get(s.T.Context(), "api", metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
}

// stillYoung returns when the pods are due if none was due yet, or nothing if the machine was too slow.
func stillYoung(s *scene.Scene, at time.Time, due map[types.UID]time.Time) map[types.UID]time.Time {
	for _, old := range due {
		if !at.Before(old) {
			s.T.Logf("it was %v, and a pod was old enough since %v: the round says nothing", at, old)
			return nil
		}
	}
	return due
}

// evictedAt checks in the audit log that each of these pods was evicted once and not before its time. It returns the delays in
// order.
func evictedAt(s *scene.Scene, due map[types.UID]time.Time) []time.Duration {
	s.T.Helper()
	var delays []time.Duration
	expect.EventuallyWithState(s.T, fmt.Sprintf("the evictions of %d pods are in the audit log", len(due)), func() (bool, string) {
		delays = nil
		for _, e := range s.Evictions() {
			if at, one := due[e.UID]; one {
				delays = append(delays, e.Time.Sub(at))
			}
		}
		return len(delays) >= len(due), fmt.Sprint(delays)
	})
	slices.Sort(delays)
	s.T.Logf("evicted %v after their time", delays)
	if len(delays) != len(due) || delays[0] < 0 {
		s.T.Errorf("%d evictions of %d pods, %v after their time: want each once, none before", len(delays), len(due), delays)
	}
	return delays
}

// verdictsOn returns the verdicts on these pods.
func verdictsOn(pods map[types.UID]time.Time, verdicts []schemas.Verdict) []schemas.Verdict {
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
