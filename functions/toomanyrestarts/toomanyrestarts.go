// Package toomanyrestarts is the strategy RemovePodsHavingTooManyRestarts: pods whose containers were restarted too
// often should move, since the fault may lie with their node.
package toomanyrestarts

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rehome-dev/rehome/functions/lifecycle"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// Args are the arguments of the strategy. PodRestartThreshold has no default and must be given.
type Args struct {
	Namespaces policy.Namespaces `json:"namespaces,omitzero"`
	// LabelSelector limits the strategy to the pods that it selects. nil: all.
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitzero"`
	// PodRestartThreshold is the number of restarts from which on a pod is to move, over all its containers together. At
	// least 1.
	PodRestartThreshold int32 `json:"podRestartThreshold,omitzero"`
	// IncludingInitContainers makes init containers count, for the restarts and for States.
	IncludingInitContainers bool `json:"includingInitContainers,omitzero"`
	// States limits the strategy to pods in one of these: Running, which is a phase, or CrashLoopBackOff, for which a
	// container waits. Empty: all.
	States []string `json:"states,omitzero"`
}

// states are those that [Args.States] may list.
func states() []string { return []string{string(corev1.PodRunning), "CrashLoopBackOff"} }

// Validate says what is wrong with the arguments; each error in it is a *[policy.FieldError].
func (a Args) Validate() error {
	var found policy.Findings
	found.Join("namespaces", a.Namespaces.Validate())
	found.Join("labelSelector", policy.ValidateSelector(a.LabelSelector))
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

// Decide returns the pod if it should move.
func (a Args) Decide(scope schemas.PodScope) []schemas.Intent {
	p := &scope.Pod
	if len(p.Protected) > 0 {
		return nil
	}
	if _, ever := a.Due(&p.Pod); !ever {
		return nil
	}
	return []schemas.Intent{p.Move(a.reason(&p.Pod))}
}

// Due says whether the pod is to move, which does not depend on the time: at is the zero time.
func (a Args) Due(pod *corev1.Pod) (at time.Time, ever bool) {
	due := a.containers().Restarts(pod) >= int64(a.PodRestartThreshold) && pod.DeletionTimestamp == nil &&
		a.Namespaces.Has(pod.Namespace) && a.inState(pod) && policy.Selects(a.LabelSelector).Matches(labels.Set(pod.Labels))
	return time.Time{}, due
}

func (a Args) containers() lifecycle.Containers {
	return lifecycle.Containers{Init: a.IncludingInitContainers}
}

func (a Args) inState(pod *corev1.Pod) bool {
	if len(a.States) == 0 || slices.Contains(a.States, string(pod.Status.Phase)) {
		return true
	}
	_, waits := a.containers().Waits(pod, a.States)
	return waits
}

func (a Args) reason(pod *corev1.Pod) string {
	restarts, times := a.containers().Restarts(pod), "times"
	if restarts == 1 {
		times = "time"
	}
	return fmt.Sprintf("restarted %d %s, the threshold is %d", restarts, times, a.PodRestartThreshold)
}
