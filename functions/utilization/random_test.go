package utilization_test

import (
	"fmt"
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/functions/utilization"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	test "github.com/rehome-dev/rehome/test/kit/functionstest"
	"github.com/rehome-dev/rehome/test/kit/randtest"
)

const gpu corev1.ResourceName = "example.com/gpu"

// random makes clusters and arguments from few values, so that they often tie or reach a limit exactly.
type random struct{ *rand.Rand }

func (r random) one(of ...string) string { return of[r.IntN(len(of))] }

func (r random) rarely() bool { return r.IntN(8) == 0 }

func (r random) taints() []corev1.Taint {
	var list []corev1.Taint
	for r.IntN(3) == 0 {
		list = append(list, test.Taint(r.one("a", "b")+":"+r.one("NoSchedule", "NoExecute", "PreferNoSchedule")))
	}
	return list
}

// pod returns a pod that runs on the node, or has ended there, or is about to.
func (r random) pod(node string, i int) schemas.UsingPod {
	p := schemas.UsingPod{ScopedPod: test.Pod(fmt.Sprint("p", i), test.In(r.one("web", "db")), test.On(node),
		test.Quality(corev1.PodQOSClass(r.one("BestEffort", "Burstable"))))}
	p.Pod.UID = types.UID(fmt.Sprint(node, "/", i))
	p.Used = corev1.ResourceList{
		"cpu": *resource.NewMilliQuantity(r.Int64N(4)*250, resource.DecimalSI), "memory": *resource.NewQuantity(r.Int64N(5), resource.BinarySI),
		"pods": *resource.NewQuantity(1, resource.DecimalSI),
	}
	p.Pod.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{}}}}
	if r.IntN(2) == 0 {
		p.Pod.Spec.Containers[0].Resources.Requests["memory"] = p.Used["memory"]
	}
	if r.rarely() {
		p.Used[gpu] = *resource.NewQuantity(1, resource.DecimalSI)
		p.Pod.Spec.Containers[0].Resources.Requests[gpu] = p.Used[gpu]
	}
	for r.IntN(2) == 0 {
		test.ToleratingKeys(r.one("a", "b", ""))(&p.ScopedPod)
	}
	for _, change := range []test.PodOption{
		test.Deleted(), test.Phase(corev1.PodSucceeded), test.Protected("Any"), test.Priority(1),
	} {
		if r.rarely() {
			change(&p.ScopedPod)
		}
	}
	return p
}

// cluster returns nodes whose usage is the sum of their pods. If the load is a single value, the usage of pods is
// random.
func (r random) cluster(load policy.LoadSource) schemas.UsageScope {
	var s schemas.UsageScope
	for n := range 2 + r.IntN(8) {
		node := schemas.NodeUsage{
			Name: fmt.Sprint("n", n), Unschedulable: r.rarely(), Taints: r.taints(), Used: corev1.ResourceList{},
			Capacity: corev1.ResourceList{
				"cpu": *resource.NewQuantity(1+r.Int64N(4), resource.DecimalSI), "memory": *resource.NewQuantity(r.Int64N(30), resource.BinarySI),
				"pods": *resource.NewQuantity(10, resource.DecimalSI),
			},
		}
		if r.IntN(3) > 0 {
			node.Capacity[gpu] = *resource.NewQuantity(r.Int64N(5), resource.DecimalSI)
		}
		for i := range r.IntN(11) {
			p := r.pod(node.Name, i)
			if !schemas.Ended(&p.Pod) {
				for name, amount := range p.Used {
					sum := node.Used[name]
					sum.Add(amount)
					node.Used[name] = sum
				}
			}
			if load == policy.LoadPrometheus || r.rarely() {
				p.Used = nil
			}
			s.Pods = append(s.Pods, p)
		}
		if load == policy.LoadPrometheus {
			node.Used = corev1.ResourceList{schemas.LoadMetric: *resource.NewQuantity(r.Int64N(101), resource.DecimalSI)}
		}
		s.Nodes = append(s.Nodes, node)
	}
	return s
}

// thresholds returns thresholds of some of the resources. The first of each pair is at most the second.
func (r random) thresholds(of ...corev1.ResourceName) (low, high utilization.Thresholds) {
	low, high = utilization.Thresholds{}, utilization.Thresholds{}
	for i, name := range of {
		if i == 0 || r.IntN(3) == 0 {
			a, b := float64(r.IntN(21)*5), float64(r.IntN(21)*5)
			low[name], high[name] = min(a, b), max(a, b)
		}
	}
	return low, high
}

func (r random) namespaces() policy.Namespaces {
	if r.IntN(4) == 0 {
		return policy.Namespaces{Exclude: []string{"db"}}
	}
	return policy.Namespaces{}
}

func (r random) low() utilization.LowArgs {
	a := utilization.LowArgs{
		UseDeviationThresholds: r.IntN(3) == 0, NumberOfNodes: r.IntN(5) / 3, EvictableNamespaces: r.namespaces(),
	}
	if r.IntN(3) == 0 {
		a.EvictionLimits.Node = new(uint(r.IntN(4)))
	}
	names := []corev1.ResourceName{"cpu", "memory", "pods", gpu}
	if r.IntN(4) == 0 {
		names = []corev1.ResourceName{schemas.LoadMetric}
		a.MetricsUtilization = &utilization.MetricsUtilization{
			Source: policy.LoadPrometheus, Prometheus: &utilization.Prometheus{Query: "load"},
		}
	}
	a.Thresholds, a.TargetThresholds = r.thresholds(names...)
	return a
}

func (r random) high() utilization.HighArgs {
	a := utilization.HighArgs{NumberOfNodes: r.IntN(5) / 3, EvictableNamespaces: r.namespaces()}
	a.Thresholds, _ = r.thresholds("memory", "cpu", "pods", gpu)
	if r.IntN(3) == 0 {
		a.EvictionModes = []utilization.EvictionMode{utilization.OnlyThresholdingResources}
	}
	return a
}

// shuffled returns the same scope in another order.
func (r random) shuffled(s schemas.UsageScope) schemas.UsageScope {
	s.Nodes, s.Pods = randtest.Shuffled(r.Rand, s.Nodes), randtest.Shuffled(r.Rand, s.Pods)
	return s
}

// deepCopy serves to compare: Decide must not change its scope.
func deepCopy(s schemas.UsageScope) schemas.UsageScope {
	s.Nodes, s.Pods = slices.Clone(s.Nodes), slices.Clone(s.Pods)
	for i := range s.Nodes {
		n := &s.Nodes[i]
		n.Taints, n.Capacity, n.Used = slices.Clone(n.Taints), n.Capacity.DeepCopy(), n.Used.DeepCopy()
	}
	for i := range s.Pods {
		p := &s.Pods[i]
		p.ScopedPod, p.Used = test.Copy(p.ScopedPod), p.Used.DeepCopy()
	}
	return s
}
