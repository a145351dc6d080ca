package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/schemas"
)

// node carries one step out.
func (c *Steps) node(ctx context.Context, s plan.Decision, n plan.NodeStep) Done {
	var d Done
	for range tries {
		live, err := c.look(ctx, n.Name)
		switch {
		case apierrors.IsNotFound(err):
			return Done{NodeStep: n, Outcome: Outdated, Message: "the node is gone"}
		case err != nil:
			return failure(n, err)
		}
		if d = c.once(ctx, s, n, live); !overtaken(d.Err) {
			break
		}
	}
	return d
}

func failure(n plan.NodeStep, err error) Done {
	return Done{NodeStep: n, Outcome: Failed, Message: err.Error(), Err: err}
}

// once carries a step out on the node as it is. When only the conditions could not be set, the outcome is that of all else,
// unless there is nothing else.
func (c *Steps) once(ctx context.Context, s plan.Decision, n plan.NodeStep, live *corev1.Node) Done {
	d := Done{NodeStep: n}
	held, err := c.held(ctx, s, n, live)
	if err != nil {
		return failure(n, err)
	}
	var patch []operation
	patch, d.Outcome, d.Message = patchOf(n, live, held, c.cfg.Now())
	d.Again = n.Action == schemas.NodeCordon && d.Outcome == Changed && isMark(n.Marked, n.Mark.UID) && !live.Spec.Unschedulable
	if len(patch) > 0 {
		if err := c.change(ctx, live, types.JSONPatchType, patch); err != nil {
			return failure(n, err)
		}
	}
	if d.Outcome != Changed && d.Outcome != Unchanged {
		return d
	}
	set, err := c.conditions(ctx, live, n.Conditions)
	switch {
	case err != nil && n.Action == schemas.NodeMark:
		return failure(n, err)
	case set && n.Action == schemas.NodeMark:
		d.Outcome = Changed
	}
	d.Err = err
	return d
}

// patchOf says how the node is changed: not at all, unless the outcome is Changed. held is the name of another maintenance because
// of which the node is not cordoned. It is a pure function.
func patchOf(n plan.NodeStep, live *corev1.Node, held string, now time.Time) ([]operation, Outcome, string) {
	mark := markOf(live)
	switch {
	case live.UID != n.UID:
		return nil, Outdated, "another node has its name"
	case held != "":
		return nil, Taken, "maintenance " + held + " holds the node"
	case done(n, mark, live.Spec.Unschedulable):
		return nil, Unchanged, ""
	case live.Spec.Unschedulable != n.Unschedulable || !sameMark(mark, n.Marked):
		return nil, Outdated, "the node has changed since that was decided"
	case n.Action == schemas.NodeReturn:
		return giveBack(n, live)
	case isMark(mark, n.Mark.UID) && !live.Spec.Unschedulable && now.Before(mark.At.Add(plan.Grace)):
		return nil, Early, "it was cordoned less than a minute ago, and somebody has uncordoned it"
	}
	return cordon(n, live)
}

// done says whether a node with that mark is as the step wants it already.
func done(n plan.NodeStep, is *mark, cordoned bool) bool {
	switch n.Action {
	case schemas.NodeCordon:
		return is != nil && is.Equal(n.Mark) && cordoned
	case schemas.NodeReturn:
		return is == nil && n.Marked != nil
	case schemas.NodeMark:
	}
	return true // it is about conditions alone
}

// cordon is the patch that keeps pods away and says who did that.
func cordon(n plan.NodeStep, live *corev1.Node) ([]operation, Outcome, string) {
	text, err := json.Marshal(n.Mark)
	if err != nil {
		return nil, Failed, err.Error()
	}
	patch := stillThat(live)
	if live.Annotations == nil {
		patch = append(patch, operation{"add", "/metadata/annotations", map[string]string{}})
	}
	patch = append(patch, operation{"add", annotation(schemas.AnnotationMaintenance), string(text)},
		operation{"add", "/spec/unschedulable", true})
	message := ""
	if live.Spec.Unschedulable {
		message = "it was cordoned before, and stays so"
	}
	return append(patch, notMaintained(n, live)...), Changed, message
}

// giveBack is the patch that makes the node as it was before.
func giveBack(n plan.NodeStep, live *corev1.Node) ([]operation, Outcome, string) {
	patch := append(stillThat(live), operation{"remove", annotation(schemas.AnnotationMaintenance), nil})
	patch = append(patch, notMaintained(n, live)...)
	other := cordonedBy(live)
	switch {
	case !live.Spec.Unschedulable:
		return patch, Changed, "somebody had uncordoned it"
	case n.Mark.CordonedBefore:
		return patch, Changed, "it stays cordoned, as it was before"
	case other != "":
		return patch, Changed, "it stays cordoned: " + other + " has cordoned it meanwhile"
	}
	return append(patch, operation{"remove", "/spec/unschedulable", nil}), Changed, ""
}

// stillThat lets a patch fail when the node is another one by then, or has changed.
func stillThat(live *corev1.Node) []operation {
	return []operation{{"test", "/metadata/uid", live.UID}, version(live.ResourceVersion)}
}

// notMaintained takes away what was said to an earlier maintenance of that name, or to this one.
func notMaintained(n plan.NodeStep, live *corev1.Node) []operation {
	if name, set := live.Annotations[schemas.AnnotationMaintained]; !set || name != n.Mark.Name {
		return nil
	}
	return []operation{{"remove", annotation(schemas.AnnotationMaintained), nil}}
}

func annotation(key string) string {
	return "/metadata/annotations/" + strings.ReplaceAll(key, "/", "~1")
}

// markOf is the mark on the node. nil: there is none, or one that cannot be read, which is nobody's.
func markOf(n *corev1.Node) *mark {
	var m mark
	text, set := n.Annotations[schemas.AnnotationMaintenance]
	if !set || json.Unmarshal([]byte(text), &m) != nil || m.UID == "" {
		return nil
	}
	return &m
}

type mark schemas.CordonMark

// Equal compares times as times.
func (m mark) Equal(other schemas.CordonMark) bool {
	return m.Name == other.Name && m.UID == other.UID && m.CordonedBefore == other.CordonedBefore && m.At.Equal(other.At)
}

func sameMark(is *mark, was *schemas.CordonMark) bool {
	if is == nil || was == nil {
		return is == nil && was == nil
	}
	return is.Equal(*was)
}

func isMark[M mark | schemas.CordonMark](m *M, uid types.UID) bool {
	return m != nil && mark(*m).UID == uid
}

// cordonedBy is the field manager, other than Rehome, that has cordoned the node, by what the API server says about who owns
// the field. Empty: none has.
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

// held is the name of another maintenance that marked the node which is to be cordoned, if that still holds it. One that gives it
// back, or does not exist any more, does not.
func (c *Steps) held(ctx context.Context, s plan.Decision, n plan.NodeStep, live *corev1.Node) (string, error) {
	m := markOf(live)
	if m == nil || m.UID == s.UID || n.Action != schemas.NodeCordon {
		return "", nil
	}
	other, err := c.objects(m.Name).get(ctx, m.Name)
	if apierrors.IsNotFound(err) || err == nil && other.UID != m.UID {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	for _, is := range other.Status.Nodes {
		if is.Name == live.Name && is.UID == live.UID && plan.Holds(is.Stage) {
			return m.Name, nil
		}
	}
	return "", nil
}

func (c *Steps) look(ctx context.Context, name string) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	n, err := c.cfg.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("look at node %s: %w", name, err)
	}
	return n, nil
}

func (c *Steps) change(ctx context.Context, n *corev1.Node, as types.PatchType, patch any, subresources ...string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	body, err := json.Marshal(patch)
	if err == nil {
		err = c.leading()
	}
	if err == nil {
		options := metav1.PatchOptions{FieldManager: Manager}
		if c.cfg.DryRun {
			options.DryRun = []string{metav1.DryRunAll}
		}
		_, err = c.cfg.Client.CoreV1().Nodes().Patch(ctx, n.Name, as, body, options, subresources...)
	}
	if err != nil {
		return fmt.Errorf("change node %s: %w", n.Name, err)
	}
	return nil
}

// conditions sets conditions of the node that it does not have yet, and says whether there were any. Without the right to do
// so none is set, which is said once, and is no failure: they are for people and other programs.
func (c *Steps) conditions(ctx context.Context, live *corev1.Node, wanted []corev1.NodeCondition) (bool, error) {
	var set []corev1.NodeCondition
	for _, w := range wanted {
		i := slices.IndexFunc(live.Status.Conditions, func(is corev1.NodeCondition) bool { return is.Type == w.Type })
		if i >= 0 {
			is := live.Status.Conditions[i]
			if is.Status == w.Status && is.Reason == w.Reason && is.Message == w.Message {
				continue
			}
			if is.Status == w.Status {
				w.LastTransitionTime = is.LastTransitionTime
			}
		}
		set = append(set, w)
	}
	if len(set) == 0 {
		return false, nil
	}
	err := c.change(ctx, live, types.StrategicMergePatchType, map[string]any{
		"metadata": map[string]any{"uid": live.UID}, "status": map[string]any{"conditions": set},
	}, "status")
	if apierrors.IsForbidden(err) {
		if c.forbidden.CompareAndSwap(false, true) {
			c.cfg.Log.Warn("the conditions of nodes are not set: the right to patch nodes/status is missing", "error", err)
		}
		return false, nil
	}
	return err == nil, err
}
