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

// By the API, a namespace selector for a missing label selects the namespaces without that label. Up to Kubernetes 1.36, the
// scheduler also compares the selector of an incoming pod with no labels at all, and so selects every namespace.
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

	fits := fit.Verdict{OK: true, Judged: true}
	wantTogether, wantApart := fits, fit.Verdict{Judged: true, Reason: fit.PodAntiAffinity, Detail: hostname}
	if j.minor >= 37 {
		wantTogether, wantApart = fit.Verdict{Judged: true, Reason: fit.PodAffinity, Detail: hostname}, fits
	}
	view := s.view()
	for _, ask := range []struct {
		pod  *corev1.Pod
		want fit.Verdict
	}{{together, wantTogether}, {apart, wantApart}} {
		node := ""
		if ask.want.OK {
			node = j.nodes[0]
		}
		got := j.asker.ask(ask.pod)
		if got.node != node {
			t.Errorf("%s: the scheduler chose %q (%s), want %q", ask.pod.Name, got.node, got.message, node)
		}
		if v := view.Ask(got.pod).On(j.nodes[0]); v != ask.want {
			t.Errorf("%s: got %q, want %q", ask.pod.Name, v, ask.want)
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
