package fit_test

import (
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/fit"
	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
)

// A namespace selector for a label that is missing selects the namespaces without it, says the API. The scheduler of
// Kubernetes 1.36 asks the selector of an incoming pod also about no labels at all, so that it selects every namespace.
// Rehome follows it where that keeps pods apart, and the API where it would bring pods together, so that it says yes only
// if both do. When this test fails because the scheduler has changed, the difference can go.
func TestNamespaceSelectorMissingLabel(t *testing.T) {
	c := clustertest.New(t, cluster.Options{})
	j := newJudge(t, c, rand.New(rand.NewPCG(1, 1)))
	s := &scene{judge: j}
	each(s, []corev1.Namespace{
		{ObjectMeta: metav1.ObjectMeta{Name: "one", Labels: map[string]string{"team": "red"}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "two", Labels: map[string]string{"team": "blue"}}},
	}, s.changeNamespace)
	existing := plainPod("one", "db")
	existing.Name, existing.Spec.NodeName = "db", j.nodes[0]
	each(s, []corev1.Pod{*existing}, s.makePod)
	s.state = s.look()

	without := corev1.PodAffinityTerm{
		TopologyKey: hostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
		NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "team", Operator: metav1.LabelSelectorOpDoesNotExist},
		}},
	}
	terms := []corev1.PodAffinityTerm{without}
	together := plainPod("two", "web")
	together.Name = "together"
	affinity(together).PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}
	apart := plainPod("two", "web")
	apart.Name = "apart"
	affinity(apart).PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}
	pin(apart, j.nodes[0])

	view := s.view()
	for _, ask := range []struct {
		pod       *corev1.Pod
		scheduler string
		verdict   fit.Verdict
	}{
		{together, j.nodes[0], fit.Verdict{Judged: true, Reason: fit.PodAffinity, Detail: hostname}},
		{apart, "", fit.Verdict{Judged: true, Reason: fit.PodAntiAffinity, Detail: hostname}},
	} {
		got := j.asker.ask(ask.pod)
		if got.node != ask.scheduler {
			t.Errorf("%s: the scheduler chose %q (%s), want %q", ask.pod.Name, got.node, got.message, ask.scheduler)
		}
		if v := view.Fits(got.pod, j.nodes[0]); v != ask.verdict {
			t.Errorf("%s: got %q, want %q", ask.pod.Name, v, ask.verdict)
		}
	}
}

func plainPod(namespace, app string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{
			Containers:                   []corev1.Container{{Name: "main", Image: "none"}},
			AutomountServiceAccountToken: new(false),
		},
	}
}
