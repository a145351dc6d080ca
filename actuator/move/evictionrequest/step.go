package evictionrequest

import (
	"context"
	"fmt"
	"slices"
	"time"

	lifecycle "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/schemas"
)

// Step implements [move.Method]: it makes the request, or reads its pod, its conditions, and the Evictions that came of it.
//
// The move is Done when there is nothing left to move or the controller reports that the pod was evicted; the request is gone
// then. It is Released when the API server refuses the request, when there is no answer within Config.Wait, and when the
// request failed; it was withdrawn and removed. It is Undone when another client removed the request, perhaps on purpose. A
// request that a responder works on is Working for as long as it takes. A dry run is Done when the API server would accept the
// request.
//
// Canceled, it withdraws the request and removes it. The pod may go all the same, if a responder works on it and does not stop.
func (m *Method) Step(ctx context.Context, text move.State, canceled bool, now time.Time) (move.Progress, error) {
	s, err := move.Decode[state](text)
	if err != nil {
		return move.Progress{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	pod, over, err := move.Live(ctx, m.cfg.Client, s.Pod)
	switch {
	case err != nil:
		return move.Progress{}, fmt.Errorf("eviction request: %w", err)
	case pod == nil:
		return m.finish(ctx, s, over)
	case canceled:
		return m.cancel(ctx, s)
	case s.Phase == planned:
		return m.begin(ctx, s, now)
	}
	return m.follow(ctx, s, now)
}

// finish removes the request for a pod that does not have to move any more.
func (m *Method) finish(ctx context.Context, s state, over string) (move.Progress, error) {
	done := move.Progress{Stage: move.Done, Message: over}
	r, err := m.find(ctx, s.Pod)
	switch {
	case err != nil && (s.Phase != planned || refused(err) == nil): // without the right to read, none was created
		return move.Progress{}, err
	case r != nil:
		return done, m.remove(ctx, r)
	case s.Phase == planned:
		done.Refusal = &move.Refusal{Outcome: schemas.Rejected, Reason: schemas.ReasonPodGone, Message: over}
	}
	return done, nil
}

// cancel withdraws the request, if there is one.
func (m *Method) cancel(ctx context.Context, s state) (move.Progress, error) {
	r, err := m.find(ctx, s.Pod)
	if err == nil && r != nil {
		err = m.withdraw(ctx, r)
	}
	if err != nil {
		return move.Progress{}, err
	}
	return undone("the cause of the move is gone; the EvictionRequest %s was withdrawn", m.name(s.Pod)), nil
}

// begin makes the request.
func (m *Method) begin(ctx context.Context, s state, now time.Time) (move.Progress, error) {
	err := m.create(ctx, s.Pod)
	switch {
	case m.cfg.DryRun && (err == nil || apierrors.IsAlreadyExists(err)):
		return move.Progress{Stage: move.Done, Message: "dry run: an EvictionRequest would be made"}, nil
	case err == nil:
		return m.made(s, now), nil
	case apierrors.IsAlreadyExists(err):
		return m.adopt(ctx, s, now)
	case apierrors.IsNotFound(err):
		m.noteAbsent(now)
	}
	if refusal := refused(err); refusal != nil {
		return released(refusal), nil
	}
	return move.Progress{}, err
}

// made is the progress when the request is there. The wait for an answer starts now.
func (m *Method) made(s state, now time.Time) move.Progress {
	s.Phase, s.Since = requested, now
	message := "EvictionRequest " + m.name(s.Pod) + " is made"
	return move.Progress{State: move.Encode(s), Message: message, Delay: min(delay, m.wait())}
}

// adopt goes on with a request that was there already: made by a step whose outcome was not remembered, or left over from
// an earlier move of the pod.
func (m *Method) adopt(ctx context.Context, s state, now time.Time) (move.Progress, error) {
	r, err := m.find(ctx, s.Pod)
	left := s.Since.Add(m.wait()).Sub(now)
	switch {
	case err != nil:
		return move.Progress{}, err
	case r == nil && left <= 0:
		return released(stuck("an EvictionRequest %s is there and does not go", m.name(s.Pod))), nil
	case r == nil:
		return move.Progress{Message: "waits until an older EvictionRequest is gone", Delay: min(delay, left)}, nil
	case r.Spec.Intent != lifecycle.EvictionRequestIntentEviction:
		return move.Progress{Message: "an older EvictionRequest is removed", Delay: time.Second}, m.remove(ctx, r)
	}
	return m.made(s, now), nil
}

// follow takes the step that follows from the status of a request that was made.
func (m *Method) follow(ctx context.Context, s state, now time.Time) (move.Progress, error) {
	r, err := m.find(ctx, s.Pod)
	switch {
	case err != nil:
		return move.Progress{}, err
	case r == nil:
		return undone("another client removed the EvictionRequest %s", m.name(s.Pod)), nil
	case r.Spec.Intent != lifecycle.EvictionRequestIntentEviction: // by a step that did not come to its end
		return released(stuck("the EvictionRequest %s was withdrawn", r.Name)), m.remove(ctx, r)
	}
	evictions, err := m.evictions(ctx, s.Pod)
	if err != nil {
		return move.Progress{}, err
	}
	wait := m.wait()
	left := s.Since.Add(wait).Sub(now)
	switch standing, message := judge(r, evictions); {
	case standing == evicted:
		return move.Progress{Stage: move.Done, Message: message}, m.remove(ctx, r)
	case standing == failed:
		return released(stuck("the EvictionRequest %s failed: %s", r.Name, message)), m.withdraw(ctx, r)
	case standing == silent && left <= 0:
		return released(stuck("no responder answered the EvictionRequest %s within %s", r.Name, wait)), m.withdraw(ctx, r)
	case standing == silent:
		return move.Progress{Message: message, Delay: min(delay, left)}, nil
	default:
		return move.Progress{Message: message, Delay: delay}, nil
	}
}

func released(r *move.Refusal) move.Progress { return move.Refused(schemas.MethodEvictionRequest, r) }

func undone(format string, args ...any) move.Progress { return move.NotMoved(stuck(format, args...)) }

func stuck(format string, args ...any) *move.Refusal {
	return move.Deferred(schemas.ReasonTakenBack, format, args...)
}

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
	active := slices.IndexFunc(e.Status.TargetResponders, func(r lifecycle.TargetResponder) bool {
		return r.State == lifecycle.ResponderStateActive
	})
	if active < 0 {
		return "accepted; no responder is at work"
	}
	name := e.Status.TargetResponders[active].Name
	words := name + " is at work"
	for _, r := range e.Status.Responders {
		if r.Name == name && r.ExpectedCompletionTime != nil {
			words += "; until about " + r.ExpectedCompletionTime.UTC().Format(time.RFC3339)
		}
		if r.Name == name && r.Message != nil && *r.Message != "" {
			words += "; " + *r.Message
		}
	}
	return words
}
