package cli

import (
	"bytes"
	"cmp"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/cli/cmdutil"
	"github.com/rehome-dev/rehome/cli/look"
	"github.com/rehome-dev/rehome/explain"
	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/simulate"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

func TestExplainNode(t *testing.T) {
	p, err := policy.Parse("policy.yaml", []byte(byLoadPolicy), settings.Strategies())
	expect.Must(t, err)
	pod := func(name, node, owner string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: name, UID: types.UID(name), Labels: map[string]string{"app": name},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: owner, Name: name, UID: "o", Controller: new(true)}},
			},
			Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{
				Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			},
		}
	}
	objects := []metav1.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}},
		pod("free", "n1", "ReplicaSet"), pod("held", "n1", "ReplicaSet"), pod("agent", "n1", "DaemonSet"), pod("other", "n2", "DaemonSet"),
		&policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "keep"},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "held"}}},
			Status:     policyv1.PodDisruptionBudgetStatus{CurrentHealthy: 1, DesiredHealthy: 1},
		},
	}
	x, err := explain.NodeOf(simulate.Config{Policy: p, Functions: functions.All(), Now: func() time.Time { return clock }}, objects, "n1")
	expect.Must(t, err)
	for _, format := range []string{"", "json", "yaml"} {
		var out bytes.Buffer
		if format == "" {
			err = look.NodePage{NodeExplanation: x}.Write(&out)
		} else {
			err = cmdutil.PrintObject(&out, format, "NodeExplanation", x)
		}
		expect.Must(t, err)
		golden(t, "explain/node."+cmp.Or(format, "txt"), out.String())
	}
}
