package restart

import (
	"context"
	"encoding/json"
	"fmt"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/schemas"
)

// surgeMinimum is the annotation on an autoscaler whose minimum was raised for a surge: for which, and the minimum
// before.
const surgeMinimum = "rehome.dev/surge-min-replicas"

// raise is what the annotation surgeMinimum says.
type raise struct {
	At  string `json:"at"`  // names the surge
	Min *int32 `json:"min"` // null: there was none
}

// scaledAlong refuses a surge of a Deployment whose autoscaler would take the replica more away and cannot be told to
// want it.
func scaledAlong(c candidate) *move.Refusal {
	const reason = schemas.ReasonRestartScaled
	if c.Method != schemas.MethodSurge || len(c.Autoscalers) == 0 {
		return nil
	}
	a, more := c.Autoscalers[0], replicasOf(c.Deployment)+1
	owner := metav1.GetControllerOf(&a)
	switch {
	case len(c.Autoscalers) > 1:
		return not(c, reason, "more than one HorizontalPodAutoscaler scales it: %s and %s", a.Name, c.Autoscalers[1].Name)
	case owner != nil:
		return not(c, reason,
			"the HorizontalPodAutoscaler %s would undo one replica more, and %s %s would undo a change of it",
			a.Name, owner.Kind, owner.Name)
	case a.Spec.MaxReplicas < more:
		return not(c, reason, "the HorizontalPodAutoscaler %s would undo one replica more: its maxReplicas is %d",
			a.Name, a.Spec.MaxReplicas)
	case minimum(a) >= more:
		return not(c, reason, "the HorizontalPodAutoscaler %s wants at least %d replicas, and there are %d",
			a.Name, minimum(a), replicasOf(c.Deployment))
	}
	return nil
}

// minimum is how many replicas an autoscaler wants at least.
func minimum(a autoscalingv2.HorizontalPodAutoscaler) int32 {
	if a.Spec.MinReplicas == nil {
		return 1
	}
	return *a.Spec.MinReplicas
}

// minimumChange is a patch of an autoscaler. A nil mark removes the annotation; without Set the minimum stays.
type minimumChange struct {
	Mark *string
	Set  bool
	Min  *int32
}

// raised reads the mark of the surge of s on its autoscaler.
func raised(s state, a *autoscalingv2.HorizontalPodAutoscaler) (raise, bool) {
	var r raise
	text := a.Annotations[surgeMinimum]
	if text == "" || json.Unmarshal([]byte(text), &r) != nil || r.At != s.value() {
		return raise{}, false
	}
	return r, true
}

// alongside is what is to be changed about the autoscaler of a surge: it wants the replica more until the surge is
// over. nil: it is as it should be, or there is none.
func alongside(s state, v view, over bool) *minimumChange {
	a := v.Autoscaler
	if a == nil {
		return nil
	}
	more := s.Replicas + 1
	mark, is := raised(s, a)
	switch {
	case !over && !is:
		text, err := json.Marshal(raise{At: s.value(), Min: a.Spec.MinReplicas})
		if err != nil { // every field has a JSON form
			return nil
		}
		return &minimumChange{Mark: new(string(text)), Set: true, Min: &more}
	case over && is:
		// A minimum that somebody else has set since is theirs.
		return &minimumChange{Set: minimum(*a) == more, Min: mark.Min}
	}
	return nil
}

// autoscaler returns the one that the surge raises. nil: there is none, or not any more.
func (r *Method) autoscaler(ctx context.Context, s state) (*autoscalingv2.HorizontalPodAutoscaler, error) {
	if s.Autoscaler == "" {
		return nil, nil
	}
	namespace := s.Deployment.Namespace
	a, err := r.cfg.Client.AutoscalingV2().HorizontalPodAutoscalers(namespace).Get(ctx, s.Autoscaler, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look at horizontalpodautoscaler %s/%s: %w", namespace, s.Autoscaler, err)
	}
	return a, nil
}

// patchMinimum changes the autoscaler as it is. A conflict is no error: the next step looks again.
func (r *Method) patchMinimum(ctx context.Context, a *autoscalingv2.HorizontalPodAutoscaler, c minimumChange) error {
	patch := map[string]any{"metadata": map[string]any{
		"resourceVersion": a.ResourceVersion, "annotations": map[string]*string{surgeMinimum: c.Mark},
	}}
	if c.Set {
		patch["spec"] = map[string]any{"minReplicas": c.Min}
	}
	document, err := json.Marshal(patch)
	if err == nil {
		_, err = r.cfg.Client.AutoscalingV2().HorizontalPodAutoscalers(a.Namespace).
			Patch(ctx, a.Name, types.MergePatchType, document, r.patchOptions())
	}
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("patch horizontalpodautoscaler %s/%s: %w", a.Namespace, a.Name, err)
	}
	return nil
}
