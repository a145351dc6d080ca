package scope

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/test/expect"
	"github.com/rehome-dev/rehome/test/scopetest"
)

// grouped returns a cluster with 20 pods on each node, in workloads of 20 pods that have a spread constraint over zones
// and an anti-affinity on hosts.
func grouped(b *testing.B, nodes int) (*Builder, []*corev1.Node, []*corev1.Pod) {
	b.Helper()
	compiled, err := Compile(scopetest.GroupPolicy())
	expect.Must(b, err)
	g := NewBuilder(emptyCache(b), compiled)
	var all []*corev1.Node
	var pods []*corev1.Pod
	for i := range nodes {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%04d", i), Labels: map[string]string{}}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("32"), "memory": resource.MustParse("256Gi")}
		n.Labels["zone"], n.Labels["kubernetes.io/hostname"] = fmt.Sprint("zone-", i%3), n.Name
		all = append(all, n)
	}
	for i := range 20 * nodes {
		pods = append(pods, groupedPod(i, all[(i*7)%nodes].Name))
	}
	for _, n := range all {
		g.NodeChanged(nil, n)
	}
	for _, p := range pods {
		g.PodChanged(nil, p, time.Unix(1_790_000_000, 0))
	}
	return g, all, pods
}

func groupedPod(i int, node string) *corev1.Pod {
	app := fmt.Sprint("app-", i/20)
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprint("team-", i/20%50), Name: fmt.Sprint(app, "-", i), UID: types.UID(fmt.Sprint("uid-", i)),
			Labels:          map[string]string{"app": app, "tier": "web"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: app, UID: types.UID(app)}},
		},
		Spec: corev1.PodSpec{
			NodeName: node,
			Containers: []corev1.Container{{Name: "main", Image: "app:v1", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("128Mi")},
			}}},
			TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: selector,
			}},
			Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
					{TopologyKey: "kubernetes.io/hostname", LabelSelector: selector},
				},
			}},
		},
	}
}

// BenchmarkGroupsPodComesAndGoes adds and removes a pod in all four indexes. The cost must not depend on the size of
// the cluster.
func BenchmarkGroupsPodComesAndGoes(b *testing.B) {
	for _, nodes := range []int{200, 2000} {
		b.Run(fmt.Sprint("nodes=", nodes), func(b *testing.B) {
			g, _, pods := grouped(b, nodes)
			now := time.Unix(1_790_000_000, 0)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				p := pods[i%len(pods)]
				i++
				g.PodChanged(p, nil, now)
				g.PodChanged(nil, p, now)
			}
		})
	}
}

// BenchmarkGroupsNodeIsTainted changes a taint of one node, which affects every spread constraint.
func BenchmarkGroupsNodeIsTainted(b *testing.B) {
	for _, nodes := range []int{200, 2000} {
		b.Run(fmt.Sprint("nodes=", nodes), func(b *testing.B) {
			g, all, _ := grouped(b, nodes)
			plain := all[0]
			tainted := plain.DeepCopy()
			tainted.Spec.Taints = []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}}
			b.ReportAllocs()
			for b.Loop() {
				g.NodeChanged(plain, tainted)
				g.NodeChanged(tainted, plain)
			}
		})
	}
}
