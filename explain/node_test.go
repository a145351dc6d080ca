package explain_test

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/explain"
	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/simulate"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// onNode returns a pod of n1 with a label for its name, and two budgets that select it by this label.
func onNode(name string, phase corev1.PodPhase) (*corev1.Pod, *policyv1.PodDisruptionBudget, *policyv1.PodDisruptionBudget) {
	labels := map[string]string{"app": name}
	budget := func(name string) *policyv1.PodDisruptionBudget {
		return &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}},
			Status:     policyv1.PodDisruptionBudgetStatus{CurrentHealthy: 1, DesiredHealthy: 2},
		}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), Labels: labels},
		Spec:       corev1.PodSpec{NodeName: "n1"}, Status: corev1.PodStatus{Phase: phase},
	}, budget(name), budget(name + "-too")
}

func TestBudgetsOnNode(t *testing.T) {
	pending, overPending, alsoPending := onNode("pending", corev1.PodPending)
	ended, overEnded, _ := onNode("ended", corev1.PodFailed)
	lenient, overLenient, _ := onNode("lenient", corev1.PodRunning)
	overLenient.Spec.UnhealthyPodEvictionPolicy = new(policyv1.AlwaysAllow)
	healthy, overHealthy, _ := onNode("healthy", corev1.PodRunning)
	overHealthy.Status.DesiredHealthy = 1
	unready, overUnready, _ := onNode("unready", corev1.PodRunning)
	ready, overReady, alsoReady := onNode("ready", corev1.PodRunning)
	ready.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	alsoReady.Status.DisruptionsAllowed = 1
	got, err := explain.NodeOf(simulate.Config{Now: time.Now}, []metav1.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, pending, overPending, alsoPending, ended, overEnded, lenient, overLenient,
		healthy, overHealthy, unready, overUnready, ready, overReady, alsoReady,
	}, "n1")
	held := func(pod, message string) explain.StayingPod {
		return explain.StayingPod{Namespace: "shop", Name: pod, Rule: "DisruptionBudget", Message: message}
	}
	want := explain.NodeExplanation{Node: "n1", Pods: 6, Staying: []explain.StayingPod{
		held("ready", "poddisruptionbudget shop/ready: 1 healthy pods, 2 needed"), held("ready", explain.SeveralBudgets),
		held("unready", "poddisruptionbudget shop/unready: 1 healthy pods, 2 needed"),
	}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("error %v\ngot  %+v\nwant %+v", err, got, want)
	}
}

func TestNodeKnown(t *testing.T) {
	pod, _, _ := onNode("a", corev1.PodRunning)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	for name, c := range map[string]struct {
		objects []metav1.Object
		want    string
	}{
		"a_node_without_pods":          {[]metav1.Object{node}, "0 pods, error <nil>"},
		"a_pod_of_a_node_that_is_gone": {[]metav1.Object{pod}, "1 pods, error <nil>"},
		"neither":                      {nil, "0 pods, error node n1: not found: it is not in the cluster, and no pod names it"},
	} {
		t.Run(name, func(t *testing.T) {
			x, err := explain.NodeOf(simulate.Config{Now: time.Now}, c.objects, "n1")
			got := fmt.Sprintf("%d pods, error %v", x.Pods, err)
			if got != c.want || errors.Is(err, explain.ErrNothing) != (err != nil) {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestProfilesOnNode(t *testing.T) {
	p, err := policy.Parse("policy.yaml", []byte(`
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
  - name: all
    pluginConfig: [{name: RemovePodsViolatingNodeTaints}]
    plugins: {deschedule: {enabled: [RemovePodsViolatingNodeTaints]}}
  - name: batch
    pluginConfig: [{name: DefaultEvictor, args: {labelSelector: {matchLabels: {app: batch}}}}, {name: RemovePodsViolatingNodeTaints}]
    plugins: {deschedule: {enabled: [RemovePodsViolatingNodeTaints]}}
`), settings.Strategies())
	expect.Must(t, err)
	owned := func(name, kind string) (*corev1.Pod, *policyv1.PodDisruptionBudget) {
		pod, budget, _ := onNode(name, corev1.PodRunning)
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, UID: "o", Controller: new(true)}}
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		return pod, budget
	}
	agent, _ := owned("agent", "DaemonSet")
	free, _ := owned("free", "ReplicaSet")
	held, budget := owned("held", "ReplicaSet")
	got, err := explain.NodeOf(simulate.Config{Policy: p, Functions: functions.All(), Now: time.Now}, []metav1.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}},
		agent, free, held, budget,
	}, "n1")
	want := explain.NodeExplanation{Node: "n1", Pods: 3, Staying: []explain.StayingPod{
		{Namespace: "shop", Name: "agent", Profile: "all", Rule: "DaemonSetPods", Message: "it belongs to the DaemonSet agent"},
		{Namespace: "shop", Name: "agent", Profile: "batch", Rule: "DaemonSetPods", Message: "it belongs to the DaemonSet agent"},
		{Namespace: "shop", Name: "agent", Profile: "batch", Rule: "LabelSelector", Message: "its labels do not match app=batch"},
		{Namespace: "shop", Name: "held", Rule: "DisruptionBudget", Message: "poddisruptionbudget shop/held: 1 healthy pods, 2 needed"},
	}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("error %v\ngot  %+v\nwant %+v", err, got, want)
	}
}
