// Package podlifetime is the strategy PodLifeTime: pods that have lived too long should move, or that have been in a
// state, a condition or an end that somebody does not want them to stay in.
package podlifetime

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rehome-dev/rehome/functions/lifecycle"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// Decide returns the pod if it should move.
func (a Args) Decide(scope schemas.PodScope) []schemas.Intent {
	p := &scope.Pod
	if len(p.Protected) > 0 {
		return nil
	}
	if at, ever := a.Due(&p.Pod); !ever || scope.Now.Before(at) {
		return nil
	}
	return []schemas.Intent{p.Move(a.reason(&p.Pod, scope.Now))}
}

// Due is when the pod, as it is now, is old enough to move, and in its condition for long enough. at is the zero time when
// neither is asked for.
func (a Args) Due(pod *corev1.Pod) (at time.Time, ever bool) {
	if pod.DeletionTimestamp != nil || !a.Namespaces.Has(pod.Namespace) || !a.OwnerKinds.has(pod) || !a.ended(pod) {
		return time.Time{}, false
	}
	if _, in := a.state(pod); !in || !policy.Selects(a.LabelSelector).Matches(labels.Set(pod.Labels)) {
		return time.Time{}, false
	}
	old, ever := a.old(pod)
	if !ever {
		return time.Time{}, false
	}
	met, _, ever := a.condition(pod)
	if !ever {
		return time.Time{}, false
	}
	if met.After(old) {
		return met, true
	}
	return old, true
}

// old is when the pod is older than it may be: a second after it has the age that it may have.
func (a Args) old(pod *corev1.Pod) (at time.Time, ever bool) {
	if a.MaxPodLifeTimeSeconds == nil {
		return time.Time{}, true
	}
	at, ever = lifecycle.AtAge(pod, *a.MaxPodLifeTimeSeconds)
	if !ever {
		return time.Time{}, false
	}
	return at.Add(time.Second), true
}

// state is the first of what is true of the pod that is one of the states asked for: its phase, its reason, then those of
// its containers. in is also true when no state is asked for.
func (a Args) state(pod *corev1.Pod) (state string, in bool) {
	switch phase := string(pod.Status.Phase); {
	case len(a.States) == 0:
		return "", true
	case slices.Contains(a.States, phase):
		return phase, true
	case slices.Contains(a.States, pod.Status.Reason):
		return pod.Status.Reason, true
	}
	count := lifecycle.Containers{Init: a.IncludingInitContainers, Ephemeral: a.IncludingEphemeralContainers}
	return count.Reason(pod, a.States)
}

// ended says whether a container is terminated with one of the exit codes, or none is asked for.
func (a Args) ended(pod *corev1.Pod) bool {
	_, ended := a.exitCode(pod)
	return ended || len(a.ExitCodes) == 0
}

func (a Args) exitCode(pod *corev1.Pod) (code int32, found bool) {
	return lifecycle.Containers{Init: a.IncludingInitContainers}.ExitCode(pod, a.ExitCodes)
}

// condition is when the first of the pod's conditions is what one of the conditions asked for describes, and which one
// that is: nil when none is asked for.
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

// met is when the condition is what c describes, if it stays as it is. ever is false when it is not.
func (c Condition) met(by *corev1.PodCondition) (at time.Time, ever bool) {
	if c.Type != "" && c.Type != string(by.Type) || c.Status != "" && c.Status != string(by.Status) ||
		c.Reason != "" && c.Reason != by.Reason {
		return time.Time{}, false
	}
	if c.MinTimeSinceLastTransitionSeconds == nil {
		return time.Time{}, true
	}
	return lifecycle.After(by.LastTransitionTime.Time, *c.MinTimeSinceLastTransitionSeconds)
}

// reason is such as "142h old, the limit is 24h; in state CrashLoopBackOff".
func (a Args) reason(pod *corev1.Pod, now time.Time) string {
	var because []string
	if most := a.MaxPodLifeTimeSeconds; most != nil {
		allowed := lifecycle.Text(time.Duration(*most) * time.Second)
		because = append(because, lifecycle.Age(pod, now)+" old, the limit is "+allowed)
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

// conditionText is such as "condition Ready is False (ContainersNotReady) for 10m".
func conditionText(c *corev1.PodCondition, now time.Time) string {
	text := fmt.Sprintf("condition %s is %s", c.Type, c.Status)
	if c.Reason != "" {
		text += " (" + c.Reason + ")"
	}
	if since := c.LastTransitionTime; !since.IsZero() {
		text += " for " + lifecycle.Text(now.Sub(since.Time))
	}
	return text
}
