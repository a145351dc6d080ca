package rbac

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/test/cluster"
)

// world is a namespace with two separate nodes. Its pods run on the first one.
type world struct {
	*stage
	name  string
	nodes []string
}

// part puts something into a world that has its first node only.
type part func(context.Context, *world) error

// newWorld creates a world with its parts.
func (s *stage) newWorld(ctx context.Context, name string, parts ...part) (*world, error) {
	w := &world{stage: s, name: name}
	if err := s.AddNamespace(ctx, name); err != nil {
		return nil, err
	}
	if err := w.addNode(ctx); err != nil {
		return nil, err
	}
	for _, put := range parts {
		if err := put(ctx, w); err != nil {
			return nil, fmt.Errorf("world %s: %w", name, err)
		}
	}
	return w, w.addNode(ctx)
}

func (w *world) addNode(ctx context.Context) error {
	made, err := w.AddNodes(ctx, 1, func(n *corev1.Node) { n.Labels["scene"] = w.name })
	w.nodes = append(w.nodes, made...)
	return err
}

// deploy makes a Deployment and waits until its pods run.
func (w *world) deploy(ctx context.Context, name string, replicas int, change ...func(*appsv1.Deployment)) error {
	here := func(d *appsv1.Deployment) { d.Spec.Template.Spec.NodeSelector = map[string]string{"scene": w.name} }
	if _, err := w.AddDeployment(ctx, w.name, name, replicas, append(change, here)...); err != nil {
		return err
	}
	return w.WaitReady(ctx, w.name, name)
}

// plain is a Deployment whose pods are evicted.
func plain(ctx context.Context, w *world) error { return w.deploy(ctx, "plain", 3) }

// budgeted is a Deployment whose pods are read before their eviction, because a budget selects them.
func budgeted(ctx context.Context, w *world) error {
	if err := plain(ctx, w); err != nil {
		return err
	}
	_, err := w.AddBudget(ctx, w.name, "plain", "plain", policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(intstr.FromInt32(1))})
	return err
}

// restarted creates a Deployment whose pods move with a rollout, as its namespace requests. It has a volume that pods on two
// nodes can use.
func restarted(ctx context.Context, w *world) error {
	mark := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"restart"}}}`, policy.RestartMark)
	_, err := w.client.CoreV1().Namespaces().Patch(ctx, w.name, types.MergePatchType, mark, metav1.PatchOptions{})
	if err != nil {
		return err
	}
	shared, err := w.AddClaim(ctx, w.name, "shared", corev1.ReadWriteMany)
	if err != nil {
		return err
	}
	return w.deploy(ctx, "restarted", 1, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Volumes = []corev1.Volume{shared}
	})
}

// surged is a Deployment that gets one replica more for a while when its pod has to go. The pod has a higher deletion cost than its
// replacement: if the surge is undone, the replacement goes, even if both became ready at nearly the same time.
func surged(ctx context.Context, w *world) error {
	err := w.deploy(ctx, "surged", 1, func(d *appsv1.Deployment) {
		d.Annotations = map[string]string{policy.RestartMark: "surge"}
	})
	if err != nil {
		return err
	}
	pods, err := w.client.CoreV1().Pods(w.name).List(ctx, metav1.ListOptions{LabelSelector: "app=surged"})
	if err != nil {
		return err
	}
	cost := fmt.Sprintf(`{"metadata":{"annotations":{%q:"100"}}}`, corev1.PodDeletionCost)
	for _, p := range pods.Items {
		if err := w.patchPod(ctx, p.Name, cost); err != nil {
			return err
		}
	}
	return nil
}

// taint makes all pods of the world have to leave its first node.
func (w *world) taint(ctx context.Context) error {
	return w.PatchNode(ctx, w.nodes[0], `{"spec":{"taints":[{"key":"dedicated","effect":"NoSchedule"}]}}`)
}

func (w *world) patchPod(ctx context.Context, name, patch string, subresources ...string) error {
	_, err := w.client.CoreV1().Pods(w.name).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	return err
}

// emptied waits until no pod is left on the first node.
func (w *world) emptied(ctx context.Context) error {
	return until(ctx, "the node is empty", func() (bool, string) {
		pods, err := w.client.CoreV1().Pods(w.name).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + w.nodes[0]})
		if err != nil {
			return false, err.Error()
		}
		var names []string
		for _, p := range pods.Items {
			names = append(names, p.Name)
		}
		return len(names) == 0, fmt.Sprint(names)
	})
}

// uses sets the usage of the two nodes. The first one uses nearly all of its cpu.
func (w *world) uses(ctx context.Context) error {
	for i, cpu := range []string{"31", "1"} {
		err := w.SetNodeMetrics(ctx, cluster.NodeMetrics{
			Name: w.nodes[i], Timestamp: time.Now(), Window: 10 * time.Minute,
			Usage: corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("1Gi")},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// policy writes a policy for the nodes of the world, with more lines, into a file of that name.
func (w *world) policy(name string, more ...string) (file string, err error) {
	file = filepath.Join(w.dir, name+".policy.yaml")
	return file, os.WriteFile(file, []byte(w.policyText(more...)), 0o600)
}

// policyText returns the text of a policy for the nodes of the world, with more lines.
func (w *world) policyText(more ...string) string {
	lines := append([]string{
		"apiVersion: rehome.dev/v1alpha1", "kind: DeschedulerPolicy", "nodeSelector: scene=" + w.name,
		"circuitBreakers: {cluster: {nodes: 0%}}",
	}, more...)
	return strings.Join(lines, "\n") + "\n"
}

// restarts enables replacements before evictions.
const restarts = "restart: {workloads: Annotated}"

// byTaint enables the strategy that empties tainted nodes, and the one that removes failed pods.
const byTaint = `profiles:
- name: default
  pluginConfig: [{name: RemovePodsViolatingNodeTaints}, {name: RemoveFailedPods, args: {minPodLifetimeSeconds: 0}}]
  plugins: {deschedule: {enabled: [RemovePodsViolatingNodeTaints, RemoveFailedPods]}}`

// byLoad enables the strategies that use the metrics API, or a Prometheus server that does not exist: only reading its token
// matters. secrets is the namespace of the token.
func byLoad(secrets string) string {
	return fmt.Sprintf(`- name: load
  pluginConfig: [{name: LowNodeUtilization, args: {thresholds: {cpu: 20}, targetThresholds: {cpu: 55},
    metricsUtilization: {source: KubernetesMetrics}}}]
  plugins: {balance: {enabled: [LowNodeUtilization]}}
- name: prometheus
  pluginConfig: [{name: LowNodeUtilization, args: {thresholds: {MetricResource: 20}, targetThresholds: {MetricResource: 55},
    metricsUtilization: {source: Prometheus, prometheus: {query: instance:load}}}}]
  plugins: {balance: {enabled: [LowNodeUtilization]}}
metricsProviders:
- source: KubernetesMetrics
- source: Prometheus
  prometheus:
    url: http://127.0.0.1:9
    authToken: {secretReference: {namespace: %s, name: prometheus-token}}`, secrets)
}

// byMetrics enables the strategy that uses the metrics API, for a simulation.
const byMetrics = `profiles:
- name: load
  pluginConfig: [{name: LowNodeUtilization, args: {thresholds: {cpu: 20}, targetThresholds: {cpu: 55},
    metricsUtilization: {source: KubernetesMetrics}}}]
  plugins: {balance: {enabled: [LowNodeUtilization]}}
metricsProviders: [{source: KubernetesMetrics}]`

// simulated posts a simulation of [byMetrics] to the loopback address of an API.
func (w *world) simulated(ctx context.Context, address string) (status int, text string) {
	body, err := json.Marshal(map[string]string{"policy": w.policyText(byMetrics)})
	if err != nil {
		return 0, err.Error()
	}
	return post(ctx, "http://"+address+"/v1/simulate", "", "application/json", body)
}

// asked is a request for a pod of a Deployment of the world to be moved, as a CloudEvent in JSON.
func (w *world) asked(ctx context.Context, deployment, id string) ([]byte, error) {
	pods, err := w.client.CoreV1().Pods(w.name).List(ctx, metav1.ListOptions{LabelSelector: "app=" + deployment})
	if err != nil || len(pods.Items) == 0 {
		return nil, fmt.Errorf("a pod of %s/%s: %d, %w", w.name, deployment, len(pods.Items), err)
	}
	return json.Marshal(map[string]any{
		"specversion": "1.0", "type": "dev.rehome.request.v1", "id": id, "source": "/test", "datacontenttype": "application/json",
		"data": map[string]any{
			"action": "deschedule", "reason": "it hangs",
			"target": map[string]any{"pods": []map[string]string{{"namespace": w.name, "name": pods.Items[0].Name}}},
		},
	})
}
