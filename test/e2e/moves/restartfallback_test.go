package moves

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

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/scene"
)

// gated creates the Deployment api, whose pods are scheduled only when the test permits, and permits the first one.
func gated(s *scene.Scene) {
	s.T.Helper()
	s.CreateSingle("api", func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.org/gate"}}
	})
	expect.EventuallyWithState(s.T, "there is a pod", func() (bool, string) { return len(s.PodsOf("api")) == 1, "" })
	s.PatchPod(s.PodsOf("api")[0].Name, `{"spec":{"schedulingGates":null}}`)
	s.WaitReady("api")
	s.WaitPlaced("api", map[string]int{s.Nodes[0]: 1})
}

// onlyPod waits until its only pod is the ready pod of a Deployment.
func onlyPod(s *scene.Scene, old corev1.Pod) {
	s.T.Helper()
	expect.EventuallyWithState(s.T, "only the old pod is there", func() (bool, string) {
		pods := s.PodsOf("api")
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

func restartSurvives(t *testing.T) {
	s := scene.New(t, 2)
	history := s.WatchPods()
	s.AddSingle("api", func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = 10 })
	s.WaitAvailable("api")
	old, workload := s.PodsOf("api")[0], workload(s, "api")
	dir, policy := filetest.ShortDir(t), s.Policy("restart: {workloads: All}")
	p := s.StartRun(policy, dir)
	p.WaitLeads()
	s.Taint(s.Nodes[0], "dedicated")
	expect.EventuallyWithState(t, "the template is changed", func() (bool, string) {
		n := len(s.TemplateChanges("api"))
		return n > 0, fmt.Sprint(n)
	})
	p.Kill()
	if got := s.PodsOn(s.Nodes[0]); !reflect.DeepEqual(got, map[types.UID]string{old.UID: old.Name}) {
		t.Fatalf("the process was killed too late: on the node are %v", got)
	}

	s.StartRun(policy, dir)
	events := scene.Record(t, scene.BusIn(dir))
	end := waitSettled(s, events)
	<-time.After(scene.CalmTime)
	got := short(events.Verdicts())
	if len(got) == 0 || got[0].outcome != schemas.Restarted || got[0].reason != schemas.ReasonRestartAccepted || got[0].method != schemas.MethodRestart ||
		len(scene.WithOutcome(schemas.Restarted, events.Verdicts())) != 1 || len(scene.WithOutcome(schemas.Evicted, events.Verdicts())) != 0 {
		t.Errorf("verdicts %+v, want one restart and nothing else that moves", got)
	}
	checkSettled(s, end, schemas.ReasonReplaced, schemas.MethodRestart, workload, s.PodsOf("api")[0])
	sets, err := s.Client.AppsV1().ReplicaSets(s.Namespace).List(t.Context(), metav1.ListOptions{})
	s.T.Must(err)
	if n := len(s.TemplateChanges("api")); n != 1 || len(sets.Items) != 2 {
		t.Errorf("the template was changed %d times, and there are %d ReplicaSets; want once, and 2", n, len(sets.Items))
	}
	if want := []string{"new ready", "old going"}; !reflect.DeepEqual(order(history, old.UID), want) {
		t.Errorf("seen in the order %q, want %q", order(history, old.UID), want)
	}
	if got := s.Evictions(); len(got) != 0 {
		t.Errorf("evicted %v, want none", got)
	}
}

// evictedInstead has a Deployment that cannot create a replacement first now, and one that never can.
func evictedInstead(t *testing.T) {
	s := scene.New(t, 2)
	s.AddSingle("unavailable", func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = 500 })
	s.AddSingle("recreate", func(d *appsv1.Deployment) { d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType })
	events := follow(s, s.Policy("restart: {workloads: All, otherwise: Evict}"))
	s.Taint(s.Nodes[0], "dedicated")
	s.CheckMoved(0, 2)
	got := map[string]schemas.Verdict{}
	for _, v := range events.WaitVerdicts("both have a verdict", func(v []schemas.Verdict) bool { return len(v) >= 2 }) {
		got[deploymentOf(v)] = schemas.Verdict{Outcome: v.Outcome, Reason: v.Reason, Method: v.Method, Instead: v.Instead}
	}
	instead := func(reason schemas.ReasonCode, message string) schemas.Verdict {
		return schemas.Verdict{
			Outcome: schemas.Evicted, Reason: schemas.ReasonEvictionAccepted, Method: schemas.MethodEviction,
			Instead: &schemas.Instead{Method: schemas.MethodRestart, Reason: reason, Message: "deployment " + s.Namespace + "/" + message},
		}
	}
	expect.Equal(t, "verdicts", got, map[string]schemas.Verdict{
		"unavailable": instead(schemas.ReasonRestartUnhealthy, "unavailable: 0 of 1 pods are available"),
		"recreate": instead(schemas.ReasonRestartStrategy,
			"recreate: spec.strategy.type is Recreate: it stops its pods before it starts new ones"),
	})
	noRestarts(s)
}

// noRestarts checks that rehome has not changed the Deployments.
func noRestarts(s *scene.Scene) {
	s.T.Helper()
	log, err := s.Cluster.Audit(s.T.Context())
	s.T.Must(err)
	for _, e := range log {
		if e.Namespace == s.Namespace && e.Resource == "deployments" && strings.HasPrefix(e.UserAgent, "rehome") {
			s.T.Errorf("deployment %s was changed: %s %s", e.Name, e.Verb, e.Object)
		}
	}
}
