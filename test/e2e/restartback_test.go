package e2e

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/expect"
	"github.com/rehome-dev/rehome/test/filetest"
)

func restartTakenBack(t *testing.T) {
	s := newScene(t, 2)
	s.gated("api", func(d *appsv1.Deployment) {
		d.Spec.Template.Annotations = map[string]string{policy.DefaultRestartAnnotation: "before"}
	})
	s.takenBack("RolloutRestart", schemas.MethodRestart, schemas.ReasonRestartAccepted)
	if got := s.live("api").Spec.Template.Annotations; !reflect.DeepEqual(got, map[string]string{policy.DefaultRestartAnnotation: "before"}) {
		t.Errorf("annotations of the template %v, want them as before", got)
	}
	if n := len(s.templateChanges("api")); n != 2 {
		t.Errorf("the template was changed %d times, want there and back", n)
	}
}

func surgeTakenBack(t *testing.T) {
	s := newScene(t, 2)
	s.gated("api")
	s.takenBack("Surge", schemas.MethodSurge, schemas.ReasonSurgeAccepted)
	if n := len(s.templateChanges("api")); n != 0 {
		t.Errorf("the template was changed %d times, want never", n)
	}
}

// gated creates a Deployment whose pods are scheduled only when the test permits, and permits the first one.
func (s *scene) gated(name string, change ...func(*appsv1.Deployment)) {
	s.t.Helper()
	gate := func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.org/gate"}}
	}
	s.unready(name, 1, append(change, gate)...)
	expect.EventuallyWithState(s.t, "there is a pod", func() (bool, string) { return len(s.podsOf(name)) == 1, "" })
	s.patchPod(s.podsOf(name)[0].Name, `{"spec":{"schedulingGates":null}}`)
	s.ready(name)
	s.placed(name, map[string]int{s.nodes[0]: 1})
}

// takenBack moves the pod of the Deployment api while its replacement is unschedulable, and checks that everything is restored.
func (s *scene) takenBack(method string, name schemas.Method, accepted schemas.ReasonCode) {
	s.t.Helper()
	s.available("api")
	lives := s.watchPods()
	old, workload := s.podsOf("api")[0], s.workload("api")
	events := s.follow(s.policy("restart: {workloads: All, method: "+method+", timeout: 5s}", noStorm))
	s.taint(s.nodes[0], "dedicated")
	end := s.settledOnce(events)

	back := end
	back.Reason, back.Method, back.Workload = schemas.ReasonTakenBack, name, &workload
	if !reflect.DeepEqual(end, back) || end.Settlement == nil || end.Settlement.Replacement != nil || end.Settlement.Seconds < 5 {
		s.t.Errorf("settled %+v %+v, want %s", end, end.Settlement, schemas.ReasonTakenBack)
	}
	if !strings.Contains(end.Message, "took more than 5s and is taken back") || !strings.Contains(end.Message, "scheduling gates") {
		s.t.Errorf("undone because %q, want the time-out and the scheduler's message", end.Message)
	}
	first := events.verdicts()[0]
	if first.Outcome != schemas.Restarted || first.Reason != accepted || first.Method != name {
		s.t.Errorf("begun as %s %s %s, want %s %s %s", first.Outcome, first.Reason, first.Method, schemas.Restarted, accepted, name)
	}
	s.onlyPod(old)
	if got := lives.order(old.UID); len(got) != 1 || got[0] != "new going" {
		s.t.Errorf("seen %q, want a new pod that goes and was never ready", got)
	}
	if d := s.live("api"); *d.Spec.Replicas != 1 || d.Annotations["rehome.dev/surge-replicas"] != "" || d.Annotations["rehome.dev/restart-undo"] != "" {
		s.t.Errorf("the Deployment has %d replicas and the annotations %v", *d.Spec.Replicas, d.Annotations)
	}
}

// onlyPod waits until its only pod is the ready pod of a Deployment.
func (s *scene) onlyPod(old corev1.Pod) {
	s.t.Helper()
	expect.EventuallyWithState(s.t, "only the old pod is there", func() (bool, string) {
		pods := s.podsOf("api")
		return len(pods) == 1 && pods[0].UID == old.UID && cluster.IsReady(&pods[0]), fmt.Sprint(names(pods))
	})
}

func names(pods []corev1.Pod) []string {
	var list []string
	for _, p := range pods {
		list = append(list, p.Name+" on "+p.Spec.NodeName)
	}
	return list
}

func heldByBudgetIsRestarted(t *testing.T) {
	s := newScene(t, 2)
	lives := s.watchPods()
	s.deployed("api", 2, func(d *appsv1.Deployment) { d.Spec.Strategy.RollingUpdate = rolling(1, 0) })
	s.budget("all", "api", 2)
	old := s.pods(s.nodes[0])
	events := s.follow(s.policy("restart: {workloads: All, blockedByBudget: true}", noStorm))
	s.taint(s.nodes[0], "dedicated")
	s.placed("api", map[string]int{s.nodes[1]: 2})
	expect.EventuallyWithState(t, "both pods have a verdict, and the moves are settled", func() (bool, string) {
		verdicts, moving := events.verdicts(), 0
		for _, v := range verdicts {
			if v.Outcome.Moves() {
				moving++
			}
		}
		return len(verdicts) >= 2 && len(events.settlements()) == moving, summary(verdicts)
	})
	<-time.After(calm)

	// The other pod is replaced by the rollout, or is evicted if the budget allows it meanwhile.
	verdicts := events.verdicts()
	begun := of(schemas.Restarted, verdicts)
	if len(begun) != 1 || begun[0].Method != schemas.MethodRestart || begun[0].Reason != schemas.ReasonRestartAccepted {
		t.Errorf("begun %s, want one rollout restart", summary(begun))
	}
	for _, v := range verdicts { // the restart is in progress, or was a moment ago
		if i := v.Instead; i != nil && i.Reason != schemas.ReasonRestartRunning && i.Reason != schemas.ReasonRestartCooldown {
			t.Errorf("not restarted because of %+v, want %s or %s", i, schemas.ReasonRestartRunning, schemas.ReasonRestartCooldown)
		}
	}
	for _, v := range events.settlements() {
		if v.Reason != schemas.ReasonReplaced {
			t.Errorf("settled %s, want %s", v.Reason, schemas.ReasonReplaced)
		}
	}
	if n := len(s.templateChanges("api")); n != 1 {
		t.Errorf("the template was changed %d times, want once", n)
	}
	t.Logf("verdicts: %s", summary(verdicts))
	lives.neverFewerThan(t, 2, old)
}

// neverFewerThan checks that at least that many pods were ready at any time after the old ones were.
func (l lives) neverFewerThan(t *testing.T, n int, old map[types.UID]string) {
	t.Helper()
	ready, gone := 0, 0
	steps, passed := l.steps()
	for _, st := range steps {
		if !st.going {
			ready++
			continue
		}
		ready--
		if _, is := old[st.pod]; is {
			gone++
		}
		if ready < n {
			t.Errorf("%d pods were ready at %v, want at least %d all the time", ready, passed[st], n)
		}
	}
	if gone != len(old) {
		t.Errorf("%d of the old pods have gone, want %d", gone, len(old))
	}
}

func restartSurvives(t *testing.T) {
	s := newScene(t, 2)
	lives := s.watchPods()
	s.deploy("api", func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = 10 })
	s.available("api")
	old, workload := s.podsOf("api")[0], s.workload("api")
	dir, policy := filetest.ShortDir(t), s.policy("restart: {workloads: All}", noStorm)
	p := s.rehome(policy, dir)
	p.leads()
	s.taint(s.nodes[0], "dedicated")
	expect.EventuallyWithState(t, "the template is changed", func() (bool, string) {
		n := len(s.templateChanges("api"))
		return n > 0, fmt.Sprint(n)
	})
	p.kill()
	if got := s.pods(s.nodes[0]); !reflect.DeepEqual(got, map[types.UID]string{old.UID: old.Name}) {
		t.Fatalf("the process was killed too late: on the node are %v", got)
	}

	s.rehome(policy, dir)
	events := record(t, at(dir))
	end := s.settledOnce(events)
	<-time.After(calm)
	got := short(events.verdicts())
	if len(got) == 0 || got[0].outcome != schemas.Restarted || got[0].reason != schemas.ReasonRestartAccepted || got[0].method != schemas.MethodRestart ||
		len(of(schemas.Restarted, events.verdicts())) != 1 || len(of(schemas.Evicted, events.verdicts())) != 0 {
		t.Errorf("verdicts %+v, want one restart and nothing else that moves", got)
	}
	s.isSettled(end, schemas.ReasonReplaced, schemas.MethodRestart, workload, s.podsOf("api")[0])
	sets, err := s.client.AppsV1().ReplicaSets(s.namespace).List(t.Context(), metav1.ListOptions{})
	s.t.Must(err)
	if n := len(s.templateChanges("api")); n != 1 || len(sets.Items) != 2 {
		t.Errorf("the template was changed %d times, and there are %d ReplicaSets; want once, and 2", n, len(sets.Items))
	}
	if want := []string{"new ready", "old going"}; !reflect.DeepEqual(lives.order(old.UID), want) {
		t.Errorf("seen in the order %q, want %q", lives.order(old.UID), want)
	}
	if got := s.evictions(); len(got) != 0 {
		t.Errorf("evicted %v, want none", got)
	}
}
