package utilization_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/rehome-dev/rehome/functions/utilization"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	test "github.com/rehome-dev/rehome/test/kit/functionstest"
)

// uneven returns a scope for a cluster with so many nodes. The first loaded nodes run that many pods of 250m each, and the
// others run a few. The scope contains the pods of the nodes that the strategy selects.
func uneven(s strategy, nodes, loaded, pods int) schemas.UsageScope {
	var scope schemas.UsageScope
	amount := func(cpu, memory, pods int64) corev1.ResourceList {
		return corev1.ResourceList{
			"cpu": *resource.NewMilliQuantity(cpu, resource.DecimalSI), "memory": *resource.NewQuantity(memory<<20, resource.BinarySI),
			"pods": *resource.NewQuantity(pods, resource.DecimalSI),
		}
	}
	on := map[string]int{}
	for i := range nodes {
		n := schemas.NodeUsage{
			Name: fmt.Sprintf("node-%05d", i), Capacity: amount(32_000, 128<<10, 110),
			Taints: []corev1.Taint{{Key: "pool", Value: fmt.Sprint(i % 3), Effect: corev1.TaintEffectNoSchedule}},
		}
		on[n.Name] = 10 + i%10
		if i < loaded {
			on[n.Name] = pods
		}
		count := int64(on[n.Name])
		n.Used = amount(250*count, 512*count, count)
		scope.Nodes = append(scope.Nodes, n)
	}
	usual := []test.PodOption{
		test.Priority(0), test.Tolerating(
			corev1.Toleration{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
			corev1.Toleration{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
			corev1.Toleration{Key: "pool", Value: "2"}),
		func(p *schemas.ScopedPod) { p.Pod.Annotations = map[string]string{"checksum/config": "5d9c7b8f6d"} },
	}
	for _, name := range s.Sources(scope.Nodes) {
		for i := range on[name] {
			p := schemas.UsingPod{
				ScopedPod: test.Pod(fmt.Sprintf("api-%s-%d", name, (i*37)%110), append(usual, test.On(name))...), Used: amount(250, 512, 1),
			}
			if i%10 == 0 {
				test.Protected(policy.DaemonSetPods)(&p.ScopedPod)
			}
			scope.Pods = append(scope.Pods, p)
		}
	}
	return scope
}

func BenchmarkDecide(b *testing.B) {
	low := utilization.LowArgs{
		Thresholds:       utilization.Thresholds{"cpu": 20, "memory": 20, "pods": 20},
		TargetThresholds: utilization.Thresholds{"cpu": 50, "memory": 50, "pods": 50},
	}
	mean := low
	mean.UseDeviationThresholds = true
	mean.Thresholds, mean.TargetThresholds = utilization.Thresholds{"cpu": 10}, utilization.Thresholds{"cpu": 10}
	high := utilization.HighArgs{Thresholds: utilization.Thresholds{"cpu": 10, "memory": 10, "pods": 20}}
	for _, c := range []struct {
		name                string
		args                strategy
		nodes, loaded, pods int
		want                int
	}{
		{"low, 3 nodes, 1 of 110 pods", low, 3, 1, 110, 43},
		{"low, 5000 nodes, 500 over-used", low, 5000, 500, 80, 12500},
		{"low, 5000 nodes, 100 over-used", low, 5000, 100, 80, 2500},
		{"low, 5000 nodes, none over-used", low, 5000, 0, 0, 0},
		{"low from the mean, 5000 nodes, 500 over-used", mean, 5000, 500, 80, 0},
		{"high, 5000 nodes, 1350 under-used", high, 5000, 500, 80, 12600},
	} {
		scope := uneven(c.args, c.nodes, c.loaded, c.pods)
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			b.ReportMetric(float64(len(scope.Pods)), "pods")
			for b.Loop() {
				if got := c.args.Decide(scope); len(got) != c.want {
					b.Fatalf("got %d intents, want %d", len(got), c.want)
				}
			}
		})
		b.Run("sources of "+c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.args.Sources(scope.Nodes)
			}
		})
	}
}
