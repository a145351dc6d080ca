package candidate_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/functions/candidate"
	"github.com/rehome-dev/rehome/policy"
	test "github.com/rehome-dev/rehome/test/kit/functionstest"
)

func TestMovable(t *testing.T) {
	for _, c := range []struct {
		name            string
		option          test.PodOption
		movable, leaves bool
	}{
		{"running", test.Phase(corev1.PodRunning), true, false},
		{"pending", test.Phase(corev1.PodPending), true, false},
		{"in an unknown phase", test.Phase(corev1.PodUnknown), true, false},
		{"succeeded", test.Phase(corev1.PodSucceeded), false, true},
		{"failed", test.Phase(corev1.PodFailed), false, true},
		{"being deleted", test.Terminating(), false, true},
		{"protected", test.Protected(policy.PodsWithPVC), false, false},
	} {
		p := test.Pod("a", c.option)
		if movable, leaves := candidate.Movable(&p), candidate.Leaves(&p.Pod); movable != c.movable || leaves != c.leaves {
			t.Errorf("%s: movable %v, leaves %v, want %v and %v", c.name, movable, leaves, c.movable, c.leaves)
		}
	}
}

func TestNodeReady(t *testing.T) {
	for _, c := range []struct {
		name string
		node corev1.Node
		want bool
	}{
		{"no condition", test.Node("a"), true},
		{"ready", test.Node("a", test.Ready(corev1.ConditionTrue)), true},
		{"not ready", test.Node("a", test.Ready(corev1.ConditionFalse)), false},
		{"does not answer", test.Node("a", test.Ready(corev1.ConditionUnknown)), false},
	} {
		if got := candidate.Ready(&c.node); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func TestTaintToleration(t *testing.T) {
	exists := corev1.Toleration{Key: "a", Operator: corev1.TolerationOpExists}
	executed := corev1.Toleration{Key: "a", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	above := corev1.Toleration{Key: "a", Operator: corev1.TolerationOpGt, Value: "5"}
	for _, c := range []struct {
		name        string
		taint       string
		tolerations []corev1.Toleration
		want        bool
	}{
		{"no toleration", "a:NoSchedule", nil, false},
		{"the key", "a=1:NoSchedule", []corev1.Toleration{exists}, true},
		{"another key", "b:NoSchedule", []corev1.Toleration{exists}, false},
		{"another effect", "a:NoSchedule", []corev1.Toleration{executed}, false},
		{"the effect", "a:NoExecute", []corev1.Toleration{executed}, true},
		{"one of several", "a:NoSchedule", []corev1.Toleration{executed, exists}, true},
		{"a larger number", "a=6:NoSchedule", []corev1.Toleration{above}, true},
		{"no larger number", "a=5:NoSchedule", []corev1.Toleration{above}, false},
	} {
		taint := test.Taint(c.taint)
		if got := candidate.Tolerates(c.tolerations, &taint); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}
