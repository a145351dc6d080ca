package simulate

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
)

// fill passes the objects to the watcher, pods last, so that all objects that a pod refers to exist.
func (r *round) fill(objects []metav1.Object) error {
	ordered := slices.Clone(objects)
	slices.SortStableFunc(ordered, func(a, b metav1.Object) int { return cmp.Compare(rank(a), rank(b)) })
	for _, o := range ordered {
		switch v := o.(type) {
		case *corev1.Pod:
			r.pods[v.UID] = v
		case *policyv1.PodDisruptionBudget:
			r.budgets[v.Namespace] = append(r.budgets[v.Namespace], *v.DeepCopy())
		}
		if err := r.offline.Set(o); err != nil {
			return fmt.Errorf("%s/%s: %w", o.GetNamespace(), o.GetName(), err)
		}
	}
	return nil
}

func rank(o metav1.Object) int {
	switch o.(type) {
	case *corev1.Node:
		return 0
	case *corev1.Pod:
		return 2
	}
	return 1
}

// newestKubelet returns the minor version of the newest kubelet, or 0 if no node names one.
func newestKubelet(objects []metav1.Object) (newest int) {
	for _, o := range objects {
		n, ok := o.(*corev1.Node)
		if !ok {
			continue
		}
		if v, err := version.ParseGeneric(n.Status.NodeInfo.KubeletVersion); err == nil && v.Major() == 1 {
			newest = max(newest, int(v.Minor()))
		}
	}
	return newest
}

func (r *round) leave(gone []types.UID) error {
	for _, uid := range gone {
		if err := r.offline.Remove(r.pods[uid]); err != nil {
			return fmt.Errorf("pod %s/%s: %w", r.pods[uid].Namespace, r.pods[uid].Name, err)
		}
		delete(r.pods, uid)
	}
	return nil
}

// Loads are the loads of nodes and pods for load strategies: cpu and memory, and the metric of Prometheus. Missing
// values are unknown.
type Loads struct {
	Nodes map[string]corev1.ResourceList
	Pods  map[types.NamespacedName]corev1.ResourceList
}

func (r *round) load() {
	for name, used := range r.Loads.Nodes {
		r.offline.SetNodeLoad(name, used)
	}
	for name, used := range r.Loads.Pods {
		r.offline.SetPodLoad(name.Namespace, name.Name, used)
	}
}
