package watcher

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/policy"
)

// givenLoads are loads as somebody says that they are, the same for every source. It is not safe for concurrent use.
type givenLoads struct {
	nodes   map[string]corev1.ResourceList
	pods    map[types.NamespacedName]corev1.ResourceList
	changed bool // since it was last set to false
}

func newGivenLoads() *givenLoads {
	return &givenLoads{nodes: map[string]corev1.ResourceList{}, pods: map[types.NamespacedName]corev1.ResourceList{}}
}

func (g *givenLoads) Asked(policy.Load) bool { return true }

func (g *givenLoads) Node(_ policy.Load, name string) corev1.ResourceList {
	return g.nodes[name].DeepCopy()
}

func (g *givenLoads) Pod(_ policy.Load, namespace, name string) corev1.ResourceList {
	return g.pods[types.NamespacedName{Namespace: namespace, Name: name}].DeepCopy()
}

// SetNodeLoad says what is used of a node from now on, for strategies that go by load: cpu and memory for those that
// measure by KubernetesMetrics, [schemas.LoadMetric] in percent for those that measure by Prometheus, whatever their query.
// It counts as it is, however old it becomes. nil: it is not known. The node need not be there yet.
func (o *Offline) SetNodeLoad(name string, used corev1.ResourceList, now time.Time) {
	o.now, o.loads.changed = now, true
	o.loads.nodes[name] = used.DeepCopy()
}

// SetPodLoad says the same of a pod: its cpu and memory. nil: it is not known.
func (o *Offline) SetPodLoad(namespace, name string, used corev1.ResourceList, now time.Time) {
	o.now, o.loads.changed = now, true
	o.loads.pods[types.NamespacedName{Namespace: namespace, Name: name}] = used.DeepCopy()
}
