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
	// moment is the extra time for controllers after a deadline.
	moment = 30 * time.Second
	day    = 24 * time.Hour
)

// phase is the progress of a move.
type phase string

const (
	planned    phase = move.Planned // the first change was not made, or its answer was lost
	waiting    phase = "Waiting"    // for the replacement
	returning  phase = "Returning"  // of a surge: the replicas are restored, and the pod goes
	takingBack phase = "TakingBack" // for the reason in Refusal
)

// state is the part of the ledger record that the method reads.
type state struct {
	Phase      phase             `json:"phase"`
	Pod        schemas.PodRef    `json:"pod"`
	Deployment schemas.ObjectRef `json:"deployment"`
	// Method is restart or surge; Policy is the policy of the plan. Its AgainAlone is stored beside it, because no policy file
	// has it.
	Method     schemas.Method `json:"method"`
	Policy     policy.Restart `json:"policy"`
	AgainAlone bool           `json:"againAlone,omitempty"`
	// Version is the version of the Deployment for the first patch.
	Version string `json:"version"`
	// At is the time of the plan. It identifies the move on the Deployment.
	At time.Time `json:"at"`
	// Limit is the time after which the move is undone.
	Limit time.Duration `json:"limit"`
	// Replicas is the number of pods that the Deployment wants.
	Replicas int32 `json:"replicas"`
	// Blocked is the reason why the API server would not evict the pod of a surge at the last question.
	Blocked string `json:"blocked,omitempty"`
	// Refusal is the reason for undoing the move, and Back the time since when.
	Refusal *move.Refusal `json:"refusal,omitempty"`
	Back    time.Time     `json:"back,omitzero"`

	// Annotation is the template annotation that a rollout restart changes, and Old its previous value, or nil.
	Annotation string  `json:"annotation,omitempty"`
	Old        *string `json:"old,omitempty"`
	// Template is a digest of the template without the annotation, to detect a change by another client.
	Template string `json:"template,omitempty"`
}

// value identifies the move: the RFC 3339 time in the annotations.
func (s state) value() string { return s.At.Format(time.RFC3339Nano) }

// words describes the first change.
func (s state) words() string {
	if s.Method == schemas.MethodSurge {
		return "one replica more for " + s.Deployment.String()
	}
	return "rollout restart of " + s.Deployment.String()
}

// takeBack returns the progress of a move that the next step undoes.
func (s state) takeBack(why *move.Refusal, now time.Time) move.Progress {
	s.Phase, s.Refusal, s.Back = takingBack, why, now.UTC().Round(0)
	return working(s, soon)
}

// fresh returns the state of a new move.
func fresh(c candidate) state {
	d := c.Deployment
	s := state{
		Phase:      planned,
		Pod:        schemas.PodRef{Namespace: c.Pod.Namespace, Name: c.Pod.Name, UID: c.Pod.UID},
		Deployment: schemas.ObjectRef{Kind: "Deployment", Namespace: d.Namespace, Name: d.Name, UID: d.UID},
		Method:     c.Method,
		Policy:     c.Policy,
		AgainAlone: c.Policy.AgainAlone,
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
		if old == s.value() { // only a new value causes a rollout
			s.At = s.At.Add(time.Nanosecond)
		}
	}
	s.Template = digest(d.Spec.Template, s.Annotation)
	return s
}

// limit returns how long the move of a candidate may take. If the policy has no limit, it is the progress deadline for
// each replaced pod, plus a moment for the controller to report it first.
func limit(c candidate) time.Duration {
	if c.Policy.Timeout > 0 {
		return c.Policy.Timeout
	}
	progress := defaultProgress
	if seconds := c.Deployment.Spec.ProgressDeadlineSeconds; seconds != nil {
		progress = min(time.Duration(*seconds)*time.Second, day) // the largest number means no deadline
	}
	if c.Method == schemas.MethodSurge {
		return progress
	}
	return progress*time.Duration(min(replicasOf(c.Deployment), 1000)) + moment
}

// digest returns the same value for templates that differ only in that annotation.
func digest(template corev1.PodTemplateSpec, annotation string) string {
	template = *template.DeepCopy()
	delete(template.Annotations, annotation)
	text, err := json.Marshal(template)
	if err != nil { // such a template cannot come from the API server
		return err.Error()
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

func (s state) encode() move.State { return move.Encode(s) }

func decode(text move.State) (state, error) {
	s, err := move.Decode[state](text)
	s.Policy.AgainAlone = s.AgainAlone
	return s, err
}

// wentBefore returns the end of a move that never began, because the pod left by itself.
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

// giveUp decides to undo a move. The reason is saved before the change, so that it is known afterwards.
func giveUp(why string) decision {
	return decision{GiveUp: move.Deferred(schemas.ReasonRestartUnhealthy, "%s", why)}
}

// ending returns the end of a move according to the pod. words explain a pod that stays.
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

// rolledOut reports whether every pod of the Deployment has the newest template, and their number is right, according
// to its controller.
func rolledOut(d *appsv1.Deployment) bool {
	want, s := replicasOf(d), d.Status
	return s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == want && s.Replicas == want
}

// complete reports whether the Deployment is rolled out and all of its pods are available.
func complete(d *appsv1.Deployment) bool {
	return rolledOut(d) && d.Status.AvailableReplicas == replicasOf(d) && d.Status.UnavailableReplicas == 0
}

// stoppedNone reports whether the rollout has stopped no pod yet: there are as many pods of older templates as desired.
func stoppedNone(d *appsv1.Deployment) bool {
	s := d.Status
	return s.ObservedGeneration < d.Generation || s.Replicas-s.UpdatedReplicas >= replicasOf(d)
}

// exceeded is the reason of the condition Progressing of a rollout that took too long.
const exceeded = "ProgressDeadlineExceeded"

// stuck reports whether the controller has given up the newest rollout that it knows, or has been unable to create a
// pod for a while, and why.
func stuck(d *appsv1.Deployment, now time.Time) (string, bool) {
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentProgressing && (c.Status == corev1.ConditionFalse || c.Reason == exceeded) ||
			c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue && now.After(c.LastTransitionTime.Add(moment)) {
			return fmt.Sprintf("%s is %s, %s: %s", c.Type, c.Status, c.Reason, c.Message), true
		}
	}
	return "", false
}

// overdue returns the reason for undoing a move of that kind: it got stuck, or takes too long.
func (s state) overdue(v view, kind string) (why string, is bool) {
	d := v.Deployment
	if why, is := stuck(d, v.Now); is && d.Status.ObservedGeneration >= d.Generation {
		return "the " + kind + " got stuck and is taken back: " + why, true
	}
	if v.Now.After(s.At.Add(s.Limit)) {
		why = fmt.Sprintf("the %s took more than %s and is taken back: %s", kind, s.Limit, describe(d))
		if s.Blocked != "" && complete(d) {
			why += "; the API server did not allow the eviction of the pod: " + s.Blocked
		}
		return why, true
	}
	return "", false
}

// restarting reports whether a restart by this package is still in progress. The controller removes its pods one by one
// and ignores budgets.
func restarting(d *appsv1.Deployment) bool { return d.Annotations[restartUndo] != "" && !rolledOut(d) }

// surging reports whether the Deployment has one replica more because of a surge. It ignores a leftover annotation on a
// Deployment with any other number of replicas.
func surging(d *appsv1.Deployment) bool {
	before, err := strconv.ParseInt(d.Annotations[surgeReplicas], 10, 32)
	return err == nil && replicasOf(d) == int32(before)+1
}

// describe describes the progress of the Deployment in words.
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
