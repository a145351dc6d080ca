// Package podlifetime is the strategy PodLifeTime: pods that have lived too long should move, or pods in a state, a
// condition, or with an exit code that they should not stay in.
package podlifetime

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/functions/candidate"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// Args are the arguments of the strategy. A pod moves when all that are given agree. At least one of
// MaxPodLifeTimeSeconds, States, Conditions and ExitCodes must be given.
type Args struct {
	candidate.Selection
	OwnerKinds OwnerKinds `json:"ownerKinds,omitzero"`
	// MaxPodLifeTimeSeconds is the age in whole seconds that a pod may have; it moves a second later. nil: any age is too old.
	MaxPodLifeTimeSeconds *uint `json:"maxPodLifeTimeSeconds,omitzero"`
	// States are phases, reasons of pods, and reasons why a container waits or is terminated; one must be the pod's.
	// Empty: any.
	States []string `json:"states,omitzero"`
	// Conditions are such that one must be met by one of the pod's conditions. Empty: none needs to be.
	Conditions []Condition `json:"conditions,omitzero"`
	// ExitCodes are such that a container must be terminated now with one of them. Empty: none needs to be.
	ExitCodes []int32 `json:"exitCodes,omitzero"`
	// IncludingInitContainers makes init containers count for States and ExitCodes.
	IncludingInitContainers bool `json:"includingInitContainers,omitzero"`
	// IncludingEphemeralContainers makes ephemeral containers count for States. They never count for ExitCodes.
	IncludingEphemeralContainers bool `json:"includingEphemeralContainers,omitzero"`
}

// OwnerKinds limits the strategy to pods by the kinds of their owners, such as ReplicaSet. The zero value is all pods.
type OwnerKinds struct {
	// Include are kinds of which one owner must be, Exclude kinds of which no owner may be. At most one may be used.
	Include []string `json:"include,omitzero"`
	Exclude []string `json:"exclude,omitzero"`
}

// Condition describes a condition of a pod. All fields that are given must be true of the same condition. At least one
// must be given.
type Condition struct {
	Type   string `json:"type,omitzero"`
	Status string `json:"status,omitzero"`
	Reason string `json:"reason,omitzero"`
	// MinTimeSinceLastTransitionSeconds is how long ago the condition must have changed its status. nil: no matter when,
	// and whether that is known.
	MinTimeSinceLastTransitionSeconds *uint `json:"minTimeSinceLastTransitionSeconds,omitzero"`
}

// states are the valid values of [Args.States].
func states() []string {
	return []string{
		// phases
		string(corev1.PodRunning), string(corev1.PodPending), string(corev1.PodSucceeded), string(corev1.PodFailed),
		string(corev1.PodUnknown),
		// reasons of a pod
		"NodeAffinity", "NodeLost", "Shutdown", "UnexpectedAdmissionError",
		// why a container waits
		"PodInitializing", "ContainerCreating", "ImagePullBackOff", "CrashLoopBackOff", "CreateContainerConfigError",
		"ErrImagePull", "CreateContainerError", "InvalidImageName",
		// why a container is terminated
		"OOMKilled", "Error", "Completed", "DeadlineExceeded", "Evicted", "ContainerCannotRun", "StartError",
	}
}

// Validate returns an error for each wrong field, a *[policy.FieldError].
func (a Args) Validate() error {
	var found policy.Findings
	found.Join("", a.Selection.Validate())
	found.Join("ownerKinds", a.OwnerKinds.validate())
	if a.MaxPodLifeTimeSeconds == nil && len(a.States) == 0 && len(a.Conditions) == 0 && len(a.ExitCodes) == 0 {
		found.Add("", nil, "would move every pod",
			"give at least one of maxPodLifeTimeSeconds, states, conditions and exitCodes")
	}
	for i, state := range a.States {
		if !slices.Contains(states(), state) {
			found.Add("states"+policy.Item(i), state, "is not known", "want one of "+strings.Join(states(), ", "))
		}
	}
	for i, c := range a.Conditions {
		found.Join("conditions"+policy.Item(i), c.validate())
	}
	return found.Err()
}

func (o OwnerKinds) validate() error {
	var found policy.Findings
	if len(o.Include) > 0 && len(o.Exclude) > 0 {
		found.Add("", nil, "has both include and exclude", "keep one")
	}
	found.Join("include", candidate.ValidateKinds(o.Include))
	found.Join("exclude", candidate.ValidateKinds(o.Exclude))
	return found.Err()
}

func (c Condition) validate() error {
	var found policy.Findings
	if c == (Condition{}) {
		found.Add("", nil, "would be met by every condition",
			"give at least one of type, status, reason and minTimeSinceLastTransitionSeconds")
	}
	switch corev1.ConditionStatus(c.Status) {
	case "", corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown:
	default:
		found.Add("status", c.Status, "is not the status of a condition", "want True, False or Unknown")
	}
	return found.Err()
}

// has reports whether the owners of the pod are such kinds.
func (o OwnerKinds) has(pod *corev1.Pod) bool {
	if len(o.Include) > 0 {
		return candidate.Owned(pod, o.Include)
	}
	return !candidate.Owned(pod, o.Exclude)
}

// Decide returns the pod if it should move.
func (a Args) Decide(scope schemas.PodScope) []schemas.Intent {
	return candidate.AnswerWhenDue(scope, a, a.reason)
}

// Due returns when the pod, as it is now, is old enough and in its condition for long enough. at is the zero time when the
// arguments limit neither. It implements [policy.Timed].
func (a Args) Due(pod *corev1.Pod) (at time.Time, ever bool) {
	if pod.DeletionTimestamp != nil || !a.OwnerKinds.has(pod) || !a.ended(pod) || !a.Has(pod) {
		return time.Time{}, false
	}
	_, inState := a.state(pod)
	met, _, inCondition := a.condition(pod)
	if !inState || !inCondition {
		return time.Time{}, false
	}
	if a.MaxPodLifeTimeSeconds == nil {
		return met, true
	}
	at, ever = candidate.AtAge(pod, *a.MaxPodLifeTimeSeconds)
	if !ever {
		return time.Time{}, false
	}
	at = at.Add(time.Second)
	if met.After(at) {
		at = met
	}
	return at, true
}

// state is the first of States that is the phase of the pod, its reason, or the reason of a container. in is also true when
// there are no States.
func (a Args) state(pod *corev1.Pod) (state string, in bool) {
	switch phase := string(pod.Status.Phase); {
	case len(a.States) == 0:
		return "", true
	case slices.Contains(a.States, phase):
		return phase, true
	case slices.Contains(a.States, pod.Status.Reason):
		return pod.Status.Reason, true
	}
	count := candidate.Containers{Init: a.IncludingInitContainers, Ephemeral: a.IncludingEphemeralContainers}
	return count.Reason(pod, a.States)
}

// ended reports whether a container is terminated with one of ExitCodes, or there are none.
func (a Args) ended(pod *corev1.Pod) bool {
	_, ended := a.exitCode(pod)
	return ended || len(a.ExitCodes) == 0
}

func (a Args) exitCode(pod *corev1.Pod) (code int32, found bool) {
	return candidate.Containers{Init: a.IncludingInitContainers}.ExitCode(pod, a.ExitCodes)
}

// condition returns the first condition of the pod that meets one of Conditions, and when it does. met is nil when there are no
// Conditions.
func (a Args) condition(pod *corev1.Pod) (at time.Time, met *corev1.PodCondition, ever bool) {
	for i := range a.Conditions {
		for j := range pod.Status.Conditions {
			c := &pod.Status.Conditions[j]
			when, matches := a.Conditions[i].met(c)
			if matches && (met == nil || when.Before(at)) {
				at, met = when, c
			}
		}
	}
	return at, met, met != nil || len(a.Conditions) == 0
}

// met returns when the condition is as c describes it, if it does not change.
func (c Condition) met(by *corev1.PodCondition) (at time.Time, ever bool) {
	if c.Type != "" && c.Type != string(by.Type) || c.Status != "" && c.Status != string(by.Status) ||
		c.Reason != "" && c.Reason != by.Reason {
		return time.Time{}, false
	}
	if c.MinTimeSinceLastTransitionSeconds == nil {
		return time.Time{}, true
	}
	return candidate.After(by.LastTransitionTime.Time, *c.MinTimeSinceLastTransitionSeconds)
}

// reason is "142h old, the limit is 24h; in state CrashLoopBackOff".
func (a Args) reason(pod *corev1.Pod, now time.Time) string {
	var because []string
	if most := a.MaxPodLifeTimeSeconds; most != nil {
		allowed := candidate.Text(time.Duration(*most) * time.Second)
		because = append(because, candidate.Age(pod, now)+" old, the limit is "+allowed)
	}
	if state, _ := a.state(pod); state != "" {
		because = append(because, "in state "+state)
	}
	if _, c, _ := a.condition(pod); c != nil {
		because = append(because, conditionText(c, now))
	}
	if code, ended := a.exitCode(pod); ended {
		because = append(because, fmt.Sprintf("a container ended with exit code %d", code))
	}
	return strings.Join(because, "; ")
}

// conditionText is "condition Ready is False (ContainersNotReady) for 10m".
func conditionText(c *corev1.PodCondition, now time.Time) string {
	text := fmt.Sprintf("condition %s is %s", c.Type, c.Status)
	if c.Reason != "" {
		text += " (" + c.Reason + ")"
	}
	if since := c.LastTransitionTime; !since.IsZero() {
		text += " for " + candidate.Text(now.Sub(since.Time))
	}
	return text
}
