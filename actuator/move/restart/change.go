package restart

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/actuator/move/eviction"
	"github.com/rehome-dev/rehome/schemas"
)

// decision is the work of one step and the progress after it. It is safe to repeat.
type decision struct {
	// GiveUp means that the next steps undo the move, for this reason and the scheduler's.
	GiveUp *move.Refusal
	// Ask means that the eviction is sent as a dry run first, and the rest is done only if it would be allowed.
	Ask bool
	// Cost is the new deletion cost of the pod.
	Cost *cost
	// Change is made to the Deployment. The next step reads the result from it, so a conflict only causes another look.
	Change *change
	Then   move.Progress
}

// carryOut executes a decision.
func (m *Method) carryOut(ctx context.Context, s state, v view, d decision) (move.Progress, error) {
	if d.GiveUp != nil {
		return s.takeBack(m.withScheduling(ctx, v.Deployment, d.GiveUp), v.Now), nil
	}
	if d.Ask {
		allowed, why, err := m.mayEvict(ctx, s)
		if s.Blocked = why; err != nil || !allowed {
			return working(s, poll), err
		}
	}
	if d.Cost != nil {
		if err := m.patchCost(ctx, s, *d.Cost); err != nil {
			return move.Progress{}, err
		}
	}
	if d.Change != nil {
		err := m.patch(ctx, v.Deployment, *d.Change)
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return working(s, soon), nil
		}
		if err != nil {
			return move.Progress{}, err
		}
	}
	return d.Then, nil
}

// withScheduling adds the scheduler's message about the replacement to the reason for undoing a move, if it can read
// it.
func (m *Method) withScheduling(ctx context.Context, d *appsv1.Deployment, back *move.Refusal) *move.Refusal {
	pods, err := m.cfg.Client.CoreV1().Pods(d.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: metav1.FormatLabelSelector(d.Spec.Selector), FieldSelector: "spec.nodeName=",
	})
	if err != nil {
		return back
	}
	for _, pod := range pods.Items {
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				refusal := *back
				refusal.Reason = schemas.ReasonRestartNoRoom
				refusal.Message += "; pod " + pod.Name + ": " + c.Message
				return &refusal
			}
		}
	}
	return back
}

// The annotations on a Deployment, see the package comment.
const (
	restartedAt   = "rehome.dev/restarted-at"
	restartedFor  = "rehome.dev/restarted-for"
	restartUndo   = "rehome.dev/restart-undo"
	surgeReplicas = "rehome.dev/surge-replicas"
)

// fieldManager is the field manager of all changes.
const fieldManager = "rehome-restart"

// change is a patch of a Deployment. A nil value in a map removes the key.
type change struct {
	Annotations map[string]*string
	Template    map[string]*string
	Replicas    *int32
}

// patch changes the Deployment by a JSON merge patch with the version that was read, so the API server answers 409 if
// there is a newer one.
func (m *Method) patch(ctx context.Context, d *appsv1.Deployment, c change) error {
	metadata, spec := map[string]any{"resourceVersion": d.ResourceVersion}, map[string]any{}
	if c.Annotations != nil {
		metadata["annotations"] = c.Annotations
	}
	if c.Replicas != nil {
		spec["replicas"] = *c.Replicas
	}
	if c.Template != nil {
		spec["template"] = map[string]any{"metadata": map[string]any{"annotations": c.Template}}
	}
	_, err := m.cfg.Client.AppsV1().Deployments(d.Namespace).Patch(ctx, d.Name, types.MergePatchType,
		move.Encode(map[string]any{"metadata": metadata, "spec": spec}), m.patchOptions())
	if err != nil {
		return fmt.Errorf("patch deployment %s/%s: %w", d.Namespace, d.Name, err)
	}
	return nil
}

// patchCost changes the deletion cost of the pod. It does nothing if the pod is gone.
func (m *Method) patchCost(ctx context.Context, s state, c cost) error {
	document := move.Encode(map[string]any{"metadata": map[string]any{
		"uid": s.Pod.UID, "annotations": map[string]*string{corev1.PodDeletionCost: c.Cost, costBefore: c.Before},
	}})
	_, err := m.cfg.Client.CoreV1().Pods(s.Pod.Namespace).
		Patch(ctx, s.Pod.Name, types.MergePatchType, document, m.patchOptions())
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("patch pod %s: %w", s.Pod, err)
	}
	return nil
}

func (m *Method) patchOptions() metav1.PatchOptions {
	o := metav1.PatchOptions{FieldManager: fieldManager}
	if m.cfg.DryRun {
		o.DryRun = []string{metav1.DryRunAll}
	}
	return o
}

// mayEvict reports whether the API server would evict the pod now, or the pod is gone, and if not, why. The causes in the
// answer name the budget.
func (m *Method) mayEvict(ctx context.Context, s state) (allowed bool, why string, err error) {
	err = eviction.Request(m.cfg.Client, s.Pod.Namespace, s.Pod.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &s.Pod.UID}, DryRun: []string{metav1.DryRunAll},
	}).Do(ctx).Error()
	var status apierrors.APIStatus
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return true, "", nil
	case errors.As(err, &status):
		why = err.Error()
		if details := status.Status().Details; details != nil {
			for _, cause := range details.Causes {
				why += " " + cause.Message
			}
		}
		return false, why, nil
	}
	return false, "", fmt.Errorf("evict pod %s: %w", s.Pod, err)
}
