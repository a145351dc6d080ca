package evictionrequest

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	lifecycle "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/schemas"
)

// name returns the name of the request for a pod. It is always the same for one requester, so a request that was made
// and not remembered is found again.
func (m *Method) name(pod schemas.PodRef) string {
	sum := sha256.Sum256([]byte(m.cfg.Requester))
	return fmt.Sprintf("rehome-%s-%x", pod.UID, sum[:4])
}

// request returns the object for a pod.
func (m *Method) request(pod schemas.PodRef) *lifecycle.EvictionRequest {
	return &lifecycle.EvictionRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "EvictionRequest"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: m.name(pod),
			Labels: map[string]string{"app.kubernetes.io/managed-by": "rehome"},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Pod", Name: pod.Name, UID: pod.UID},
			},
		},
		Spec: lifecycle.EvictionRequestSpec{
			Target: lifecycle.EvictionRequestTarget{
				Pod: &lifecycle.EvictionRequestPodReference{Name: pod.Name, UID: pod.UID},
			},
			Requester: m.cfg.Requester,
			Intent:    lifecycle.EvictionRequestIntentEviction,
		},
	}
}

// create creates the request for the pod, in JSON. An API server whose release lacks the kind and gets it from a
// CustomResourceDefinition fails for protobuf with an unclear error.
func (m *Method) create(ctx context.Context, pod schemas.PodRef) error {
	body, err := json.Marshal(m.request(pod))
	if err == nil {
		err = m.cfg.Client.LifecycleV1alpha1().RESTClient().Post().MaxRetries(0).
			Namespace(pod.Namespace).Resource("evictionrequests").
			VersionedParams(&metav1.CreateOptions{DryRun: m.dryRun()}, scheme.ParameterCodec).
			SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(ctx).Error()
	}
	if err != nil {
		return fmt.Errorf("create eviction request %s/%s: %w", pod.Namespace, m.name(pod), err)
	}
	return nil
}

// find reads the request for the pod. It returns nil if there is none, if it is terminating, or if it has other
// content.
func (m *Method) find(ctx context.Context, pod schemas.PodRef) (*lifecycle.EvictionRequest, error) {
	name := m.name(pod)
	r, err := m.cfg.Client.LifecycleV1alpha1().EvictionRequests(pod.Namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get eviction request %s/%s: %w", pod.Namespace, name, err)
	case r.DeletionTimestamp != nil, r.Spec.Requester != m.cfg.Requester, !about(r.Spec.Target.Pod, pod):
		return nil, nil
	}
	return r, nil
}

func about(target *lifecycle.EvictionRequestPodReference, pod schemas.PodRef) bool {
	return target != nil && target.UID == pod.UID && target.Name == pod.Name
}

// withdraw withdraws the request and then removes it, so that a client that watches it sees the withdrawal.
func (m *Method) withdraw(ctx context.Context, r *lifecycle.EvictionRequest) error {
	patch := fmt.Sprintf(`{"metadata":{"uid":%q},"spec":{"intent":%q}}`, r.UID, lifecycle.EvictionRequestIntentWithdrawn)
	_, err := m.cfg.Client.LifecycleV1alpha1().EvictionRequests(r.Namespace).
		Patch(ctx, r.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: m.dryRun()})
	if err != nil && !isOther(err) {
		return fmt.Errorf("withdraw eviction request %s/%s: %w", r.Namespace, r.Name, err)
	}
	return m.remove(ctx, r)
}

// remove deletes the request.
func (m *Method) remove(ctx context.Context, r *lifecycle.EvictionRequest) error {
	err := m.cfg.Client.LifecycleV1alpha1().EvictionRequests(r.Namespace).
		Delete(ctx, r.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &r.UID}, DryRun: m.dryRun()})
	if err != nil && !isOther(err) {
		return fmt.Errorf("delete eviction request %s/%s: %w", r.Namespace, r.Name, err)
	}
	return nil
}

// evictions returns the Evictions of the pod that result from a request of the requester.
func (m *Method) evictions(ctx context.Context, pod schemas.PodRef) ([]lifecycle.Eviction, error) {
	list, err := m.cfg.Client.LifecycleV1alpha1().Evictions(pod.Namespace).
		List(ctx, metav1.ListOptions{LabelSelector: m.cfg.Requester})
	if apierrors.IsNotFound(err) { // this kind is not served
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list evictions in %s: %w", pod.Namespace, err)
	}
	return slices.DeleteFunc(list.Items, func(e lifecycle.Eviction) bool {
		return e.Spec.Target.Pod == nil || e.Spec.Target.Pod.UID != pod.UID
	}), nil
}

// dryRun returns the option of each call that changes something.
func (m *Method) dryRun() []string {
	if m.cfg.DryRun {
		return []string{metav1.DryRunAll}
	}
	return nil
}

// isOther reports whether a call with a UID as a precondition failed because the object with that UID is gone.
func isOther(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }

// refused returns the meaning of a permanent answer of the API server for the pod, or nil if the call may be repeated.
func refused(err error) *move.Refusal {
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return &move.Refusal{Outcome: schemas.Rejected, Reason: schemas.ReasonPodTerminating, Message: err.Error()}
	case apierrors.IsNotFound(err):
		return move.Deferred(schemas.ReasonAPIUnavailable, "%v", err)
	case apierrors.IsForbidden(err):
		return move.Deferred(schemas.ReasonForbidden, "%v", err)
	case move.Permanent(err):
		return &move.Refusal{Outcome: schemas.Rejected, Reason: schemas.ReasonInvalid, Message: err.Error()}
	}
	return nil
}
