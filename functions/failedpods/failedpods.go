// Package failedpods is the strategy RemoveFailedPods: pods that have failed should go some time after their creation.
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

// Args are the arguments of the strategy. The zero value removes every failed pod at once; [Default] gives it an hour.
type Args struct {
	candidate.Selection
	// ExcludeOwnerKinds are kinds of owners, such as Job, whose pods are kept.
	ExcludeOwnerKinds []string `json:"excludeOwnerKinds,omitzero"`
	// MinPodLifetimeSeconds is how old a pod is at least when it is removed, counted from its creation. It is written even
	// when it is 0, which is not the default.
	MinPodLifetimeSeconds uint `json:"minPodLifetimeSeconds"`
	// Reasons limits the strategy to pods with one of these as their status.reason, or as the reason why one of their
	// containers waits or was terminated. Empty: all.
	Reasons []string `json:"reasons,omitzero"`
	// ExitCodes limits the strategy to pods with a container that was terminated with one of these. Empty: all.
	ExitCodes []int32 `json:"exitCodes,omitzero"`
	// IncludingInitContainers makes init containers count for Reasons and ExitCodes.
	IncludingInitContainers bool `json:"includingInitContainers,omitzero"`
}

// Default is the arguments before a policy says otherwise.
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

// Decide returns the pod if it should go.
func (a Args) Decide(scope schemas.PodScope) []schemas.Intent {
	return candidate.AnswerWhenDue(scope, a, a.reason)
}

// Due returns when the pod, as it is now, is old enough to go. ever is false when it has not failed, or the arguments leave it
// out.
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

// wantedReason is the first of the pod's reasons that is one of those asked for: its own, then its containers'.
func (a Args) wantedReason(pod *corev1.Pod) (reason string, found bool) {
	if slices.Contains(a.Reasons, pod.Status.Reason) {
		return pod.Status.Reason, true
	}
	return a.containers().Reason(pod, a.Reasons)
}

// reason is "failed: OOMKilled, exit code 137; 2h old". It names Reasons and ExitCodes first, then the cause on the pod.
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

// cause is why the pod failed: the reason of the pod itself, or how the first of its containers ended that did not end
// well, init containers after the others.
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
