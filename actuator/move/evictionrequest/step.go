package evictionrequest

import (
	"context"
	"fmt"
	"strings"
	"time"

	lifecycle "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/schemas"
)

// Step implements [move.Method]: it makes the request, or reads its pod, its conditions, and its Evictions.
//
// The move is Done if there is nothing left to move or the controller reports that the pod was evicted; the request is
// gone then. It is Released if the API server refuses the request, if there is no answer within Config.Wait, or if the
// request failed; the request was then withdrawn and removed, and each later step is Released for the same reason. It is
// Undone if another client removed the request, perhaps on purpose. A request that a responder works on is Working for
// as long as it takes. A dry run is Done if the API server would accept the request.
//
// A canceled step withdraws the request and removes it. The pod may still go if a responder works on it and does not
// stop.
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
	case s.Phase == withdrawn: // the eviction that followed was refused
		return released(stuck("%s", s.Why)), nil
	}
	return m.follow(ctx, s, now)
}

// finish removes the request for a pod that no longer must move.
func (m *Method) finish(ctx context.Context, s state, over string) (move.Progress, error) {
	done := move.Progress{Stage: move.Done}
	r, err := m.find(ctx, s.Pod)
	switch {
	case err != nil && (s.Phase != planned || refused(err) == nil): // without the right to read requests, none was created
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
		return move.Progress{Stage: move.Done}, nil
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

// made returns the progress after the request was made. The wait for an answer starts now.
func (m *Method) made(s state, now time.Time) move.Progress {
	s.Phase, s.Since = requested, now
	return move.Progress{State: move.Encode(s), Delay: min(delay, m.wait())}
}

// adopt continues with an existing request: one from a step whose result was lost, or from an earlier move of the pod.
func (m *Method) adopt(ctx context.Context, s state, now time.Time) (move.Progress, error) {
	r, err := m.find(ctx, s.Pod)
	left := s.Since.Add(m.wait()).Sub(now)
	switch {
	case err != nil:
		return move.Progress{}, err
	case r == nil && left <= 0:
		return released(stuck("the EvictionRequest %s exists and does not terminate", m.name(s.Pod))), nil
	case r == nil:
		return move.Progress{Delay: min(delay, left)}, nil
	case r.Spec.Intent != lifecycle.EvictionRequestIntentEviction: // an older one
		return move.Progress{Delay: time.Second}, m.remove(ctx, r)
	}
	return m.made(s, now), nil
}

// follow takes the next step according to the status of the request.
func (m *Method) follow(ctx context.Context, s state, now time.Time) (move.Progress, error) {
	r, err := m.find(ctx, s.Pod)
	switch {
	case err != nil:
		return move.Progress{}, err
	case r == nil:
		return undone("another client removed the EvictionRequest %s", m.name(s.Pod)), nil
	case r.Spec.Intent != lifecycle.EvictionRequestIntentEviction: // by an incomplete step
		return s.givenUp(now, "the EvictionRequest %s was withdrawn", r.Name), m.remove(ctx, r)
	}
	evictions, err := m.evictions(ctx, s.Pod)
	if err != nil {
		return move.Progress{}, err
	}
	wait := m.wait()
	left := s.Since.Add(wait).Sub(now)
	switch standing, why := judge(r, evictions); {
	case standing == evicted:
		return move.Progress{Stage: move.Done}, m.remove(ctx, r)
	case standing == failed:
		return s.givenUp(now, "the EvictionRequest %s failed: %s", r.Name, why), m.withdraw(ctx, r)
	case standing == silent && left <= 0:
		return s.givenUp(now, "no responder answered the EvictionRequest %s within %s", r.Name, wait), m.withdraw(ctx, r)
	case standing == silent:
		return move.Progress{Delay: min(delay, left)}, nil
	default:
		return move.Progress{Delay: delay}, nil
	}
}

// givenUp returns the progress after the request was withdrawn and removed.
func (s state) givenUp(now time.Time, format string, args ...any) move.Progress {
	p := released(stuck(format, args...))
	s.Phase, s.Since, s.Why = withdrawn, now, p.Message
	p.State = move.Encode(s)
	return p
}

func released(r *move.Refusal) move.Progress { return move.Refused(schemas.MethodEvictionRequest, r) }

func undone(format string, args ...any) move.Progress { return move.NotMoved(stuck(format, args...)) }

func stuck(format string, args ...any) *move.Refusal {
	return move.Deferred(schemas.ReasonTakenBack, format, args...)
}

// standing is the state of a request.
type standing int

const (
	silent  standing = iota // no answer
	working                 // a responder works on it
	evicted                 // the pod was evicted
	failed                  // no responder works on it anymore
)

// judge determines the state of a request from its conditions and from the Evictions of its pod, and why it failed. An
// Eviction that ended without success is no answer: another one may follow, and the request has a condition if none
// does.
func judge(r *lifecycle.EvictionRequest, evictions []lifecycle.Eviction) (is standing, why string) {
	if has(r.Status.Conditions, lifecycle.EvictionConditionTargetEvicted) {
		return evicted, ""
	}
	if has(r.Status.Conditions, lifecycle.EvictionConditionFailed) {
		c := meta.FindStatusCondition(r.Status.Conditions, string(lifecycle.EvictionConditionFailed))
		return failed, strings.TrimSuffix(c.Reason+": "+c.Message, ": ")
	}
	if len(r.Status.Conditions) > 0 {
		is = working
	}
	for _, e := range evictions {
		switch {
		case has(e.Status.Conditions, lifecycle.EvictionConditionTargetEvicted):
			return evicted, ""
		case !has(e.Status.Conditions, lifecycle.EvictionConditionFailed):
			is = working
		}
	}
	return is, ""
}

func has(conditions []metav1.Condition, kind lifecycle.EvictionConditionType) bool {
	return meta.IsStatusConditionTrue(conditions, string(kind))
}
