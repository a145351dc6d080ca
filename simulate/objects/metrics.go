package objects

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// NodeMetrics has the used fields of a NodeMetrics object of metrics.k8s.io/v1beta1.
type NodeMetrics struct {
	metav1.ObjectMeta `json:"metadata"`

	Usage corev1.ResourceList `json:"usage"`
}

// PodMetrics has the used fields of a PodMetrics object.
type PodMetrics struct {
	metav1.ObjectMeta `json:"metadata"`

	Containers []struct {
		Usage corev1.ResourceList `json:"usage"`
	} `json:"containers"`
}

// Used returns the sum over all containers.
func (p *PodMetrics) Used() corev1.ResourceList {
	used := corev1.ResourceList{}
	for _, c := range p.Containers {
		for name, quantity := range c.Usage {
			sum := used[name]
			sum.Add(quantity)
			used[name] = sum
		}
	}
	return used
}

// MetricsVersion returns the version of NodeMetrics and PodMetrics.
func MetricsVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"}
}

func newObject(kind schema.GroupVersionKind) (any, error) {
	switch kind {
	case MetricsVersion().WithKind("NodeMetrics"):
		return &NodeMetrics{}, nil
	case MetricsVersion().WithKind("PodMetrics"):
		return &PodMetrics{}, nil
	}
	return scheme.Scheme.New(kind)
}
