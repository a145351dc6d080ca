package simulate_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/fixtures"
	"github.com/rehome-dev/rehome/watcher"
)

const (
	plannedNodes = 1000
	plannedPods  = 5000
)

// planned returns a cluster with moves for each strategy. The pods of one workload, with two spread constraints, are on
// the first two thirds of the nodes. The other nodes each have a pod with other rules.
func planned() []metav1.Object {
	const used, odd = plannedNodes * 2 / 3, 300
	var all []metav1.Object
	for i := range plannedNodes {
		all = append(all, fixtures.Node(fmt.Sprintf("node-%04d", i), func(n *corev1.Node) {
			n.Labels[corev1.LabelTopologyZone] = fmt.Sprint("zone-", 3*i/plannedNodes)
			n.Labels["disk"] = []string{"ssd", "hdd"}[i%2]
			n.Status.Allocatable = fixtures.Resources("cpu", "32", "memory", "256Gi", "pods", "32")
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			if i%10 == 0 {
				n.Spec.Taints = []corev1.Taint{{Key: "maintenance", Effect: corev1.TaintEffectNoSchedule}}
			}
		}))
	}
	for i := range plannedPods - odd {
		all = append(all, fixtures.Pod(fmt.Sprintf("api-%04d", i), fmt.Sprintf("node-%04d", i%used), fixtures.Requests("1"), func(p *corev1.Pod) {
			owned(p, "api")
			for _, key := range []string{corev1.LabelTopologyZone, corev1.LabelHostname} {
				p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, corev1.TopologySpreadConstraint{
					MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: corev1.DoNotSchedule,
					LabelSelector: &metav1.LabelSelector{MatchLabels: p.Labels},
				})
			}
		}))
	}
	for i := range odd {
		at := used + i
		if i%6 == 3 { // beside the previous pod, which it must not share a node with
			at -= 3
		}
		all = append(all, fixtures.Pod(fmt.Sprintf("odd-%04d", i), fmt.Sprintf("node-%04d", at), fixtures.Requests("1"), func(p *corev1.Pod) {
			p.Namespace, p.Labels = "team-1", map[string]string{"app": fmt.Sprint("odd-", i%3)}
			owned(p, fmt.Sprint("odd-", i%3))
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", RestartCount: 200}}
			p.Spec.Affinity = &corev1.Affinity{}
			switch i % 3 {
			case 0:
				p.Spec.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
					{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: p.Labels}},
				}}
			case 1:
				p.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
					NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
						{Key: "disk", Operator: corev1.NodeSelectorOpIn, Values: []string{"ssd"}},
					}}},
				}}
			case 2:
				p.Status.Phase = corev1.PodFailed
			}
		}))
	}
	return all
}

// owned makes a pod an old pod of a ReplicaSet.
func owned(p *corev1.Pod, name string) {
	p.CreationTimestamp = metav1.NewTime(at().AddDate(0, 0, -30))
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name, UID: types.UID(name), Controller: new(true)}}
}

// BenchmarkDecision measures one decision of each strategy in a cluster of 1,000 nodes and 5,000 pods: the scope and
// the answer. It is the time for all scopes of the strategy, divided by their number.
func BenchmarkDecision(b *testing.B) {
	p := everything(b)
	offline, err := watcher.NewOffline(p)
	expect.Must(b, err)
	for _, o := range planned() {
		if err := offline.Set(o); err != nil {
			b.Fatal(err)
		}
	}
	for _, f := range functions.All() {
		b.Run(f.Strategy.Name, func(b *testing.B) {
			scopes, moves, rounds := 0, 0, 0
			for b.Loop() {
				payloads, err := offline.Payloads("default", f.Strategy.Name, at())
				expect.Must(b, err)
				for _, payload := range payloads {
					answer, err := f.EvaluateInPlace(payload, "scope")
					expect.Must(b, err)
					scopes++
					moves += len(answer.Intents)
				}
				rounds++
			}
			if scopes == 0 || moves == 0 {
				b.Fatalf("%d scopes with %d moves: nothing was decided", scopes, moves)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(scopes), "ns/op")
			b.ReportMetric(float64(scopes)/float64(rounds), "scopes")
			b.ReportMetric(float64(moves)/float64(rounds), "moves")
		})
	}
}
