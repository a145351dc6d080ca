package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/schemas"
)

// node executes one step.
func (c *Steps) node(ctx context.Context, d plan.Decision, n plan.NodeStep) (done Done) {
	_ = again(func() error {
		live, err := c.getNode(ctx, n.Name)
		switch {
		case apierrors.IsNotFound(err):
			done = Done{NodeStep: n, Outcome: Outdated, Message: "the node is gone"}
		case err != nil:
			done = failure(n, err)
		default:
			done = c.once(ctx, d, n, live)
		}
		return done.Err
	})
	return done
}

func failure(n plan.NodeStep, err error) Done {
	return Done{NodeStep: n, Outcome: Failed, Message: err.Error(), Err: err}
}

// once tries the step once. Failing to set conditions fails the step only if it changes nothing else. A missing right is no
// failure: conditions only inform users and other programs.
func (c *Steps) once(ctx context.Context, d plan.Decision, n plan.NodeStep, live *corev1.Node) Done {
	done := Done{NodeStep: n}
	holder, err := c.holder(ctx, d, n, live)
	if err != nil {
		return failure(n, err)
	}
	var patch []operation
	patch, done.Outcome, done.Message = patchOf(n, live, holder)
	done.Again = n.Action == schemas.NodeCordon && done.Outcome == Changed && n.Marked != nil && n.Marked.UID == n.Mark.UID &&
		!live.Spec.Unschedulable
	if len(patch) > 0 {
		if err := c.patchNode(ctx, live, types.JSONPatchType, patch); err != nil {
			return failure(n, err)
		}
	}
	if done.Outcome != Changed && done.Outcome != Unchanged {
		return done
	}
	set, err := c.setConditions(ctx, live, n.Conditions)
	switch {
	case apierrors.IsForbidden(err):
		done.ConditionsRefused, err = true, nil
	case err != nil && n.Action == schemas.NodeMark:
		return failure(n, err)
	case set && n.Action == schemas.NodeMark:
		done.Outcome = Changed
	}
	done.Err = err
	return done
}

// patchOf returns the change of the node, or none unless the outcome is Changed. holder is another maintenance that
// holds the node. It is pure.
func patchOf(n plan.NodeStep, live *corev1.Node, holder string) ([]operation, Outcome, string) {
	mark := schemas.MarkOn(live)
	if outcome, why := precheck(n, live, mark, holder); outcome != Changed {
		return nil, outcome, why
	}
	patch := []operation{{"test", "/metadata/uid", live.UID}, version(live.ResourceVersion)}
	again := n.Action == schemas.NodeCordon && mark != nil && mark.UID == n.Mark.UID // the report is about this maintenance
	if live.Annotations[schemas.AnnotationMaintained] == n.Mark.Name && n.Mark.Name != "" && !again {
		patch = append(patch, operation{"remove", annotation(schemas.AnnotationMaintained), nil})
	}
	if n.Action == schemas.NodeReturn {
		return giveBack(n, live, patch)
	}
	text, err := json.Marshal(n.Mark)
	if err != nil {
		return nil, Failed, err.Error()
	}
	if live.Annotations == nil {
		patch = append(patch, operation{"add", "/metadata/annotations", map[string]string{}})
	}
	patch = append(patch, operation{"add", annotation(schemas.AnnotationMaintenance), string(text)},
		operation{"add", "/spec/unschedulable", true})
	if live.Spec.Unschedulable {
		return patch, Changed, "it was cordoned before, and stays so"
	}
	return patch, Changed, ""
}

// precheck returns Changed if the step has to patch the node, or else the outcome of the step and the reason.
func precheck(n plan.NodeStep, live *corev1.Node, mark *schemas.CordonMark, holder string) (Outcome, string) {
	done := n.Action == schemas.NodeMark || // it only sets conditions
		n.Action == schemas.NodeCordon && sameMark(mark, &n.Mark) && live.Spec.Unschedulable ||
		n.Action == schemas.NodeReturn && mark == nil && n.Marked != nil
	switch {
	case live.UID != n.UID:
		return Outdated, "another node has its name"
	case holder != "":
		return Taken, "maintenance " + holder + " holds the node"
	case done:
		return Unchanged, ""
	case live.Spec.Unschedulable != n.Unschedulable || !sameMark(mark, n.Marked):
		return Outdated, "the node has changed since that was decided"
	}
	return Changed, ""
}

// giveBack adds the operations that restore the node.
func giveBack(n plan.NodeStep, live *corev1.Node, patch []operation) ([]operation, Outcome, string) {
	patch = append(patch, operation{"remove", annotation(schemas.AnnotationMaintenance), nil})
	other := cordonedBy(live)
	switch {
	case !live.Spec.Unschedulable:
		return patch, Changed, "it had been uncordoned"
	case n.Mark.CordonedBefore:
		return patch, Changed, "it stays cordoned, as it was before"
	case other != "":
		return patch, Changed, "it stays cordoned: " + other + " has cordoned it meanwhile"
	}
	return append(patch, operation{"remove", "/spec/unschedulable", nil}), Changed, ""
}

func annotation(key string) string {
	return "/metadata/annotations/" + strings.ReplaceAll(key, "/", "~1")
}

// sameMark compares times as times.
func sameMark(a, b *schemas.CordonMark) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Name == b.Name && a.UID == b.UID && a.CordonedBefore == b.CordonedBefore && a.At.Equal(b.At)
}

// cordonedBy returns the field manager, other than Rehome, that has cordoned the node, or "".
func cordonedBy(n *corev1.Node) string {
	for _, f := range n.ManagedFields {
		var fields struct {
			Spec map[string]json.RawMessage `json:"f:spec"`
		}
		if f.Manager == Manager || f.Subresource != "" || f.FieldsV1 == nil ||
			json.Unmarshal(f.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		if _, owns := fields.Spec["f:unschedulable"]; owns {
			return f.Manager
		}
	}
	return ""
}

// holder returns the name of another maintenance that marked a node to cordon it, and still holds it, or "".
func (c *Steps) holder(ctx context.Context, d plan.Decision, n plan.NodeStep, live *corev1.Node) (string, error) {
	m := schemas.MarkOn(live)
	if m == nil || m.UID == d.UID || n.Action != schemas.NodeCordon {
		return "", nil
	}
	other, err := c.store(m.Name).get(ctx, m.Name)
	switch {
	case apierrors.IsNotFound(err) || err == nil && other.UID != m.UID:
		return "", nil
	case err != nil:
		return "", err
	}
	for _, is := range other.Status.Nodes {
		if is.Name == live.Name && is.UID == live.UID && plan.Holds(is.Stage) {
			return m.Name, nil
		}
	}
	return "", nil
}

func (c *Steps) getNode(ctx context.Context, name string) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	n, err := c.cfg.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get node %s: %w", name, err)
	}
	return n, nil
}

func (c *Steps) patchNode(ctx context.Context, n *corev1.Node, as types.PatchType, patch any, subresources ...string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	body, err := c.write(patch)
	if err == nil {
		options := metav1.PatchOptions{FieldManager: Manager}
		if c.cfg.DryRun {
			options.DryRun = []string{metav1.DryRunAll}
		}
		_, err = c.cfg.Client.CoreV1().Nodes().Patch(ctx, n.Name, as, body, options, subresources...)
	}
	if err != nil {
		return fmt.Errorf("patch node %s: %w", n.Name, err)
	}
	return nil
}

// setConditions sets the missing conditions of the node, and reports whether there were any. A missing right is
// logged once.
func (c *Steps) setConditions(ctx context.Context, live *corev1.Node, wanted []corev1.NodeCondition) (bool, error) {
	var set []corev1.NodeCondition
	for _, w := range wanted {
		i := slices.IndexFunc(live.Status.Conditions, func(is corev1.NodeCondition) bool { return is.Type == w.Type })
		if i >= 0 && live.Status.Conditions[i].Status == w.Status {
			is := live.Status.Conditions[i]
			if is.Reason == w.Reason && is.Message == w.Message {
				continue
			}
			w.LastTransitionTime = is.LastTransitionTime
		}
		set = append(set, w)
	}
	if len(set) == 0 {
		return false, nil
	}
	err := c.patchNode(ctx, live, types.StrategicMergePatchType, map[string]any{
		"metadata": map[string]any{"uid": live.UID}, "status": map[string]any{"conditions": set},
	}, "status")
	if apierrors.IsForbidden(err) && c.forbidden.CompareAndSwap(false, true) {
		c.cfg.Log.Warn("cannot set the conditions of nodes: the right to patch nodes/status is missing", "error", err)
	}
	return err == nil, err
}
