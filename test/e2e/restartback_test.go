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

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// gated creates the Deployment api, whose pods are scheduled only when the test permits, and permits the first one.
func (s *scene) gated() {
	s.t.Helper()
	s.unready("api", func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.org/gate"}}
	})
	expect.EventuallyWithState(s.t, "there is a pod", func() (bool, string) { return len(s.podsOf("api")) == 1, "" })
	s.patchPod(s.podsOf("api")[0].Name, `{"spec":{"schedulingGates":null}}`)
	s.ready("api")
	s.placed("api", map[string]int{s.nodes[0]: 1})
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
	p.Kill()
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

// evictedInstead has a Deployment that cannot create a replacement first now, and one that never can.
func evictedInstead(t *testing.T) {
	s := newScene(t, 2)
	s.deploy("unavailable", func(d *appsv1.Deployment) { d.Spec.MinReadySeconds = 500 })
	s.deploy("recreate", func(d *appsv1.Deployment) { d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType })
	events := s.follow(s.policy("restart: {workloads: All, otherwise: Evict}", noStorm))
	s.taint(s.nodes[0], "dedicated")
	s.moved(0, 2)
	got := map[string]schemas.Verdict{}
	for _, v := range events.until("both have a verdict", func(v []schemas.Verdict) bool { return len(v) >= 2 }) {
		got[deploymentOf(v)] = schemas.Verdict{Outcome: v.Outcome, Reason: v.Reason, Method: v.Method, Instead: v.Instead}
	}
	instead := func(reason schemas.ReasonCode, message string) schemas.Verdict {
		return schemas.Verdict{
			Outcome: schemas.Evicted, Reason: schemas.ReasonEvictionAccepted, Method: schemas.MethodEviction,
			Instead: &schemas.Instead{Method: schemas.MethodRestart, Reason: reason, Message: "deployment " + s.namespace + "/" + message},
		}
	}
	expect.Equal(t, "verdicts", got, map[string]schemas.Verdict{
		"unavailable": instead(schemas.ReasonRestartUnhealthy, "unavailable: 0 of 1 pods are available"),
		"recreate": instead(schemas.ReasonRestartStrategy,
			"recreate: spec.strategy.type is Recreate: it stops its pods before it starts new ones"),
	})
	s.noRestarts()
}

// noRestarts checks that rehome has not changed the Deployments.
func (s *scene) noRestarts() {
	s.t.Helper()
	log, err := s.cluster.Audit(s.t.Context())
	s.t.Must(err)
	for _, e := range log {
		if e.Namespace == s.namespace && e.Resource == "deployments" && strings.HasPrefix(e.UserAgent, "rehome") {
			s.t.Errorf("deployment %s was changed: %s %s", e.Name, e.Verb, e.Object)
		}
	}
}
