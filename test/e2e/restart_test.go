package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
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
	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// noStorm disables the check of nodes by the cluster circuit breaker, because parallel scenes taint many of them.
const noStorm = "circuitBreakers: {cluster: {nodes: 0%}}"

// TestReplacementFirst runs the scenes of the policy's section restart in parallel.
func TestReplacementFirst(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		play func(*testing.T)
	}{
		{"a rollout restart stops the pod when its replacement is ready, is made once, and is reported to the end", restartedOnce},
		{"the annotation of the Deployment says whether and how it takes part", markedDeployments},
		{"a Deployment under an autoscaler restarts instead of a surge", scaledRestarts},
		{"no restart is possible: the pod is evicted", evictedInstead},
		{"a restart goes on where it was when the process is killed, with no second change", restartSurvives},
		{"an eviction that a webhook takes over is settled when the pod goes", evictedInTheBackground},
	} {
		t.Run(c.name, beside(c.play))
	}
}

func restartedOnce(t *testing.T) {
	s := newScene(t, 2)
	lives := s.watchPods()
	s.deploy("api", func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = 30 })
	s.available("api")
	old := s.podsOf("api")[0]
	dir := filetest.ShortDir(t)
	taints := func(name string) string {
		return profile(name, "deschedule", "RemovePodsViolatingNodeTaints", "{name: RemovePodsViolatingNodeTaints}")
	}
	p := s.rehome(s.profiles([]string{taints("one"), taints("two")}, "restart: {workloads: All}", noStorm), dir)
	p.leads()
	events := record(t, at(dir))

	// Both profiles want to move the pod, and again when the node changes once more during the restart.
	s.taint(s.nodes[0], "dedicated")
	events.until("the pod has a verdict for each profile", func(v []schemas.Verdict) bool { return len(v) >= 2 })
	s.taint(s.nodes[0], "special")
	events.until("and again", func(v []schemas.Verdict) bool { return len(v) >= 4 })
	if got := s.pods(s.nodes[0]); !reflect.DeepEqual(got, map[types.UID]string{old.UID: old.Name}) {
		t.Errorf("on the node are %v before the move is settled, want still %s", got, old.Name)
	}
	end := s.settledOnce(events)
	<-time.After(calm)

	replacement := s.podsOf("api")[0]
	workload := s.workload("api")
	begin := verdict{schemas.Restarted, schemas.ReasonRestartAccepted, schemas.MethodRestart, "rollout restart of " + workload.String()}
	moving := verdict{schemas.Rejected, schemas.ReasonMoving, "", ""}
	// A leader that loses its lease, as on a busy machine, evaluates both profiles again.
	again := 2 * (strings.Count(p.Log.String(), "leading: evaluating everything") - 1)
	got, want := short(events.verdicts()), []verdict{begin, moving, moving, moving}
	for range min(again, len(got)-len(want)) {
		want = append(want, moving)
	}
	if !reflect.DeepEqual(unworded(got), want) {
		t.Errorf("verdicts %v, want %v", got, want)
	}
	s.isSettled(end, schemas.ReasonReplaced, schemas.MethodRestart, workload, replacement)
	if want := []string{"new ready", "old going"}; !reflect.DeepEqual(lives.order(old.UID), want) {
		t.Errorf("seen in the order %q, want %q", lives.order(old.UID), want)
	}
	// The minimum is minReadySeconds, in whole seconds, minus the delay of the test in seeing that the replacement was ready.
	if d := lives.between(replacement.UID, old.UID); d < 25*time.Second {
		t.Errorf("the pod went %v after its replacement was ready, want minReadySeconds later", d)
	} else {
		t.Logf("the pod went %v after its replacement was ready", d)
	}
	if got := s.evictions(); len(got) != 0 {
		t.Errorf("evicted %v, want none", got)
	}
	if n := len(s.templateChanges("api")); n != 1 {
		t.Errorf("the template was changed %d times, want once", n)
	}
	s.toldOnDeployment("api", []string{
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
	s := newScene(t, 2)
	s.deploy("api")
	_, err := s.client.AutoscalingV2().HorizontalPodAutoscalers(s.namespace).Create(t.Context(), &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "api"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "api"},
			MaxReplicas:    3,
		},
	}, metav1.CreateOptions{})
	s.t.Must(err)
	events := s.follow(s.policy("restart: {workloads: All, method: Surge}", noStorm))
	s.taint(s.nodes[0], "dedicated")
	end, workload := s.settledOnce(events), s.workload("api")
	want := []verdict{{schemas.Restarted, schemas.ReasonRestartAccepted, schemas.MethodRestart, "rollout restart of " + workload.String()}}
	if got := short(events.verdicts()); !reflect.DeepEqual(got, want) {
		t.Errorf("verdicts %v, want %v", got, want)
	}
	s.isSettled(end, schemas.ReasonReplaced, schemas.MethodRestart, workload, s.podsOf("api")[0])
}

func markedDeployments(t *testing.T) {
	want := map[string]schemas.Method{
		"none": schemas.MethodEviction, "true": schemas.MethodRestart, "false": schemas.MethodEviction,
		"restart": schemas.MethodRestart, "surge": schemas.MethodSurge,
	}
	s := newScene(t, 2)
	for name := range want {
		s.deploy(name, func(d *appsv1.Deployment) {
			if name != "none" {
				d.Annotations = map[string]string{policy.RestartMark: name}
			}
		})
	}
	events := s.follow(s.policy("restart: {workloads: Annotated}", noStorm))
	s.taint(s.nodes[0], "dedicated")
	s.emptied(s.nodes[0])
	expect.EventuallyWithState(t, "all moves are settled", func() (bool, string) {
		return len(events.settlements()) >= len(want), summary(events.settlements())
	})
	got := map[string]schemas.Method{}
	for _, v := range events.verdicts() {
		got[deploymentOf(v)] = v.Method
	}
	if !reflect.DeepEqual(got, want) || len(events.verdicts()) != len(want) {
		t.Errorf("moved %v, want %v: %s", got, want, summary(events.verdicts()))
	}
	evicted := map[string]bool{}
	for _, e := range s.evictions() {
		evicted[e.pod[:strings.Index(e.pod, "-")]] = true
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

// unworded removes the messages of verdicts that move nothing.
func unworded(verdicts []verdict) []verdict {
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

// deploy creates a Deployment with one replica that prefers the first node, and waits until its pod is ready there.
func (s *scene) deploy(name string, change ...func(*appsv1.Deployment)) {
	s.t.Helper()
	s.unready(name, change...)
	s.ready(name)
	s.placed(name, map[string]int{s.nodes[0]: 1})
}

// unready is deploy without the wait for a ready pod.
func (s *scene) unready(name string, change ...func(*appsv1.Deployment)) {
	s.t.Helper()
	_, err := s.cluster.AddDeployment(s.t.Context(), s.namespace, name, 1, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.NodeSelector = map[string]string{"scene": s.namespace}
		preferring(s.nodes[0])(&d.Spec.Template)
		for _, c := range change {
			c(d)
		}
	})
	s.t.Must(err)
}

// live returns the current state of a Deployment.
func (s *scene) live(deployment string) *appsv1.Deployment {
	s.t.Helper()
	d, err := s.client.AppsV1().Deployments(s.namespace).Get(s.t.Context(), deployment, metav1.GetOptions{})
	s.t.Must(err)
	return d
}

// workload returns a Deployment in the form of verdicts.
func (s *scene) workload(deployment string) schemas.ObjectRef {
	s.t.Helper()
	return schemas.ObjectRef{Kind: "Deployment", Namespace: s.namespace, Name: deployment, UID: s.live(deployment).UID}
}

// available waits until all pods of a Deployment have been ready for its minReadySeconds.
func (s *scene) available(deployment string) {
	s.t.Helper()
	expect.EventuallyWithState(s.t, deployment+" is available", func() (bool, string) {
		d := s.live(deployment)
		return d.Status.AvailableReplicas == *d.Spec.Replicas, fmt.Sprint(d.Status)
	})
}

// settledOnce waits until a move is settled, and returns its end. It fails if another move is settled.
func (s *scene) settledOnce(events *recording) schemas.Verdict {
	s.t.Helper()
	expect.EventuallyWithState(s.t, "the move is settled", func() (bool, string) {
		return len(events.settlements()) > 0, summary(events.verdicts())
	})
	ends := events.settlements()
	if len(ends) != 1 {
		s.t.Fatalf("%d moves are settled, want one: %s", len(ends), summary(ends))
	}
	return ends[0]
}

// isSettled checks the end of a move: the replacement and its node.
func (s *scene) isSettled(
	end schemas.Verdict, reason schemas.ReasonCode, method schemas.Method, workload schemas.ObjectRef, replacement corev1.Pod,
) {
	s.t.Helper()
	want := end
	want.Reason, want.Method, want.Workload = reason, method, &workload
	want.Settlement = &schemas.Settlement{
		Replacement: &schemas.PodRef{Namespace: s.namespace, Name: replacement.Name, UID: replacement.UID},
		Node:        replacement.Spec.NodeName,
	}
	if end.Settlement != nil {
		want.Settlement.Seconds = end.Settlement.Seconds
	}
	if !reflect.DeepEqual(end, want) {
		s.t.Errorf("settled\n got %+v %+v %+v\nwant %+v %+v %+v", end, end.Workload, end.Settlement, want, want.Workload, want.Settlement)
	}
}

// templateChanges returns the changes of a Deployment's template by rehome in the audit log, in order.
func (s *scene) templateChanges(deployment string) []cluster.AuditEntry {
	s.t.Helper()
	log, err := s.cluster.Audit(s.t.Context())
	s.t.Must(err)
	return slices.DeleteFunc(log, func(e cluster.AuditEntry) bool {
		var patch struct {
			Spec struct {
				Template json.RawMessage `json:"template"`
			} `json:"spec"`
		}
		if e.Namespace != s.namespace || e.Resource != "deployments" || e.Name != deployment || e.Verb != "patch" ||
			e.Code != http.StatusOK || !strings.HasPrefix(e.UserAgent, "rehome") {
			return true
		}
		s.t.Must(json.Unmarshal(e.Object, &patch))
		return patch.Spec.Template == nil
	})
}

// toldOnDeployment waits until rehome has recorded exactly these Kubernetes Events on a Deployment, in order.
func (s *scene) toldOnDeployment(deployment string, want []string) {
	s.t.Helper()
	names := strings.NewReplacer(s.nodes[0], "NODE-0", s.nodes[1], "NODE-1")
	expect.EventuallyWithState(s.t, fmt.Sprintf("the Kubernetes Events on %s are %q", deployment, want), func() (bool, string) {
		list, err := s.client.EventsV1().Events(s.namespace).List(s.t.Context(), metav1.ListOptions{
			FieldSelector: "reportingController=rehome,regarding.kind=Deployment,regarding.name=" + deployment,
		})
		s.t.Must(err)
		slices.SortFunc(list.Items, func(a, b eventsv1.Event) int { return a.EventTime.Compare(b.EventTime.Time) })
		var got []string
		for _, e := range list.Items {
			got = append(got, e.Type+" "+names.Replace(e.Note))
		}
		return reflect.DeepEqual(got, want), fmt.Sprintf("%q", got)
	})
}

// lives is the history of the pods of a scene.
type lives struct{ *clustertest.Pods }

// step is one of two kinds of steps in the life of a pod.
type step struct {
	pod   types.UID
	going bool // terminating or gone; otherwise ready
}

// watchPods follows the pods of the scene until it ends.
func (s *scene) watchPods() lives {
	s.t.Helper()
	return lives{clustertest.WatchPods(s.t, s.client, s.namespace)}
}

// steps returns the first steps of each kind, in order, and when each was seen.
func (l lives) steps() (steps []step, passed map[step]time.Time) {
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
func (l lives) order(old types.UID) []string {
	var list []string
	steps, _ := l.steps()
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
func (l lives) between(ready, gone types.UID) time.Duration {
	_, passed := l.steps()
	return passed[step{gone, true}].Sub(passed[step{ready, false}])
}

// missing returns, for each group of Deployments, the largest number of wanted pods that were not ready at the same time, for any
// reason.
func (l lives) missing(group func(deployment string) string, wanted int) map[string]int {
	most := map[string]int{}
	for name, n := range l.Least(func(p *corev1.Pod) string { return group(p.Labels["app"]) }) {
		most[name] = wanted - n
	}
	return most
}
