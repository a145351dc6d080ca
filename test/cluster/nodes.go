package cluster

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
)

// HoldAnnotation on a node or a pod, with any value, prevents kwok from changing its status. A test can then make a node NotReady
// or a pod fail. kwok still renews the lease of such a node, and removes such a pod when it is deleted.
const HoldAnnotation = "test.rehome.dev/hold"

// ReadyAfterAnnotation on a pod delays Running and Ready by this time after the pod is bound, such as "500ms".
const ReadyAfterAnnotation = "test.rehome.dev/ready-after"

// zones is the number of zones of the nodes.
const zones = 3

// AddNodes creates n nodes and returns their names when they are Ready and schedulable. The names are node-000, node-001, and so
// on, and continue after earlier calls. Each node has 32 CPUs, 256 GiB, room for 110 pods, and the labels of its hostname and its
// zone: zone-a, zone-b, and zone-c in turn. The mutate functions may change all of this before the creation.
func (c *Cluster) AddNodes(ctx context.Context, n int, mutate ...func(*corev1.Node)) ([]string, error) {
	first := c.takeNodeNumbers(n)
	names := make([]string, n)
	err := parallel(ctx, n, c.options.Parallelism, func(ctx context.Context, i int) error {
		node := newNode(first + i)
		for _, change := range mutate {
			change(node)
		}
		names[i] = node.Name
		_, err := c.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		return err
	})
	if err == nil {
		err = c.waitNodes(ctx, names)
	}
	if err != nil {
		return nil, fmt.Errorf("add %d nodes: %w", n, err)
	}
	return names, nil
}

// takeNodeNumbers reserves n node numbers and returns the first.
func (c *Cluster) takeNodeNumbers(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.nodes
	c.nodes += n
	return first
}

// newNode returns node number i.
func newNode(i int) *corev1.Node {
	name := fmt.Sprintf("node-%03d", i)
	room := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("32"),
		corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourcePods:   resource.MustParse("110"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				corev1.LabelHostname:     name,
				corev1.LabelTopologyZone: "zone-" + string(rune('a'+i%zones)),
			},
		},
		Status: corev1.NodeStatus{Allocatable: room, Capacity: room.DeepCopy()},
	}
}

// waitNodes waits until the named nodes are usable.
func (c *Cluster) waitNodes(ctx context.Context, names []string) error {
	q := query{client: c.client.CoreV1().RESTClient(), resource: "nodes"}
	return until(ctx, c, q, func(found objects[*corev1.Node]) string {
		usable := map[string]bool{}
		for _, node := range found {
			usable[node.Name] = isUsable(node)
		}
		waiting := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return usable[name] })
		if len(waiting) == 0 {
			return ""
		}
		return fmt.Sprintf("%d Ready nodes, %s among them", len(waiting), waiting[0])
	})
}

// isUsable reports whether node is Ready and no longer has the taint of a new node. A node on hold is always usable, because its
// test sets its status.
func isUsable(node *corev1.Node) bool {
	if _, held := node.Annotations[HoldAnnotation]; held {
		return true
	}
	for _, taint := range node.Spec.Taints {
		if taint.Key == corev1.TaintNodeNotReady {
			return false
		}
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// ChangeNode changes a node. It reads the node again if another client has changed it meanwhile.
func (c *Cluster) ChangeNode(ctx context.Context, name string, change func(*corev1.Node)) error {
	nodes := c.client.CoreV1().Nodes()
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		n, err := nodes.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(n)
		_, err = nodes.Update(ctx, n, metav1.UpdateOptions{})
		return err
	})
}

// PatchNode applies a strategic merge patch to a node.
func (c *Cluster) PatchNode(ctx context.Context, name, patch string, subresources ...string) error {
	options := metav1.PatchOptions{}
	_, err := c.client.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, []byte(patch), options, subresources...)
	return err
}
