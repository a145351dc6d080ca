package restart

import (
	"context"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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

// document renders the change as a JSON merge patch for the Deployment as it is. That it names the version makes the
// API server answer 409 if there is a newer one; a JSON patch with a test would be answered with 422, as much else is.
func (c change) document(d *appsv1.Deployment) ([]byte, error) {
	metadata := map[string]any{"resourceVersion": d.ResourceVersion}
	if len(c.Annotations) > 0 {
		metadata["annotations"] = c.Annotations
	}
	spec := map[string]any{}
	if c.Replicas != nil {
		spec["replicas"] = *c.Replicas
	}
	if len(c.Template) > 0 {
		spec["template"] = map[string]any{"metadata": map[string]any{"annotations": c.Template}}
	}
	document := map[string]any{"metadata": metadata}
	if len(spec) > 0 {
		document["spec"] = spec
	}
	return json.Marshal(document)
}

// patch changes the Deployment as it is. It fails with a conflict if somebody else has changed it since d was read.
func (r *Method) patch(ctx context.Context, d *appsv1.Deployment, c change) error {
	document, err := c.document(d)
	if err == nil {
		_, err = r.cfg.Client.AppsV1().Deployments(d.Namespace).
			Patch(ctx, d.Name, types.MergePatchType, document, r.patchOptions())
	}
	if err != nil {
		return fmt.Errorf("patch deployment %s/%s: %w", d.Namespace, d.Name, err)
	}
	return nil
}

func (r *Method) patchOptions() metav1.PatchOptions {
	o := metav1.PatchOptions{FieldManager: fieldManager}
	if r.dryRun {
		o.DryRun = []string{metav1.DryRunAll}
	}
	return o
}
