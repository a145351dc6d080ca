package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
)

// SetNodeReady makes a node NotReady and keeps it so, or makes it Ready again. It returns when the node controller has added or
// removed its taints. The pods stay on the node until that controller evicts them, after five minutes or after their
// tolerationSeconds.
func (c *Cluster) SetNodeReady(ctx context.Context, name string, ready bool) error {
	if err := c.setNodeReady(ctx, name, ready); err != nil {
		return fmt.Errorf("set node %s ready=%t: %w", name, ready, err)
	}
	return nil
}

func (c *Cluster) setNodeReady(ctx context.Context, name string, ready bool) error {
	if ready { // Without the hold, kwok makes it Ready.
		if err := c.patchNode(ctx, name, holdPatch(nil)); err != nil {
			return err
		}
		return c.waitNodes(ctx, []string{name})
	}
	if err := c.patchNode(ctx, name, holdPatch("true")); err != nil {
		return err
	}
	now := metav1.NewTime(time.Now())
	condition := corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "Test", Message: "made NotReady by a test",
		LastHeartbeatTime: now, LastTransitionTime: now,
	}
	status := map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{condition}}}
	if err := c.patchNode(ctx, name, status, "status"); err != nil {
		return err
	}
	q := query{client: c.client.CoreV1().RESTClient(), resource: "nodes", name: name}
	return until(ctx, c, q, func(found objects[*corev1.Node]) string {
		for _, node := range found {
			if hasTaints(node, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute) {
				return ""
			}
		}
		return "the taints of a NotReady node"
	})
}

// holdPatch sets the hold annotation to a value; nil removes it.
func holdPatch(value any) map[string]any {
	return map[string]any{"metadata": map[string]any{"annotations": map[string]any{HoldAnnotation: value}}}
}

func (c *Cluster) patchNode(ctx context.Context, name string, patch map[string]any, subresources ...string) error {
	body, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	return c.PatchNode(ctx, name, string(body), subresources...)
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

// hasTaints reports whether node is tainted NotReady with all of the effects.
func hasTaints(node *corev1.Node, effects ...corev1.TaintEffect) bool {
	have := map[corev1.TaintEffect]bool{}
	for _, taint := range node.Spec.Taints {
		if taint.Key == corev1.TaintNodeNotReady {
			have[taint.Effect] = true
		}
	}
	for _, effect := range effects {
		if !have[effect] {
			return false
		}
	}
	return true
}
