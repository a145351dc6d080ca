package restart

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/actuator/move/eviction"
)

// The annotations on a Deployment, see the package comment.
const (
	restartedAt   = "rehome.dev/restarted-at"
	restartedFor  = "rehome.dev/restarted-for"
	restartUndo   = "rehome.dev/restart-undo"
	surgeReplicas = "rehome.dev/surge-replicas"
)

// fieldManager is the name under which fields are changed.
const fieldManager = "rehome-restart"

// change is a patch of a Deployment. In the maps a nil value removes the key.
type change struct {
	Annotations map[string]*string
	Template    map[string]*string
	Replicas    *int32
}

// document renders the change as a JSON merge patch. It has the version of the Deployment, so the API server answers 409 if there
// is a newer one.
func (c change) document(d *appsv1.Deployment) ([]byte, error) {
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
	return json.Marshal(map[string]any{"metadata": metadata, "spec": spec})
}

// patch changes the Deployment. It fails with a conflict if another client has changed it since d was read.
func (m *Method) patch(ctx context.Context, d *appsv1.Deployment, c change) error {
	document, err := c.document(d)
	if err == nil {
		_, err = m.cfg.Client.AppsV1().Deployments(d.Namespace).
			Patch(ctx, d.Name, types.MergePatchType, document, m.patchOptions())
	}
	if err != nil {
		return fmt.Errorf("patch deployment %s/%s: %w", d.Namespace, d.Name, err)
	}
	return nil
}

// patchCost changes the deletion cost of the pod. A pod that is gone needs none.
func (m *Method) patchCost(ctx context.Context, s state, c cost) error {
	document, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": s.Pod.UID, "annotations": map[string]*string{corev1.PodDeletionCost: c.Cost, costBefore: c.Before},
	}})
	if err == nil {
		_, err = m.cfg.Client.CoreV1().Pods(s.Pod.Namespace).
			Patch(ctx, s.Pod.Name, types.MergePatchType, document, m.patchOptions())
	}
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

// askToEvict asks the API server whether it would evict the pod now. held says why not; empty: it would, or the pod is gone.
func (m *Method) askToEvict(ctx context.Context, s state) (held string, err error) {
	err = m.evict(ctx, s, nil, []string{metav1.DryRunAll})
	var status apierrors.APIStatus
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return "", nil
	case errors.As(err, &status):
		return "the replacement is available, but the pod would not be evicted: " + err.Error(), nil
	}
	return "", err
}

// shorten gives a pod that is being deleted less time to stop. Budgets do not apply to such a pod.
func (m *Method) shorten(ctx context.Context, s state) error {
	err := m.evict(ctx, s, m.cfg.GracePeriodSeconds(), m.patchOptions().DryRun)
	if apierrors.IsConflict(err) || move.Permanent(err) {
		return nil // it goes in its own time
	}
	return err
}

func (m *Method) evict(ctx context.Context, s state, grace *int64, dryRun []string) error {
	err := eviction.Call(ctx, m.cfg.Client, s.Pod.Namespace, s.Pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: grace, Preconditions: &metav1.Preconditions{UID: &s.Pod.UID}, DryRun: dryRun,
	})
	if err != nil {
		return fmt.Errorf("evict pod %s: %w", s.Pod, err)
	}
	return nil
}
