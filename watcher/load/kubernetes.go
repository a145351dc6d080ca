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

// Kubernetes is the source for the metrics API, metrics.k8s.io/v1beta1.
type Kubernetes struct {
	Client rest.Interface
	// Now is the clock of the sampler.
	Now func() time.Time
}

// mostWindow is far longer than the window of any metrics server.
const mostWindow = 10 * time.Minute

// metrics is an item of a NodeMetricsList, which has Usage, or of a PodMetricsList, which has Containers.
type metrics struct {
	metav1.ObjectMeta `json:"metadata"`
	Timestamp         metav1.Time         `json:"timestamp"`
	Window            metav1.Duration     `json:"window"`
	Usage             corev1.ResourceList `json:"usage"`
	Containers        []struct {
		Usage corev1.ResourceList `json:"usage"`
	} `json:"containers"`
}

// Nodes implements [Source] with cpu and memory. The age of a sample counts from its timestamp, unless that is in the future. It
// stays valid for its window longer, at most [mostWindow], because the server renews it only once per window.
func (k Kubernetes) Nodes(ctx context.Context) (map[string]Sample, error) {
	items, err := k.list(ctx, "nodes")
	if err != nil {
		return nil, err
	}
	now := k.Now()
	samples := make(map[string]Sample, len(items))
	for _, item := range items {
		measured := item.Timestamp.Time
		if measured.IsZero() || measured.After(now) {
			measured = now
		}
		if used := sum(item.Usage); used != nil {
			samples[item.Name] = Sample{Used: used, Good: measured.Add(maxAge + min(max(0, item.Window.Duration), mostWindow))}
		}
	}
	return samples, nil
}

// Pods implements [Source] with the sum of the containers. It skips pods with a container whose values are missing or negative.
func (k Kubernetes) Pods(ctx context.Context) (map[types.NamespacedName]corev1.ResourceList, error) {
	items, err := k.list(ctx, "pods")
	if err != nil {
		return nil, err
	}
	pods := make(map[types.NamespacedName]corev1.ResourceList, len(items))
	for _, item := range items {
		var containers []corev1.ResourceList
		for _, c := range item.Containers {
			containers = append(containers, c.Usage)
		}
		if used := sum(containers...); used != nil {
			pods[types.NamespacedName{Namespace: item.Namespace, Name: item.Name}] = used
		}
	}
	return pods, nil
}

// Smooth implements [Source].
func (Kubernetes) Smooth() bool { return true }

// Close implements [Source].
func (Kubernetes) Close() {}

// list returns all objects of a resource. It requests JSON, which every server of this API supports.
func (k Kubernetes) list(ctx context.Context, resource string) ([]metrics, error) {
	result := k.Client.Get().AbsPath("/apis/metrics.k8s.io/v1beta1/"+resource).SetHeader("Accept", "application/json").Do(ctx)
	var list struct {
		Items []metrics `json:"items"`
	}
	err := result.Error() // the error of Raw lacks the message of the server
	if err == nil {
		data, _ := result.Raw()
		err = json.Unmarshal(data, &list)
	}
	if err != nil {
		return nil, fmt.Errorf("list %s of metrics.k8s.io: %w", resource, err)
	}
	return list.Items, nil
}

// sum adds cpu and memory. It returns nil if a value is missing or negative, or there are no usages.
func sum(usages ...corev1.ResourceList) corev1.ResourceList {
	if len(usages) == 0 {
		return nil
	}
	total := corev1.ResourceList{}
	for _, usage := range usages {
		for _, name := range [...]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			quantity, has := usage[name]
			if !has || quantity.Sign() < 0 {
				return nil
			}
			if others, is := total[name]; is {
				quantity.Add(others)
			}
			total[name] = quantity
		}
	}
	return total
}
