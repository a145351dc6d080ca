package evictionrequest

import (
	"context"
	"fmt"
	"time"

	lifecycle "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/schemas"
)

// Step makes the request, or looks at it: its pod first, then its conditions, then the Evictions that came of it.
//
// The move is Done when there is nothing left to move or the controller says that the pod was evicted; the request is gone
// then. It is Released when the API server refuses the request, when nobody answers it within Config.Wait, and when the
// controller says that it failed; the request was taken back and is gone. It is Undone when somebody else removed the
// request: they may have meant it. A request that is being worked on is Working for as long as it takes; [Method.Withdraw]
// ends it. In a dry run the move is Done when the API server would have taken the request.
func (m *Method) Step(ctx context.Context, remembered move.State, now time.Time) (move.Progress, error) {
	s, err := decode(remembered)
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
	case !s.Made:
		return m.begin(ctx, s, now)
	}
	return m.follow(ctx, s, now)
}

// Withdraw takes the request of a move back and removes it, as when the reason for the move is gone. A request that is not
// there is fine. The pod may go all the same, if somebody works on it who does not stop. An error means that the API server
// could not be asked; it does no harm to try again.
func (m *Method) Withdraw(ctx context.Context, remembered move.State) error {
	s, err := decode(remembered)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r, err := m.find(ctx, s.Pod)
	if err != nil || r == nil {
		return err
	}
	return m.withdraw(ctx, r)
}

// finish removes what is left of a request whose pod goes.
func (m *Method) finish(ctx context.Context, s state, over string) (move.Progress, error) {
	done, never := move.Progress{Stage: move.Done, Message: over}, move.Progress{Stage: move.Done, Message: over}
	if !s.Made {
		never.Refusal = &move.Refusal{Outcome: schemas.Rejected, Reason: schemas.ReasonPodGone, Message: over}
	}
	r, err := m.find(ctx, s.Pod)
	switch {
	case err != nil && !s.Made && refused(err) != nil: // who may not look may not have made one
		return never, nil
	case err != nil:
		return move.Progress{}, err
	case r == nil:
		return never, nil
	}
	return done, m.remove(ctx, r)
}

// begin makes the request.
func (m *Method) begin(ctx context.Context, s state, now time.Time) (move.Progress, error) {
	err := m.create(ctx, s.Pod)
	switch {
	case m.cfg.DryRun && (err == nil || apierrors.IsAlreadyExists(err)):
		return move.Progress{Stage: move.Done, Message: "dry run: an EvictionRequest would be made"}, nil
	case err == nil:
		return m.made(s, now)
	case apierrors.IsAlreadyExists(err):
		return m.adopt(ctx, s, now)
	case apierrors.IsNotFound(err): // served a moment ago
		m.forget()
	}
	if refusal := refused(err); refusal != nil {
		return released(refusal), nil
	}
	return move.Progress{}, err
}

// made remembers that the request is there. Its answer is waited for from now on.
func (m *Method) made(s state, now time.Time) (move.Progress, error) {
	s.Made, s.Since = true, now
	encoded, err := s.encode()
	return move.Progress{Stage: move.Working, State: encoded, Message: "EvictionRequest " + m.name(s.Pod) + " is made",
		Look: min(look, m.wait())}, err
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
		return move.Progress{Stage: move.Working, Message: "waits until an older EvictionRequest is gone",
			Look: min(look, left)}, nil
	case r.Spec.Intent != lifecycle.EvictionRequestIntentEviction:
		return move.Progress{Stage: move.Working, Message: "an older EvictionRequest is removed",
			Look: time.Second}, m.remove(ctx, r)
	}
	return m.made(s, now)
}

// follow looks at a request that was made.
func (m *Method) follow(ctx context.Context, s state, now time.Time) (move.Progress, error) {
	r, err := m.find(ctx, s.Pod)
	if err != nil {
		return move.Progress{}, err
	}
	if r == nil {
		refusal := stuck("somebody removed the EvictionRequest %s", m.name(s.Pod))
		return move.Progress{Stage: move.Undone, Refusal: refusal, Message: refusal.Message}, nil
	}
	if r.Spec.Intent != lifecycle.EvictionRequestIntentEviction { // by a step that did not come to its end
		return released(stuck("the EvictionRequest %s was withdrawn", r.Name)), m.remove(ctx, r)
	}
	evictions, err := m.evictions(ctx, s.Pod)
	if err != nil {
		return move.Progress{}, err
	}
	return m.act(ctx, s, r, evictions, now)
}

// act does what follows from what the controller says.
func (m *Method) act(ctx context.Context, s state, r *lifecycle.EvictionRequest, evictions []lifecycle.Eviction,
	now time.Time) (move.Progress, error) {
	wait := m.wait()
	left := s.Since.Add(wait).Sub(now)
	switch standing, message := judge(r, evictions); {
	case standing == evicted:
		return move.Progress{Stage: move.Done, Message: message}, m.remove(ctx, r)
	case standing == failed:
		return released(stuck("the EvictionRequest %s failed: %s", r.Name, message)), m.withdraw(ctx, r)
	case standing == silent && left <= 0:
		return released(stuck("nobody answered the EvictionRequest %s within %s", r.Name, wait)), m.withdraw(ctx, r)
	case standing == silent:
		return move.Progress{Stage: move.Working, Message: message, Look: min(look, left)}, nil
	default:
		return move.Progress{Stage: move.Working, Message: message, Look: look}, nil
	}
}

// evictions lists the Evictions of the pod that the requester has a part in.
func (m *Method) evictions(ctx context.Context, pod schemas.PodRef) ([]lifecycle.Eviction, error) {
	list, err := m.cfg.Client.LifecycleV1alpha1().Evictions(pod.Namespace).
		List(ctx, metav1.ListOptions{LabelSelector: m.cfg.Requester})
	if err != nil {
		return nil, fmt.Errorf("list evictions in %s: %w", pod.Namespace, err)
	}
	var out []lifecycle.Eviction
	for _, e := range list.Items {
		if target := e.Spec.Target.Pod; target != nil && target.UID == pod.UID {
			out = append(out, e)
		}
	}
	return out, nil
}

func released(refusal *move.Refusal) move.Progress {
	return move.Progress{Stage: move.Released, Refusal: refusal, Message: refusal.Message}
}

func stuck(format string, args ...any) *move.Refusal {
	return &move.Refusal{Outcome: schemas.Deferred, Reason: schemas.ReasonTakenBack, Message: fmt.Sprintf(format, args...)}
}
