// Package failedpods is the strategy RemoveFailedPods: it removes failed pods some time after their creation.
package failedpods

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

// Args are the arguments of the strategy. The zero value removes every failed pod at once. [Default] waits an hour.
type Args struct {
	candidate.Selection
	// ExcludeOwnerKinds are kinds of owners, such as Job, whose pods are not removed.
	ExcludeOwnerKinds []string `json:"excludeOwnerKinds,omitzero"`
	// MinPodLifetimeSeconds is the minimum age of a pod, counted from its creation. It is always encoded, because 0 is not the
	// default.
	MinPodLifetimeSeconds uint `json:"minPodLifetimeSeconds"`
	// Reasons selects pods whose status.reason, or the reason of a waiting or terminated container, is one of these. Empty
	// means all.
	Reasons []string `json:"reasons,omitzero"`
	// ExitCodes selects pods with a container that was terminated with one of these. Empty means all.
	ExitCodes []int32 `json:"exitCodes,omitzero"`
	// IncludingInitContainers applies Reasons and ExitCodes to init containers too.
	IncludingInitContainers bool `json:"includingInitContainers,omitzero"`
}

// Default returns the default arguments.
func Default() Args { return Args{MinPodLifetimeSeconds: 3600} }

// Validate returns an error for each wrong field, a *[policy.FieldError].
func (a Args) Validate() error {
	var found policy.Findings
	found.Join("", a.Selection.Validate())
	found.Join("excludeOwnerKinds", candidate.ValidateKinds(a.ExcludeOwnerKinds))
	for i, reason := range a.Reasons {
		if reason == "" {
			found.Add("reasons"+policy.Item(i), reason, "is empty", "write a reason, such as OOMKilled")
		}
	}
	return found.Err()
}

// Decide returns the pod if it should be removed.
func (a Args) Decide(scope schemas.PodScope) []schemas.Intent {
	return candidate.AnswerWhenDue(scope, a, a.reason)
}

// Due returns when the unchanged pod is old enough. ever is false if it has not failed, or if the arguments do not select it.
func (a Args) Due(pod *corev1.Pod) (at time.Time, ever bool) {
	if pod.Status.Phase != corev1.PodFailed || pod.DeletionTimestamp != nil ||
		candidate.Owned(pod, a.ExcludeOwnerKinds) || !a.failedAsWanted(pod) || !a.Has(pod) {
		return time.Time{}, false
	}
	return candidate.AtAge(pod, a.MinPodLifetimeSeconds)
}

func (a Args) containers() candidate.Containers {
	return candidate.Containers{Init: a.IncludingInitContainers}
}

// failedAsWanted reports whether the pod failed for one of Reasons and with one of ExitCodes.
func (a Args) failedAsWanted(pod *corev1.Pod) bool {
	_, reason := a.wantedReason(pod)
	_, code := a.containers().ExitCode(pod, a.ExitCodes)
	return (reason || len(a.Reasons) == 0) && (code || len(a.ExitCodes) == 0)
}

// wantedReason returns the first reason of the pod that is in Reasons: the pod's, then its containers'.
func (a Args) wantedReason(pod *corev1.Pod) (reason string, found bool) {
	if slices.Contains(a.Reasons, pod.Status.Reason) {
		return pod.Status.Reason, true
	}
	return a.containers().Reason(pod, a.Reasons)
}

// reason returns text such as "failed: OOMKilled, exit code 137; 2h old". It prefers values from Reasons and ExitCodes.
func (a Args) reason(pod *corev1.Pod, now time.Time) string {
	why, known := a.wantedReason(pod)
	code, ended := a.containers().ExitCode(pod, a.ExitCodes)
	if len(a.Reasons) == 0 && len(a.ExitCodes) == 0 {
		why, code, ended = cause(pod)
		known = why != ""
	}
	var because []string
	if known {
		because = append(because, why)
	}
	if ended {
		because = append(because, fmt.Sprintf("exit code %d", code))
	}
	if len(because) == 0 {
		return "failed; " + candidate.Age(pod, now) + " old"
	}
	return "failed: " + strings.Join(because, ", ") + "; " + candidate.Age(pod, now) + " old"
}

// cause returns why the pod failed: the reason of the pod, or of its first container that did not succeed, init containers last.
func cause(pod *corev1.Pod) (reason string, code int32, ended bool) {
	if pod.Status.Reason != "" {
		return pod.Status.Reason, 0, false
	}
	for s := range (candidate.Containers{Init: true}).Of(pod) {
		if t := s.State.Terminated; t != nil && t.ExitCode != 0 {
			return t.Reason, t.ExitCode, true
		}
	}
	return "", 0, false
}
