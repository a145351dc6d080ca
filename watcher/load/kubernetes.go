package load

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// Kubernetes is the metrics API of a cluster, metrics.k8s.io/v1beta1.
type Kubernetes struct {
	// Client asks the API server.
	Client rest.Interface
	// Now is the time of the sampler.
	Now func() time.Time
}

// nodeMetrics is the part of NodeMetricsList that counts.
type nodeMetrics struct {
	Items []struct {
		metav1.ObjectMeta `json:"metadata"`
		Timestamp         metav1.Time         `json:"timestamp"`
		Window            metav1.Duration     `json:"window"`
		Usage             corev1.ResourceList `json:"usage"`
	} `json:"items"`
}

// podMetrics is the part of PodMetricsList that counts.
type podMetrics struct {
	Items []struct {
		metav1.ObjectMeta `json:"metadata"`
		Containers        []containerMetrics `json:"containers"`
	} `json:"items"`
}

type containerMetrics struct {
	Usage corev1.ResourceList `json:"usage"`
}

// Nodes implements [Source] with cpu and memory. A sample is as old as the time that it carries, if that is not in the
// future, and counts for the window longer over which it was measured: it cannot be renewed sooner.
func (k Kubernetes) Nodes(ctx context.Context) (map[string]Sample, error) {
	var list nodeMetrics
	if err := k.list(ctx, "nodes", &list); err != nil {
		return nil, err
	}
	now := k.Now()
	samples := make(map[string]Sample, len(list.Items))
	for _, item := range list.Items {
		used := basics(item.Usage)
		if used == nil {
			continue
		}
		measured := item.Timestamp.Time
		if measured.IsZero() || measured.After(now) {
			measured = now
		}
		samples[item.Name] = Sample{Used: used, Good: measured.Add(maxAge + max(0, item.Window.Duration))}
	}
	return samples, nil
}

// Pods implements [Source] with the sums over the containers. A pod of which the cpu or the memory of one container is
// missing is left out.
func (k Kubernetes) Pods(ctx context.Context) (map[types.NamespacedName]corev1.ResourceList, error) {
	var list podMetrics
	if err := k.list(ctx, "pods", &list); err != nil {
		return nil, err
	}
	pods := make(map[types.NamespacedName]corev1.ResourceList, len(list.Items))
	for _, item := range list.Items {
		if used := sum(item.Containers); used != nil {
			pods[types.NamespacedName{Namespace: item.Namespace, Name: item.Name}] = used
		}
	}
	return pods, nil
}

// Smooth implements [Source].
func (Kubernetes) Smooth() bool { return true }

// Close implements [Source].
func (Kubernetes) Close() {}

// list asks for all objects of one resource. They come as JSON, which every server of this API speaks.
func (k Kubernetes) list(ctx context.Context, resource string, to any) error {
	result := k.Client.Get().AbsPath("/apis/metrics.k8s.io/v1beta1/"+resource).SetHeader("Accept", "application/json").Do(ctx)
	if err := result.Error(); err != nil { // Raw would not say what the server said
		return fmt.Errorf("list %s of metrics.k8s.io: %w", resource, err)
	}
	data, err := result.Raw()
	if err != nil {
		return fmt.Errorf("list %s of metrics.k8s.io: %w", resource, err)
	}
	if err := json.Unmarshal(data, to); err != nil {
		return fmt.Errorf("list %s of metrics.k8s.io: %w", resource, err)
	}
	return nil
}

// basics is the cpu and the memory of a usage; nil if one of them is missing.
func basics(usage corev1.ResourceList) corev1.ResourceList {
	used := corev1.ResourceList{}
	for _, name := range [...]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		quantity, has := usage[name]
		if !has {
			return nil
		}
		used[name] = quantity
	}
	return used
}

// sum is what containers use together; nil if it is not known of one of them, or there is none.
func sum(containers []containerMetrics) corev1.ResourceList {
	var total corev1.ResourceList
	for _, c := range containers {
		used := basics(c.Usage)
		if used == nil {
			return nil
		}
		for name, quantity := range total {
			added := used[name]
			added.Add(quantity)
			used[name] = added
		}
		total = used
	}
	return total
}
