package restart

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
)

const (
	// cheapest is the deletion cost of a pod that is to go first.
	cheapest = "-2147483647"
	// costBefore is the annotation on the pod that keeps the deletion cost that it had. Empty: none.
	costBefore = "rehome.dev/surge-cost-before"
)

// cost is a change of a pod's deletion cost. nil values remove.
type cost struct {
	Cost, Before *string
}

// cheap makes the pod the first that its ReplicaSet removes. nil: it is that already.
func cheap(pod *corev1.Pod) *cost {
	if _, marked := pod.Annotations[costBefore]; marked {
		return nil
	}
	return &cost{Cost: new(cheapest), Before: new(pod.Annotations[corev1.PodDeletionCost])}
}

// dear takes that back. nil: nothing is to be taken back.
func dear(pod *corev1.Pod) *cost {
	if pod == nil {
		return nil
	}
	before, marked := pod.Annotations[costBefore]
	switch {
	case !marked:
		return nil
	case before == "":
		return &cost{}
	}
	return &cost{Cost: &before}
}

// standing is where a surge that has begun is, by what is on the Deployment.
type standing int

const (
	surged   standing = iota // it has one replica more, or is about to
	returned                 // it has its replicas back
	theirs                   // somebody else has scaled it
)

// standingOf finds out where the surge is. Marks that somebody took away are missed only if the replica went with them.
// An autoscaler may take the replica more away before its minimum is raised, or after it was lowered.
func standingOf(s state, d *appsv1.Deployment) standing {
	now, more := replicasOf(d), s.Replicas+1
	ours := d.Annotations[restartedAt] == s.value()
	marked := ours && d.Annotations[surgeReplicas] != ""
	switch {
	case now == more && (marked || !ours):
		return surged
	case !marked:
		return returned
	case s.Autoscaler != "" && now == s.Replicas:
		return surged
	}
	return theirs
}

// followSurge decides what a step does about a surge that has begun. grace is what the pod may have to stop, nil for
// its own time.
func followSurge(s state, v view, grace *int64) decision {
	at := standingOf(s, v.Deployment)
	over := at != surged || s.Refusal != nil || s.Returning || v.going()
	if along := alongside(s, v, over); along != nil {
		words := "the minimum of the autoscaler goes along: " + situation(v.Deployment)
		return decision{Minimum: along, Then: soonAgain(s, words)}
	}
	switch {
	case at == returned:
		return settleSurge(s, v, grace)
	case at == theirs:
		return leaveScaled(s, v)
	case v.going():
		return decision{Change: unsurge(s), Then: soonAgain(s, "the pod is "+leave(v)+"; one replica fewer is needed")}
	case s.Returning:
		return decision{Change: unsurge(s), Then: soonAgain(s, goes)}
	case s.Refusal != nil:
		return takeBackSurge(s, v)
	}
	return await(s, v)
}

// await decides what a step does while the replacement is waited for.
func await(s state, v view) decision {
	d := v.Deployment
	if v.Now.After(s.At.Add(s.Limit)) {
		return giveUp(fmt.Sprintf("the surge took more than %s and is taken back: %s", s.Limit, situation(d)))
	}
	if cheap := cheap(v.Pod); cheap != nil {
		return decision{Cost: cheap, Then: soonAgain(s, situation(d))}
	}
	if replicasOf(d) == s.Replicas || !complete(d) {
		return decision{Then: working(s, situation(d))}
	}
	return giveBack(s)
}

// goes says that the last part begins.
const goes = "the replacement is available; the pod goes"

// giveBack decides that the pod goes, if its budget allows it. With an autoscaler that takes two changes, so it is
// remembered before the first one.
func giveBack(s state) decision {
	if s.Autoscaler == "" {
		return decision{Ask: true, Change: unsurge(s), Then: soonAgain(s, goes)}
	}
	s.Returning = true
	return decision{Ask: true, Then: soonAgain(s, goes)}
}

// unsurge gives the Deployment its number of replicas back.
func unsurge(s state) *change {
	return &change{
		Annotations: map[string]*string{surgeReplicas: nil, restartedAt: new(s.value())},
		Replicas:    new(s.Replicas),
	}
}

// takeBackSurge takes a surge back. The pod stops being the first to go before the number of replicas changes, so that
// its ReplicaSet does not take it instead of one that is ready and not yet available.
func takeBackSurge(s state, v view) decision {
	if dear := dear(v.Pod); dear != nil {
		return decision{Cost: dear, Then: soonAgain(s, s.Refusal.Message)}
	}
	return decision{Change: unsurge(s), Then: soonAgain(s, s.Refusal.Message)}
}

// settleSurge waits until a Deployment that got its replicas back has no more than that, and says what became of the
// pod.
func settleSurge(s state, v view, grace *int64) decision {
	if !rolledOut(v.Deployment) && v.Now.Before(s.At.Add(2*s.Limit+moment)) { // a controller that is away does it later
		return decision{Then: working(s, situation(v.Deployment))}
	}
	end := decision{Then: ending(s, v, oddity(s, v))}
	switch {
	case v.Pod == nil:
	case v.going():
		left := v.Pod.DeletionGracePeriodSeconds
		end.Shorten = grace != nil && left != nil && *grace < *left
	default:
		end.Cost = dear(v.Pod)
	}
	return end
}

// oddity says what was not as planned in a surge that is over, empty if all was.
func oddity(s state, v view) string {
	switch {
	case s.Refusal != nil:
		return s.Refusal.Message
	case v.Deployment.Annotations[restartedAt] != s.value():
		return "somebody else took the annotations of the surge away, and the replica with them"
	case !v.going():
		return "another pod went in its place, because that was not ready any more"
	}
	return ""
}

// leaveScaled ends a surge of a Deployment that somebody else has scaled: theirs counts.
func leaveScaled(s state, v view) decision {
	words := fmt.Sprintf("somebody else scaled the Deployment to %d replicas during the surge from %d to %d",
		replicasOf(v.Deployment), s.Replicas, s.Replicas+1)
	end := decision{
		Change: &change{Annotations: map[string]*string{surgeReplicas: nil}},
		Then:   ending(s, v, words),
	}
	if !v.going() {
		end.Cost = dear(v.Pod)
	}
	return end
}

// grace is what a pod may have to stop. nil: its own time.
func (r *Method) grace() *int64 {
	if r.cfg.GracePeriodSeconds == nil {
		return nil
	}
	return r.cfg.GracePeriodSeconds()
}

// askToEvict asks the API server whether it would evict the pod now. held says why not; empty: it would, or the pod is
// gone.
func (r *Method) askToEvict(ctx context.Context, s state) (held string, err error) {
	err = r.evict(ctx, s, nil, []string{metav1.DryRunAll})
	var status apierrors.APIStatus
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return "", nil
	case errors.As(err, &status):
		return "the replacement is available, but the pod would not be evicted: " + err.Error(), nil
	}
	return "", err
}

// shorten gives a pod that is being deleted less time to stop. No budget is asked about such a pod.
func (r *Method) shorten(ctx context.Context, s state) error {
	err := r.evict(ctx, s, r.grace(), r.patchOptions().DryRun)
	if apierrors.IsNotFound(err) || refused(err) {
		return nil // it goes in its own time
	}
	return err
}

// evict asks for the eviction of the pod, once. It does not retry: client-go would wait inside of it for as long as the
// API server asks.
func (r *Method) evict(ctx context.Context, s state, grace *int64, dryRun []string) error {
	eviction := &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Pod.Namespace, Name: s.Pod.Name},
		DeleteOptions: &metav1.DeleteOptions{
			GracePeriodSeconds: grace,
			Preconditions:      &metav1.Preconditions{UID: &s.Pod.UID},
			DryRun:             dryRun,
		},
	}
	err := r.cfg.Client.CoreV1().RESTClient().Post().MaxRetries(0).
		Namespace(s.Pod.Namespace).Resource("pods").Name(s.Pod.Name).SubResource("eviction").
		VersionedParams(&metav1.CreateOptions{DryRun: dryRun}, scheme.ParameterCodec).Body(eviction).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("evict pod %s: %w", s.Pod, err)
	}
	return nil
}

// patchCost changes the deletion cost of the pod. A pod that is gone needs none.
func (r *Method) patchCost(ctx context.Context, s state, c cost) error {
	document, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": s.Pod.UID, "annotations": map[string]*string{corev1.PodDeletionCost: c.Cost, costBefore: c.Before},
	}})
	if err == nil {
		_, err = r.cfg.Client.CoreV1().Pods(s.Pod.Namespace).
			Patch(ctx, s.Pod.Name, types.MergePatchType, document, r.patchOptions())
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("patch pod %s: %w", s.Pod, err)
	}
	return nil
}
