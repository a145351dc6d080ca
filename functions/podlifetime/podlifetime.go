// Package podlifetime is the strategy PodLifeTime: it moves pods that meet all given limits of their age, state, condition, and
// exit codes.
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

// Args are the arguments of the strategy. A pod moves if it meets all given arguments. At least one of MaxPodLifeTimeSeconds,
// States, Conditions, and ExitCodes is required.
type Args struct {
	candidate.Selection
	OwnerKinds OwnerKinds `json:"ownerKinds,omitzero"`
	// MaxPodLifeTimeSeconds is the greatest age of a pod in seconds. The pod moves one second later. nil means no limit.
	MaxPodLifeTimeSeconds *uint `json:"maxPodLifeTimeSeconds,omitzero"`
	// States are phases, pod reasons, and reasons of waiting or terminated containers. The pod must be in one of them. Empty
	// means any.
	States []string `json:"states,omitzero"`
	// Conditions are alternatives: a condition of the pod must match one of them. Empty means any.
	Conditions []Condition `json:"conditions,omitzero"`
	// ExitCodes are alternatives: a container must be terminated with one of them. Empty means any.
	ExitCodes []int32 `json:"exitCodes,omitzero"`
	// IncludingInitContainers applies States and ExitCodes to init containers too.
	IncludingInitContainers bool `json:"includingInitContainers,omitzero"`
	// IncludingEphemeralContainers applies States to ephemeral containers too. ExitCodes never applies to them.
	IncludingEphemeralContainers bool `json:"includingEphemeralContainers,omitzero"`
}

// OwnerKinds selects pods by the kinds of their owners, such as ReplicaSet. The zero value selects all pods.
type OwnerKinds struct {
	// Include requires an owner of one of these kinds, and Exclude forbids them. At most one of the two may be set.
	Include []string `json:"include,omitzero"`
	Exclude []string `json:"exclude,omitzero"`
}

// Condition matches a condition of a pod. All given fields must match the same condition. It must have at least one field.
type Condition struct {
	Type   string `json:"type,omitzero"`
	Status string `json:"status,omitzero"`
	Reason string `json:"reason,omitzero"`
	// MinTimeSinceLastTransitionSeconds is the minimum time since the condition changed its status. nil means any, even
	// unknown.
	MinTimeSinceLastTransitionSeconds *uint `json:"minTimeSinceLastTransitionSeconds,omitzero"`
}

// states returns the valid values of [Args.States].
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

// Due returns when the unchanged pod becomes old enough and has been in its condition for long enough. at is the zero time if
// the arguments limit neither. It implements [policy.Timed].
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

// state returns the first of States that is the phase or reason of the pod or the reason of a container. in is also true if
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

// ended reports whether a container is terminated with one of ExitCodes, or ExitCodes is empty.
func (a Args) ended(pod *corev1.Pod) bool {
	_, ended := a.exitCode(pod)
	return ended || len(a.ExitCodes) == 0
}

func (a Args) exitCode(pod *corev1.Pod) (code int32, found bool) {
	return candidate.Containers{Init: a.IncludingInitContainers}.ExitCode(pod, a.ExitCodes)
}

// condition returns the condition of the pod that matches first, and when it does. met is nil if there are no Conditions.
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

// met returns when the unchanged condition matches c.
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
