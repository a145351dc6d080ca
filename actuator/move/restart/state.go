package restart

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

const (
	// defaultProgress is the progress deadline of a Deployment that has none.
	defaultProgress = 600 * time.Second
	// moment is the time that controllers have beyond a deadline.
	moment = 30 * time.Second
	day    = 24 * time.Hour
)

// phase is how far a move is.
type phase string

const (
	planned    phase = "Planned"    // the first change is not made, or its answer was lost
	waiting    phase = "Waiting"    // for the replacement
	returning  phase = "Returning"  // of a surge: the Deployment has its replicas back, and the pod goes
	takingBack phase = "TakingBack" // Refusal says why
)

// state is the part of the ledger record that the method reads.
type state struct {
	Phase      phase             `json:"phase"`
	Pod        schemas.PodRef    `json:"pod"`
	Deployment schemas.ObjectRef `json:"deployment"`
	// Method is restart or surge, Policy the one that the move was planned by.
	Method schemas.Method `json:"method"`
	Policy policy.Restart `json:"policy"`
	// Version is the one of the Deployment that the first patch is for.
	Version string `json:"version"`
	// At is the time of the plan. It identifies the move on the Deployment.
	At time.Time `json:"at"`
	// Limit is how long the move may take until it is taken back.
	Limit time.Duration `json:"limit"`
	// Replicas is how many pods the Deployment wants.
	Replicas int32 `json:"replicas"`
	// Refusal is why the move is taken back, Back since when.
	Refusal *move.Refusal `json:"refusal,omitempty"`
	Back    time.Time     `json:"back,omitzero"`

	// Annotation is the key in the template that a rollout restart changes, Old its value before. nil: it had none.
	Annotation string  `json:"annotation,omitempty"`
	Old        *string `json:"old,omitempty"`
	// Template is a digest of the template without the annotation. A change by another client is seen by it.
	Template string `json:"template,omitempty"`
}

// value identifies the move: the RFC 3339 time in the annotations.
func (s state) value() string { return s.At.Format(time.RFC3339Nano) }

// words describe the first change.
func (s state) words() string {
	if s.Method == schemas.MethodSurge {
		return "one replica more for " + s.Deployment.String()
	}
	return "rollout restart of " + s.Deployment.String()
}

// takeBack is the progress of a move that is taken back from the next step on.
func (s state) takeBack(why *move.Refusal, now time.Time) move.Progress {
	s.Phase, s.Refusal, s.Back = takingBack, why, now.UTC().Round(0)
	return working(s, soon)
}

// fresh makes the state of a move that nothing was done for yet.
func fresh(c candidate) state {
	d := c.Deployment
	s := state{
		Phase:      planned,
		Pod:        schemas.PodRef{Namespace: c.Pod.Namespace, Name: c.Pod.Name, UID: c.Pod.UID},
		Deployment: schemas.ObjectRef{Kind: "Deployment", Namespace: d.Namespace, Name: d.Name, UID: d.UID},
		Method:     c.Method,
		Policy:     c.Policy,
		Version:    d.ResourceVersion,
		At:         c.Now.UTC().Round(0),
		Limit:      limit(c),
		Replicas:   replicasOf(d),
	}
	if c.Method == schemas.MethodSurge {
		return s
	}
	s.Annotation = c.Policy.Annotation
	if s.Annotation == "" {
		s.Annotation = policy.DefaultRestartAnnotation
	}
	if old, has := d.Spec.Template.Annotations[s.Annotation]; has {
		s.Old = &old
		if old == s.value() { // only a new value rolls out
			s.At = s.At.Add(time.Nanosecond)
		}
	}
	s.Template = digest(d.Spec.Template, s.Annotation)
	return s
}

// limit is how long the move of a candidate may take. Without one in the policy it is the progress deadline for each pod that is
// replaced, with a moment for the controller to report that itself.
func limit(c candidate) time.Duration {
	if c.Policy.Timeout > 0 {
		return c.Policy.Timeout
	}
	progress := defaultProgress
	if seconds := c.Deployment.Spec.ProgressDeadlineSeconds; seconds != nil {
		progress = min(time.Duration(*seconds)*time.Second, day) // the largest number stands for no deadline
	}
	if c.Method == schemas.MethodSurge {
		return progress
	}
	return progress*time.Duration(min(replicasOf(c.Deployment), 1000)) + moment
}

// digest is the same for templates that differ in that annotation only.
func digest(template corev1.PodTemplateSpec, annotation string) string {
	template = *template.DeepCopy()
	delete(template.Annotations, annotation)
	text, err := json.Marshal(template)
	if err != nil { // such a template cannot have come from the API server
		return err.Error()
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

func (s state) encode() move.State { return move.Encode(s) }

func decode(text move.State) (state, error) { return move.Decode[state](text) }

// wentBefore is the end of a move that never began, because the pod left by itself.
func wentBefore(v view) move.Progress {
	const words = "the pod went before anything was changed"
	refusal := &move.Refusal{Outcome: schemas.Rejected, Reason: schemas.ReasonPodGone, Message: words}
	if v.Pod != nil && v.Pod.DeletionTimestamp != nil {
		refusal.Reason = schemas.ReasonPodTerminating
	}
	return move.Progress{Stage: move.Done, Refusal: refusal}
}

// deleted ends a move whose Deployment was deleted: the pods follow, unless they are orphaned.
func deleted(s state, v view) move.Progress {
	refusal := move.Deferred(schemas.ReasonRestartUnhealthy, "%s was deleted", s.Deployment)
	switch {
	case v.going():
		return move.Progress{Stage: move.Done}
	case s.Phase != planned && v.Now.Before(s.At.Add(s.Limit)), v.Now.Before(s.At.Add(moment)):
		return working(s, poll)
	case s.Phase == planned:
		return move.Refused(s.Method, refusal)
	}
	return move.NotMoved(refusal)
}

func working(s state, delay time.Duration) move.Progress {
	return move.Progress{State: s.encode(), Delay: delay}
}

// giveUp decides to take a move back. The reason is saved before the change, so that it is known afterwards.
func giveUp(why string) decision {
	return decision{GiveUp: move.Deferred(schemas.ReasonRestartUnhealthy, "%s", why)}
}

// ending is the end of a move, which depends on the pod. words say why a pod that stays does.
func ending(s state, v view, words string) move.Progress {
	if v.going() {
		return move.Progress{Stage: move.Done}
	}
	refusal := move.Deferred(schemas.ReasonRestartRunning, "%s", words)
	if s.Refusal != nil {
		refusal.Outcome, refusal.Reason = s.Refusal.Outcome, s.Refusal.Reason
	}
	return move.NotMoved(refusal)
}

// rolledOut says whether every pod of the Deployment, as its controller sees it, is of the newest template, and there
// are as many as it wants.
func rolledOut(d *appsv1.Deployment) bool {
	want, s := replicasOf(d), d.Status
	return s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == want && s.Replicas == want
}

// complete says whether the Deployment is rolled out and all of its pods are available.
func complete(d *appsv1.Deployment) bool {
	return rolledOut(d) && d.Status.AvailableReplicas == replicasOf(d) && d.Status.UnavailableReplicas == 0
}

// stoppedNone says whether the rollout has stopped no pod yet: there are as many pods of older templates as are wanted.
func stoppedNone(d *appsv1.Deployment) bool {
	s := d.Status
	return s.ObservedGeneration < d.Generation || s.Replicas-s.UpdatedReplicas >= replicasOf(d)
}

// exceeded is the reason of the condition Progressing of a rollout that took too long.
const exceeded = "ProgressDeadlineExceeded"

// stuck says whether the controller has given up the newest rollout that it knows of, or cannot make a pod for a while, and why.
func stuck(d *appsv1.Deployment, now time.Time) (string, bool) {
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentProgressing && (c.Status == corev1.ConditionFalse || c.Reason == exceeded) ||
			c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue && now.After(c.LastTransitionTime.Add(moment)) {
			return fmt.Sprintf("%s is %s, %s: %s", c.Type, c.Status, c.Reason, c.Message), true
		}
	}
	return "", false
}

// overdue returns why a move of that kind is taken back: it got stuck, or takes too long.
func (s state) overdue(v view, kind string) (why string, is bool) {
	d := v.Deployment
	if why, is := stuck(d, v.Now); is && d.Status.ObservedGeneration >= d.Generation {
		return "the " + kind + " got stuck and is taken back: " + why, true
	}
	if v.Now.After(s.At.Add(s.Limit)) {
		return fmt.Sprintf("the %s took more than %s and is taken back: %s", kind, s.Limit, describe(d)), true
	}
	return "", false
}

// restarting says whether a restart of this package is still on its way through the pods. The controller, which does it, asks
// no budget when it takes them away one by one.
func restarting(d *appsv1.Deployment) bool { return d.Annotations[restartUndo] != "" && !rolledOut(d) }

// surging says whether the Deployment has one replica more because of a surge. A mark that was left behind, on a
// Deployment with any other number of replicas, counts for nothing.
func surging(d *appsv1.Deployment) bool {
	before, err := strconv.ParseInt(d.Annotations[surgeReplicas], 10, 32)
	return err == nil && replicasOf(d) == int32(before)+1
}

// describe says in words how far the Deployment is.
func describe(d *appsv1.Deployment) string {
	want, s := replicasOf(d), d.Status
	switch {
	case s.ObservedGeneration < d.Generation:
		return "its controller has not seen the last change yet"
	case surging(d):
		return fmt.Sprintf("it has one replica more than %s until a pod has gone; %d of %d are available",
			d.Annotations[surgeReplicas], s.AvailableReplicas, want)
	case !rolledOut(d):
		return fmt.Sprintf("a rollout is in progress: %d of %d pods are of the newest template, %d are there",
			s.UpdatedReplicas, want, s.Replicas)
	}
	return fmt.Sprintf("%d of %d pods are available", s.AvailableReplicas, want)
}
