package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// metricsVersion is the API version of metrics-server.
const metricsVersion = "metrics.k8s.io/v1beta1"

// NodeMetrics is the usage of one node, as in metrics.k8s.io.
type NodeMetrics struct {
	Name  string
	Usage corev1.ResourceList
	// Timestamp is the time of the measurement. Zero means that the object has none.
	Timestamp time.Time
	Window    time.Duration
}

// PodMetrics is the usage of the containers of one pod.
type PodMetrics struct {
	Namespace, Name string
	Containers      []corev1.ResourceList
}

// ServeMetrics makes the API server serve nodes and pods of metrics.k8s.io. In a real cluster, metrics-server does this behind
// the API server. Here the API server stores the objects, and tests set their content with [Cluster.SetNodeMetrics] and
// [Cluster.SetPodMetrics].
func (c *Cluster) ServeMetrics(ctx context.Context) error {
	for _, d := range []struct{ plural, kind, scope string }{
		{"nodes", "NodeMetrics", "Cluster"}, {"pods", "PodMetrics", "Namespaced"},
	} {
		if err := c.post(ctx, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", metricsDefinition(d.plural, d.kind, d.scope)); err != nil {
			return fmt.Errorf("serve %s of %s: %w", d.plural, metricsVersion, err)
		}
	}
	for _, plural := range []string{"nodes", "pods"} {
		if err := c.waitServed(ctx, metricsVersion, plural); err != nil {
			return fmt.Errorf("serve %s of %s: %w", plural, metricsVersion, err)
		}
	}
	return nil
}

// HideMetrics reverts [Cluster.ServeMetrics].
func (c *Cluster) HideMetrics(ctx context.Context) error {
	for _, plural := range []string{"nodes", "pods"} {
		path := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + plural + ".metrics.k8s.io"
		if err := c.client.Discovery().RESTClient().Delete().AbsPath(path).Do(ctx).Error(); err != nil {
			return fmt.Errorf("hide %s of %s: %w", plural, metricsVersion, err)
		}
	}
	return nil
}

// SetNodeMetrics sets the usage of a node.
func (c *Cluster) SetNodeMetrics(ctx context.Context, m NodeMetrics) error {
	object := map[string]any{"usage": m.Usage, "window": metav1.Duration{Duration: m.Window}}
	if !m.Timestamp.IsZero() {
		object["timestamp"] = metav1.NewTime(m.Timestamp)
	}
	return c.setMetrics(ctx, "/apis/"+metricsVersion+"/nodes/"+m.Name, "NodeMetrics", metav1.ObjectMeta{Name: m.Name}, object)
}

// SetPodMetrics sets the usage of a pod.
func (c *Cluster) SetPodMetrics(ctx context.Context, m PodMetrics) error {
	containers := make([]map[string]any, len(m.Containers))
	for i, usage := range m.Containers {
		containers[i] = map[string]any{"name": fmt.Sprint("c", i), "usage": usage}
	}
	return c.setMetrics(ctx, "/apis/"+metricsVersion+"/namespaces/"+m.Namespace+"/pods/"+m.Name, "PodMetrics",
		metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name}, map[string]any{"containers": containers})
}

// setMetrics applies one object.
func (c *Cluster) setMetrics(ctx context.Context, path, kind string, meta metav1.ObjectMeta, object map[string]any) error {
	object["apiVersion"], object["kind"] = metricsVersion, kind
	object["metadata"] = map[string]string{"name": meta.Name, "namespace": meta.Namespace}
	body, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("set %s: %w", path, err)
	}
	err = c.client.Discovery().RESTClient().Patch("application/apply-patch+yaml").AbsPath(path).
		Param("fieldManager", "test").Param("force", "true").Body(body).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("set %s: %w", path, err)
	}
	return nil
}

// RemoveNodeMetrics removes the usage of a node.
func (c *Cluster) RemoveNodeMetrics(ctx context.Context, name string) error {
	path := "/apis/" + metricsVersion + "/nodes/" + name
	if err := c.client.Discovery().RESTClient().Delete().AbsPath(path).Do(ctx).Error(); err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}

func (c *Cluster) post(ctx context.Context, path string, object any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return c.client.Discovery().RESTClient().Post().AbsPath(path).
		SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
}

// metricsDefinition defines one kind of object with any content. The annotation declares a group below k8s.io as unapproved.
func metricsDefinition(plural, kind, scope string) map[string]any {
	return map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{
			"name":        plural + ".metrics.k8s.io",
			"annotations": map[string]string{"api-approved.kubernetes.io": "unapproved, for tests"},
		},
		"spec": map[string]any{
			"group": "metrics.k8s.io", "scope": scope,
			"names": map[string]string{"plural": plural, "singular": strings.ToLower(kind), "kind": kind, "listKind": kind + "List"},
			"versions": []map[string]any{{
				"name": "v1beta1", "served": true, "storage": true,
				"schema": map[string]any{
					"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
				},
			}},
		},
	}
}
