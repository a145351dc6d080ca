package simulate

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Loads are what nodes and pods use, for strategies that go by load: cpu and memory, and the metric of Prometheus. What is
// not in it is not known.
type Loads struct {
	Nodes map[string]corev1.ResourceList
	Pods  map[types.NamespacedName]corev1.ResourceList
}

func (r *round) load() {
	now := r.now()
	for name, used := range r.Loads.Nodes {
		r.offline.SetNodeLoad(name, used, now)
	}
	for name, used := range r.Loads.Pods {
		r.offline.SetPodLoad(name.Namespace, name.Name, used, now)
	}
}
