package watcher

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/fixtures"
	"github.com/rehome-dev/rehome/test/kit/scopetest"
	"github.com/rehome-dev/rehome/watcher/scope"
)

// seeking are the arguments of a strategy that needs the predicted node of each pod of n1.
type seeking struct{ scopetest.Args }

func (*seeking) Seeks(*corev1.Pod, *corev1.Node) bool { return true }
func (*seeking) Sources([]schemas.NodeUsage) []string { return []string{"n1"} }

// prefers makes a pod prefer nodes with a label.
func prefers(key, value string, weight int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{
				{Weight: weight, Preference: fixtures.NodeTerm(key, corev1.NodeSelectorOpIn, value)},
			},
		}}
	}
}

// Scopes must name the node where the scheduler would place a replacement.
func TestPredictedNode(t *testing.T) {
	sized := func(name, cpu string, change ...func(*corev1.Node)) *corev1.Node {
		return named(name, append(change, cpus(cpu))...)
	}
	avoided := func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "old", Effect: corev1.TaintEffectPreferNoSchedule}}
	}
	host := func(n *corev1.Node) { n.Labels["kubernetes.io/hostname"] = n.Name }
	for _, c := range []struct {
		name      string
		scheduler string
		nodes     []*corev1.Node
		pods      []*corev1.Pod
		want      string
	}{
		{"the_emptiest_node", "", []*corev1.Node{sized("n1", "2"), sized("n2", "4"), sized("n3", "8")},
			[]*corev1.Pod{guest("a", "n1", asks("1"))}, "n3"},
		{"the_fullest_node", "MostAllocated", []*corev1.Node{sized("n1", "8"), sized("n2", "2"), sized("n3", "4")},
			[]*corev1.Pod{guest("a", "n1", asks("1"))}, "n2"},
		{"its_own_node", "", []*corev1.Node{sized("n1", "8"), sized("n2", "8", avoided), sized("n3", "2")},
			[]*corev1.Pod{guest("a", "n1", asks("1"))}, "n1"},
		{"its_own_node_among_equals", "", []*corev1.Node{sized("n0", "8"), sized("n1", "8")}, []*corev1.Pod{guest("a", "n1", asks("1"))}, "n1"},
		{"not_the_node_that_it_prefers", "", []*corev1.Node{sized("n1", "8"), sized("n2", "8", host, avoided), sized("n3", "64")},
			[]*corev1.Pod{guest("a", "n1", asks("1"), prefers(corev1.LabelHostname, "n2", 1))}, "n3"},
		{"nowhere", "", []*corev1.Node{sized("n1", "8", func(n *corev1.Node) { n.Spec.Unschedulable = true }), sized("n2", "2")},
			[]*corev1.Pod{guest("a", "n1", asks("3"))}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := policy.Policy{Scheduler: policy.Scheduler{Profile: c.scheduler}, Profiles: []policy.Profile{{Name: "p"}}}
			p.Profiles[0].Strategies = []policy.Enabled{{
				Strategy: policy.Strategy{
					Name: "node", Scope: schemas.NodeKind, NewArgs: func() policy.Args { return &seeking{} },
					Traits: policy.Traits{Facts: []policy.Fact{policy.FactElsewhere}},
				},
				Args: json.RawMessage(`{}`),
			}}
			key := scope.Key{Profile: "p", Strategy: "node", Kind: schemas.NodeKind, Name: "n1"}
			r, err := view(t, p, c.nodes, c.pods).scopes.Build(key, nil, time.Now())
			expect.Must(t, err)
			expect.Equal(t, "elsewhere", r.Scope.(schemas.NodeScope).Pods[0].Elsewhere.Node, c.want)
		})
	}
	_, err := scope.Compile(policy.Policy{Scheduler: policy.Scheduler{Profile: "/no/such/file"}})
	if want := "scheduler.profile: open /no/such/file: no such file or directory"; err == nil || err.Error() != want {
		t.Errorf("a profile that cannot be read: got %v, want %s", err, want)
	}
}
