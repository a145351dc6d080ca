package evictionrequest

import (
	"fmt"
	"strings"
	"time"

	lifecycle "k8s.io/api/lifecycle/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// standing is where a request is.
type standing int

const (
	silent  standing = iota // there is no answer
	working                 // a responder works on it
	evicted                 // the pod was evicted
	failed                  // no responder works on it any more
)

// judge reads where a request is from its conditions and from the Evictions of its pod, and describes it. An Eviction that
// ended without success is no answer: another one may follow, and the request has a condition when none does.
func judge(r *lifecycle.EvictionRequest, evictions []lifecycle.Eviction) (standing, string) {
	if c := isTrue(r.Status.Conditions, lifecycle.EvictionConditionTargetEvicted); c != nil {
		return evicted, words(c)
	}
	if c := isTrue(r.Status.Conditions, lifecycle.EvictionConditionFailed); c != nil {
		return failed, words(c)
	}
	for _, e := range evictions {
		if c := isTrue(e.Status.Conditions, lifecycle.EvictionConditionTargetEvicted); c != nil {
			return evicted, words(c)
		}
	}
	for _, e := range evictions {
		if isTrue(e.Status.Conditions, lifecycle.EvictionConditionFailed) == nil {
			return working, responder(e)
		}
	}
	if len(r.Status.Conditions) > 0 {
		return working, "accepted"
	}
	return silent, "there is no answer yet"
}

func isTrue(conditions []metav1.Condition, kind lifecycle.EvictionConditionType) *metav1.Condition {
	if c := meta.FindStatusCondition(conditions, string(kind)); c != nil && c.Status == metav1.ConditionTrue {
		return c
	}
	return nil
}

// words are the reason and the message of a condition.
func words(c *metav1.Condition) string {
	if c.Message == "" {
		return c.Reason
	}
	return c.Reason + ": " + c.Message
}

// responder names the responder that works on an Eviction, with its report.
func responder(e lifecycle.Eviction) string {
	for _, target := range e.Status.TargetResponders {
		if target.State == lifecycle.ResponderStateActive {
			return report(target.Name, e.Status.Responders)
		}
	}
	return "accepted; no responder is at work"
}

func report(name string, responders []lifecycle.ResponderStatus) string {
	out := []string{name + " is at work"}
	for _, r := range responders {
		if r.Name != name {
			continue
		}
		if r.ExpectedCompletionTime != nil {
			out = append(out, fmt.Sprintf("until about %s", r.ExpectedCompletionTime.UTC().Format(time.RFC3339)))
		}
		if r.Message != nil && *r.Message != "" {
			out = append(out, *r.Message)
		}
	}
	return strings.Join(out, "; ")
}
