package moves

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/scene"
)

// TestReplacementFirst moves pods by a rollout restart, a surge, or a webhook.
func TestReplacementFirst(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		play func(*testing.T)
	}{
		{"a rollout restart stops the pod when its replacement is ready, is made once, and is reported to the end", restartedOnce},
		{"an annotation selects restart, surge, or eviction", markedDeployments},
		{"a Deployment under an autoscaler restarts instead of a surge", scaledRestarts},
		{"no restart is possible: the pod is evicted", evictedInstead},
		{"a restart goes on where it was when the process is killed, with no second change", restartSurvives},
		{"an eviction that a webhook takes over is settled when the pod goes", evictedInTheBackground},
	} {
		t.Run(c.name, parallel(c.play))
	}
}

func restartedOnce(t *testing.T) {
	s := scene.New(t, 2)
	history := s.WatchPods()
	s.AddSingle("api", func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = 30 })
	s.WaitAvailable("api")
	old := s.PodsOf("api")[0]
	dir := filetest.ShortDir(t)
	taints := func(name string) string {
		return scene.Profile(name, "deschedule", "RemovePodsViolatingNodeTaints", "{name: RemovePodsViolatingNodeTaints}")
	}
	p := s.StartRun(s.ProfilesPolicy([]string{taints("one"), taints("two")}, "restart: {workloads: All}"), dir)
	p.WaitLeads()
	events := scene.Record(t, scene.BusIn(dir))

	// Both profiles want to move the pod, and again when the node changes once more during the restart.
	s.Taint(s.Nodes[0], "dedicated")
	events.WaitVerdicts("the pod has a verdict for each profile", func(v []schemas.Verdict) bool { return len(v) >= 2 })
	s.Taint(s.Nodes[0], "special")
	events.WaitVerdicts("and again", func(v []schemas.Verdict) bool { return len(v) >= 4 })
	if got := s.PodsOn(s.Nodes[0]); !reflect.DeepEqual(got, map[types.UID]string{old.UID: old.Name}) {
		t.Errorf("on the node are %v before the move is settled, want still %s", got, old.Name)
	}
	end := waitSettled(s, events)
	<-time.After(scene.CalmTime)

	replacement := s.PodsOf("api")[0]
	workload := workload(s, "api")
	begin := verdict{schemas.Restarted, schemas.ReasonRestartAccepted, schemas.MethodRestart, "rollout restart of " + workload.String()}
	moving := verdict{schemas.Rejected, schemas.ReasonMoving, "", ""}
	// A leader that loses its lease, as on a busy machine, evaluates both profiles again.
	again := 2 * (strings.Count(p.Log.String(), "leading: evaluating everything") - 1)
	got, want := short(events.Verdicts()), []verdict{begin, moving, moving, moving}
	for range min(again, len(got)-len(want)) {
		want = append(want, moving)
	}
	if !reflect.DeepEqual(withoutMessages(got), want) {
		t.Errorf("verdicts %v, want %v", got, want)
	}
	checkSettled(s, end, schemas.ReasonReplaced, schemas.MethodRestart, workload, replacement)
	if want := []string{"new ready", "old going"}; !reflect.DeepEqual(order(history, old.UID), want) {
		t.Errorf("seen in the order %q, want %q", order(history, old.UID), want)
	}
	// The minimum is minReadySeconds, in whole seconds, minus the delay of the test in seeing that the replacement was ready.
	if d := between(history, replacement.UID, old.UID); d < 25*time.Second {
		t.Errorf("the pod went %v after its replacement was ready, want minReadySeconds later", d)
	} else {
		t.Logf("the pod went %v after its replacement was ready", d)
	}
	if got := s.Evictions(); len(got) != 0 {
		t.Errorf("evicted %v, want none", got)
	}
	if n := len(s.TemplateChanges("api")); n != 1 {
		t.Errorf("the template was changed %d times, want once", n)
	}
	checkDeploymentEvents(s, "api", []string{
		"Normal move off node NODE-0 by rehome requested, rollout-restart: rollout restart of " + workload.String() +
			" (does not tolerate dedicated:NoSchedule)",
		"Normal moved by rehome: the replacement is ready",
	})
	restarts := regexp.MustCompile(`(?m)^rehome_verdicts_total{.*method="rollout-restart",.*outcome="restarted",.*} (\d+)$`)
	_, metrics := p.Get("metrics")
	if got := restarts.FindAllStringSubmatch(metrics, -1); len(got) != 1 || got[0][1] != "1" {
		t.Errorf("the metric of restarts is %q, want it once, 1", got)
	}
}

// scaledRestarts has an autoscaler, which would remove the additional replica of a surge.
func scaledRestarts(t *testing.T) {
	s := scene.New(t, 2)
	s.AddSingle("api")
	_, err := s.Client.AutoscalingV2().HorizontalPodAutoscalers(s.Namespace).Create(t.Context(), &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "api"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "api"},
			MaxReplicas:    3,
		},
	}, metav1.CreateOptions{})
	s.T.Must(err)
	events := follow(s, s.Policy("restart: {workloads: All, method: Surge}"))
	s.Taint(s.Nodes[0], "dedicated")
	end, workload := waitSettled(s, events), workload(s, "api")
	want := []verdict{{schemas.Restarted, schemas.ReasonRestartAccepted, schemas.MethodRestart, "rollout restart of " + workload.String()}}
	if got := short(events.Verdicts()); !reflect.DeepEqual(got, want) {
		t.Errorf("verdicts %v, want %v", got, want)
	}
	checkSettled(s, end, schemas.ReasonReplaced, schemas.MethodRestart, workload, s.PodsOf("api")[0])
}

func markedDeployments(t *testing.T) {
	want := map[string]schemas.Method{
		"none": schemas.MethodEviction, "true": schemas.MethodRestart, "false": schemas.MethodEviction,
		"restart": schemas.MethodRestart, "surge": schemas.MethodSurge,
	}
	s := scene.New(t, 2)
	for name := range want {
		s.AddSingle(name, func(d *appsv1.Deployment) {
			if name != "none" {
				d.Annotations = map[string]string{policy.RestartMark: name}
			}
		})
	}
	events := follow(s, s.Policy("restart: {workloads: Annotated}"))
	s.Taint(s.Nodes[0], "dedicated")
	s.WaitEmpty(s.Nodes[0])
	expect.EventuallyWithState(t, "all moves are settled", func() (bool, string) {
		return len(events.Settlements()) >= len(want), scene.Summary(events.Settlements())
	})
	got := map[string]schemas.Method{}
	for _, v := range events.Verdicts() {
		got[deploymentOf(v)] = v.Method
	}
	if !reflect.DeepEqual(got, want) || len(events.Verdicts()) != len(want) {
		t.Errorf("moved %v, want %v: %s", got, want, scene.Summary(events.Verdicts()))
	}
	evicted := map[string]bool{}
	for _, e := range s.Evictions() {
		evicted[e.Pod[:strings.Index(e.Pod, "-")]] = true
	}
	if want := map[string]bool{"none": true, "false": true}; !reflect.DeepEqual(evicted, want) {
		t.Errorf("evictions of %v in the audit log, want %v", evicted, want)
	}
}

// verdict has the compared fields of a verdict.
type verdict struct {
	outcome schemas.Outcome
	reason  schemas.ReasonCode
	method  schemas.Method
	message string
}

func short(verdicts []schemas.Verdict) []verdict {
	var list []verdict
	for _, v := range verdicts {
		list = append(list, verdict{v.Outcome, v.Reason, v.Method, v.Message})
	}
	return list
}

// withoutMessages removes the messages of verdicts that move nothing.
func withoutMessages(verdicts []verdict) []verdict {
	list := slices.Clone(verdicts)
	for i, v := range list {
		if !v.outcome.Moves() {
			list[i].message = ""
		}
	}
	return list
}

// deploymentOf returns the name of the Deployment of the pod in a verdict. The name has no hyphen.
func deploymentOf(v schemas.Verdict) string {
	name, _, _ := strings.Cut(v.Intent.Pod.Name, "-")
	return name
}

// workload returns a Deployment in the form of verdicts.
func workload(s *scene.Scene, deployment string) schemas.ObjectRef {
	s.T.Helper()
	return schemas.ObjectRef{Kind: "Deployment", Namespace: s.Namespace, Name: deployment, UID: s.GetDeployment(deployment).UID}
}

// waitSettled waits until a move is settled, and returns its end. It fails if another move is settled.
func waitSettled(s *scene.Scene, events *scene.Recording) schemas.Verdict {
	s.T.Helper()
	expect.EventuallyWithState(s.T, "the move is settled", func() (bool, string) {
		return len(events.Settlements()) > 0, scene.Summary(events.Verdicts())
	})
	ends := events.Settlements()
	if len(ends) != 1 {
		s.T.Fatalf("%d moves are settled, want one: %s", len(ends), scene.Summary(ends))
	}
	return ends[0]
}

// checkSettled checks the end of a move: the replacement and its node.
func checkSettled(s *scene.Scene,
	end schemas.Verdict, reason schemas.ReasonCode, method schemas.Method, workload schemas.ObjectRef, replacement corev1.Pod,
) {
	s.T.Helper()
	want := end
	want.Reason, want.Method, want.Workload = reason, method, &workload
	want.Settlement = &schemas.Settlement{
		Replacement: &schemas.PodRef{Namespace: s.Namespace, Name: replacement.Name, UID: replacement.UID},
		Node:        replacement.Spec.NodeName,
	}
	if end.Settlement != nil {
		want.Settlement.Seconds = end.Settlement.Seconds
	}
	if !reflect.DeepEqual(end, want) {
		s.T.Errorf("settled\n got %+v %+v %+v\nwant %+v %+v %+v", end, end.Workload, end.Settlement, want, want.Workload, want.Settlement)
	}
}

// checkDeploymentEvents waits until rehome has recorded exactly these Kubernetes Events on a Deployment, in order.
func checkDeploymentEvents(s *scene.Scene, deployment string, want []string) {
	s.T.Helper()
	names := strings.NewReplacer(s.Nodes[0], "NODE-0", s.Nodes[1], "NODE-1")
	expect.EventuallyWithState(s.T, fmt.Sprintf("the Kubernetes Events on %s are %q", deployment, want), func() (bool, string) {
		list, err := s.Client.EventsV1().Events(s.Namespace).List(s.T.Context(), metav1.ListOptions{
			FieldSelector: "reportingController=rehome,regarding.kind=Deployment,regarding.name=" + deployment,
		})
		s.T.Must(err)
		slices.SortFunc(list.Items, func(a, b eventsv1.Event) int { return a.EventTime.Compare(b.EventTime.Time) })
		var got []string
		for _, e := range list.Items {
			got = append(got, e.Type+" "+names.Replace(e.Note))
		}
		return reflect.DeepEqual(got, want), fmt.Sprintf("%q", got)
	})
}

// step is one of two kinds of steps in the life of a pod.
type step struct {
	pod   types.UID
	going bool // terminating or gone; otherwise ready
}

// steps returns the first steps of each kind, in order, and when each was seen.
func steps(l scene.PodHistory) (steps []step, passed map[step]time.Time) {
	passed = map[step]time.Time{}
	for _, c := range l.Changes() {
		st := step{c.UID, c.Going()}
		if _, before := passed[st]; !before && (st.going || c.Ready()) {
			passed[st] = c.At
			steps = append(steps, st)
		}
	}
	return steps, passed
}

// order returns the order of the steps after the old pod was ready.
func order(l scene.PodHistory, old types.UID) []string {
	var list []string
	steps, _ := steps(l)
	for _, st := range steps {
		who, what := "new", "ready"
		if st.pod == old {
			who = "old"
		}
		if st.going {
			what = "going"
		}
		if who+what != "oldready" {
			list = append(list, who+" "+what)
		}
	}
	return list
}

// between returns the time between the readiness of one pod and the end of another.
func between(l scene.PodHistory, ready, gone types.UID) time.Duration {
	_, passed := steps(l)
	return passed[step{gone, true}].Sub(passed[step{ready, false}])
}
