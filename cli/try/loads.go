package try

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/simulate"
	"github.com/rehome-dev/rehome/simulate/objects"
)

// apartLoads takes the loads out of a list of objects.
func apartLoads(found []metav1.Object) ([]metav1.Object, simulate.Loads) {
	l := simulate.Loads{Nodes: map[string]corev1.ResourceList{}, Pods: map[types.NamespacedName]corev1.ResourceList{}}
	rest := found[:0:0]
	for _, o := range found {
		switch m := o.(type) {
		case *objects.NodeMetrics:
			l.Nodes[m.Name] = m.Usage
		case *objects.PodMetrics:
			l.Pods[types.NamespacedName{Namespace: m.Namespace, Name: m.Name}] = m.Used()
		default:
			rest = append(rest, o)
		}
	}
	return rest, l
}
