package evictionrequest

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	lifecycle "k8s.io/api/lifecycle/v1alpha1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/schemas"
)

// controller implements, for one namespace, the documented behavior of the Kubernetes controller and of the responder
// that calls the eviction API. No released control plane has either yet. It works only when called, so a test controls
// each step.
type controller struct {
	client    kubernetes.Interface
	namespace string
}

// reconcile creates an Eviction for each pod with a request, cancels those without one, and updates the status of all
// Evictions and requests.
func (c controller) reconcile(ctx context.Context) error {
	list, err := c.client.LifecycleV1alpha1().EvictionRequests(c.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	byPod := map[types.UID][]lifecycle.EvictionRequest{}
	for _, r := range list.Items {
		byPod[r.Spec.Target.Pod.UID] = append(byPod[r.Spec.Target.Pod.UID], r)
	}
	for _, requests := range byPod {
		if err := c.pod(ctx, requests); err != nil {
			return err
		}
	}
	return nil
}

// pod reconciles the requests for one pod.
func (c controller) pod(ctx context.Context, requests []lifecycle.EvictionRequest) error {
	target := requests[0].Spec.Target.Pod
	eviction, err := c.eviction(ctx, target.UID)
	if err != nil {
		return err
	}
	if eviction == nil {
		if eviction, err = c.begin(ctx, requests); err != nil {
			return err
		}
	}
	wanted := false
	for _, r := range requests {
		wanted = wanted || r.Spec.Intent == lifecycle.EvictionRequestIntentEviction
	}
	live, err := c.client.CoreV1().Pods(c.namespace).Get(ctx, target.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) || err == nil && live.UID != target.UID:
		return c.say(ctx, eviction, lifecycle.ResponderStateCompleted, "",
			lifecycle.EvictionConditionReasonPodDeleted, lifecycle.EvictionConditionReasonSucceeded)
	case err != nil:
		return err
	case schemas.Ended(live):
		return c.say(ctx, eviction, lifecycle.ResponderStateCompleted, "",
			lifecycle.EvictionConditionReasonPodTerminal, lifecycle.EvictionConditionReasonSucceeded)
	case !wanted:
		return c.say(ctx, eviction, lifecycle.ResponderStateCanceled, "",
			lifecycle.EvictionConditionReasonEvictionFailed, lifecycle.EvictionConditionReasonCanceledDueToNoRequesters)
	}
	return c.say(ctx, eviction, lifecycle.ResponderStateActive, "waits for the pod to go",
		lifecycle.EvictionConditionReasonAwaitingEviction, lifecycle.EvictionConditionReasonAwaitingEviction)
}

// eviction returns the Eviction of a pod, or nil.
func (c controller) eviction(ctx context.Context, pod types.UID) (*lifecycle.Eviction, error) {
	list, err := c.client.LifecycleV1alpha1().Evictions(c.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, e := range list.Items {
		if e.Spec.Target.Pod.UID == pod {
			return &e, nil
		}
	}
	return nil, nil
}

// begin creates the Eviction for the requests.
func (c controller) begin(ctx context.Context, requests []lifecycle.EvictionRequest) (*lifecycle.Eviction, error) {
	target := requests[0].Spec.Target.Pod
	e := &lifecycle.Eviction{
		ObjectMeta: metav1.ObjectMeta{GenerateName: target.Name + "-", Labels: map[string]string{
			lifecycle.EvictionResponderImperativeEviction: string(lifecycle.EvictionParticipantRoleResponder),
		}},
		Spec: lifecycle.EvictionSpec{Target: lifecycle.EvictionTarget{
			Pod: &lifecycle.EvictionPodReference{Name: target.Name, UID: target.UID},
		}},
	}
	for _, r := range requests {
		e.Labels[r.Spec.Requester] = string(lifecycle.EvictionParticipantRoleRequester)
	}
	return c.client.LifecycleV1alpha1().Evictions(c.namespace).Create(ctx, e, strictly())
}

// strictly has the API server refuse fields that it does not know, instead of dropping them.
func strictly() metav1.CreateOptions {
	return metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
}

// say updates the status of an Eviction and of its requests. gone and lost are the reasons of the conditions
// TargetEvicted and Failed, which are true if set.
func (c controller) say(ctx context.Context, e *lifecycle.Eviction, state lifecycle.ResponderStateType, message string,
	gone, lost lifecycle.EvictionConditionReason) error {
	isGone := gone == lifecycle.EvictionConditionReasonPodDeleted || gone == lifecycle.EvictionConditionReasonPodTerminal
	isLost := !isGone && lost != lifecycle.EvictionConditionReasonAwaitingEviction
	set := func(conditions *[]metav1.Condition, generation int64) {
		for kind, c := range map[lifecycle.EvictionConditionType]metav1.Condition{
			lifecycle.EvictionConditionTargetEvicted: {Status: status(isGone), Reason: string(gone)},
			lifecycle.EvictionConditionFailed:        {Status: status(isLost), Reason: string(lost)},
		} {
			c.Type, c.ObservedGeneration = string(kind), generation
			meta.SetStatusCondition(conditions, c)
		}
	}
	name, now := lifecycle.EvictionResponderImperativeEviction, metav1.NewTime(time.Now().Truncate(time.Second))
	e.Status.TargetResponders = []lifecycle.TargetResponder{{Name: name, Priority: new(int32(100)), State: state}}
	if len(e.Status.Responders) == 0 {
		e.Status.Responders = []lifecycle.ResponderStatus{{Name: name, StartTime: &now}}
	}
	e.Status.Responders[0].Message, e.Status.Responders[0].HeartbeatTime = &message, &now
	e.Status.ObservedGeneration = &e.Generation
	set(&e.Status.Conditions, e.Generation)
	options := metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict}
	if _, err := c.client.LifecycleV1alpha1().Evictions(c.namespace).UpdateStatus(ctx, e, options); err != nil {
		return fmt.Errorf("status of eviction %s: %w", e.Name, err)
	}
	requests := c.client.LifecycleV1alpha1().EvictionRequests(c.namespace)
	list, err := requests.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range list.Items {
		if r.Spec.Target.Pod.UID == e.Spec.Target.Pod.UID {
			r.Status.ObservedGeneration = &r.Generation
			set(&r.Status.Conditions, r.Generation)
			_, err := requests.UpdateStatus(ctx, &r, options)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func status(is bool) metav1.ConditionStatus {
	if is {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

// giveUp reports that no responder was able to evict the pod.
func (c controller) giveUp(ctx context.Context, pod *corev1.Pod) error {
	e, err := c.eviction(ctx, pod.UID)
	if err != nil {
		return err
	}
	return c.say(ctx, e, lifecycle.ResponderStateInterrupted, "",
		lifecycle.EvictionConditionReasonEvictionFailed, lifecycle.EvictionConditionReasonNoFurtherResponder)
}

// evict acts as the responder that calls the eviction API.
func (c controller) evict(ctx context.Context, pod *corev1.Pod) error {
	return c.client.CoreV1().Pods(c.namespace).EvictV1(ctx,
		&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: pod.Name}})
}
