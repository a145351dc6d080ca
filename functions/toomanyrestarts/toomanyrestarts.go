// Package toomanyrestarts is the strategy RemovePodsHavingTooManyRestarts: it moves pods whose containers were restarted too
// often, because their node may be the cause.
package toomanyrestarts

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

// Args are the arguments of the strategy. PodRestartThreshold is required.
type Args struct {
	candidate.Selection
	// PodRestartThreshold moves a pod whose containers have this many restarts in total. At least 1.
	PodRestartThreshold int32 `json:"podRestartThreshold,omitzero"`
	// IncludingInitContainers applies the threshold and States to init containers too.
	IncludingInitContainers bool `json:"includingInitContainers,omitzero"`
	// States selects pods in the phase Running, or with a container that waits with the reason CrashLoopBackOff. Empty means
	// all.
	States []string `json:"states,omitzero"`
}

// states returns the valid values of [Args.States].
func states() []string { return []string{string(corev1.PodRunning), "CrashLoopBackOff"} }

// Validate returns an error for each wrong field, a *[policy.FieldError].
func (a Args) Validate() error {
	var found policy.Findings
	found.Join("", a.Selection.Validate())
	if a.PodRestartThreshold < 1 {
		found.Add("podRestartThreshold", a.PodRestartThreshold, "must be at least 1", "100 is usual")
	}
	for i, state := range a.States {
		if !slices.Contains(states(), state) {
			found.Add("states"+policy.Item(i), state, "is not known", "want "+strings.Join(states(), " or "))
		}
	}
	return found.Err()
}

// Decide returns the pod if it should move. Its weight is the number of its restarts.
func (a Args) Decide(scope schemas.PodScope) []schemas.Intent {
	intents := candidate.AnswerWhenDue(scope, a, a.reason)
	for i := range intents {
		intents[i].Weight = a.containers().Restarts(&scope.Pod.Pod)
	}
	return intents
}

// Due reports whether the pod should move. at is always the zero time, because the answer does not depend on time.
func (a Args) Due(pod *corev1.Pod) (at time.Time, ever bool) {
	return time.Time{}, a.containers().Restarts(pod) >= int64(a.PodRestartThreshold) && pod.DeletionTimestamp == nil &&
		a.inState(pod) && a.Has(pod)
}

func (a Args) containers() candidate.Containers {
	return candidate.Containers{Init: a.IncludingInitContainers}
}

func (a Args) inState(pod *corev1.Pod) bool {
	if len(a.States) == 0 || slices.Contains(a.States, string(pod.Status.Phase)) {
		return true
	}
	_, in := a.containers().Reason(pod, a.States)
	return in
}

func (a Args) reason(pod *corev1.Pod, _ time.Time) string {
	restarts, times := a.containers().Restarts(pod), "times"
	if restarts == 1 {
		times = "time"
	}
	return fmt.Sprintf("restarted %d %s, the threshold is %d", restarts, times, a.PodRestartThreshold)
}
