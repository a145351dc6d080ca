package restart

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/schemas"
)

// view is the cluster as a step finds it.
type view struct {
	// Deployment is nil if it was deleted or recreated.
	Deployment *appsv1.Deployment
	// Pod is nil if it was deleted.
	Pod *corev1.Pod
	Now time.Time
}

// going says whether the pod is gone or will be without any more change.
func (v view) going() bool {
	return v.Pod == nil || v.Pod.DeletionTimestamp != nil || schemas.Ended(v.Pod)
}

// look reads the Deployment and then the pod, so that what is known of the pod is never older.
func (m *Method) look(ctx context.Context, s state, now time.Time) (view, error) {
	d, err := m.deployment(ctx, s.Deployment.Namespace, s.Deployment.Name)
	if err != nil {
		return view{}, err
	}
	if d != nil && d.UID != s.Deployment.UID {
		d = nil
	}
	pod, err := m.pod(ctx, s.Pod)
	if err != nil {
		return view{}, err
	}
	return view{Deployment: d, Pod: pod, Now: now}, nil
}

// begin makes the first change. changed: it was not made, because another client changed the Deployment since the plan.
func (m *Method) begin(ctx context.Context, s state, v view) (p move.Progress, changed bool, err error) {
	switch {
	case v.going():
		return wentBefore(v), false, nil
	case v.Deployment == nil:
		return deleted(s, v), false, nil
	case v.Deployment.ResourceVersion != s.Version:
		return move.Progress{}, true, nil
	}
	err = m.patch(ctx, v.Deployment, firstOf(s))
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return move.Progress{}, true, nil
	case move.Permanent(err):
		r := &move.Refusal{Outcome: schemas.Failed, Reason: schemas.ReasonInvalid, Message: err.Error()}
		if apierrors.IsForbidden(err) {
			r = move.Forbidden(err)
		}
		return move.Refused(s.Method, r), false, nil
	case err != nil:
		return move.Progress{}, false, err
	case m.cfg.DryRun:
		return move.Progress{Stage: move.Done, Message: "dry run: " + s.words()}, false, nil
	}
	s.Phase = waiting
	return working(s, s.words(), soon), false, nil
}

// beginLate makes the first change of a move that a process before this one planned. It plans again when the Deployment was
// changed since; the actuator saves the new plan before the next step.
func (m *Method) beginLate(ctx context.Context, s state, v view) (move.Progress, error) {
	p, changed, err := m.begin(ctx, s, v)
	if err != nil || !changed {
		return p, err
	}
	renewed, refusal, err := m.plan(ctx, v.Pod, s.Policy, v.Now)
	switch {
	case err != nil:
		return move.Progress{}, err
	case refusal != nil:
		return move.Refused(s.Method, refusal), nil
	case renewed.Method != s.Method:
		return move.Refused(s.Method, &move.Refusal{Outcome: schemas.Deferred, Reason: schemas.ReasonRestartRunning,
			Message: s.Deployment.String() + " does not take part in this way any more"}), nil
	}
	return working(renewed, s.Deployment.String()+" was changed since the move was planned", soon), nil
}

// wentBefore is the end of a move that never began, because the pod left by itself.
func wentBefore(v view) move.Progress {
	const words = "the pod went before anything was changed"
	refusal := &move.Refusal{Outcome: schemas.Rejected, Reason: schemas.ReasonPodGone, Message: words}
	if v.Pod != nil && v.Pod.DeletionTimestamp != nil {
		refusal.Reason = schemas.ReasonPodTerminating
	}
	return move.Progress{Stage: move.Done, Refusal: refusal, Message: words}
}

// deleted ends a move whose Deployment was deleted: the pods follow, unless they are orphaned.
func deleted(s state, v view) move.Progress {
	words := s.Deployment.String() + " was deleted"
	refusal := &move.Refusal{Outcome: schemas.Deferred, Reason: schemas.ReasonRestartUnhealthy, Message: words}
	switch {
	case v.going():
		return move.Progress{Stage: move.Done, Message: words}
	case s.Phase != planned && v.Now.Before(s.At.Add(s.Limit)), v.Now.Before(s.At.Add(moment)):
		return working(s, words+", its pod not yet", poll)
	case s.Phase == planned:
		return move.Refused(s.Method, refusal)
	}
	return undone(refusal)
}

// decision is the work of one step and the progress after it. Repeating it does no harm.
type decision struct {
	// GiveUp: the next steps take the move back, for this reason and the one that the scheduler adds to it.
	GiveUp *move.Refusal
	// Ask: the eviction is sent as a dry run, and the rest is done only if it would be allowed.
	Ask bool
	// Shorten: the pod is given less time to stop.
	Shorten bool
	// Cost is the new deletion cost of the pod.
	Cost *cost
	// Change is made to the Deployment. The next step sees there whether it was made, so a conflict only means another look.
	Change *change
	Then   move.Progress
}

// carryOut does what was decided.
func (m *Method) carryOut(ctx context.Context, s state, v view, d decision) (move.Progress, error) {
	if d.GiveUp != nil {
		return s.takeBack(m.because(ctx, v.Deployment, d.GiveUp), v.Now), nil
	}
	if d.Ask {
		if held, err := m.askToEvict(ctx, s); err != nil || held != "" {
			return working(s, held, poll), err
		}
	}
	if d.Shorten {
		if err := m.shorten(ctx, s); err != nil {
			return move.Progress{}, err
		}
	}
	if d.Cost != nil {
		if err := m.patchCost(ctx, s, *d.Cost); err != nil {
			return move.Progress{}, err
		}
	}
	if d.Change != nil {
		err := m.patch(ctx, v.Deployment, *d.Change)
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return working(s, "another client changed the Deployment", soon), nil
		}
		if err != nil {
			return move.Progress{}, err
		}
	}
	return d.Then, nil
}

func working(s state, message string, delay time.Duration) move.Progress {
	return move.Progress{State: s.encode(), Message: message, Delay: delay}
}

func undone(r *move.Refusal) move.Progress {
	return move.Progress{Stage: move.Undone, Refusal: r, Message: r.Message}
}

// giveUp decides to take a move back. The reason is saved before the change, so that it is known afterwards.
func giveUp(why string) decision {
	return decision{GiveUp: &move.Refusal{Outcome: schemas.Deferred, Reason: schemas.ReasonRestartUnhealthy, Message: why}}
}

// ending is the end of a move, which depends on the pod. words describe a deviation from the plan, empty if there was none.
func ending(s state, v view, words string) move.Progress {
	if !v.going() {
		refusal := move.Refusal{Outcome: schemas.Deferred, Reason: schemas.ReasonRestartRunning}
		if s.Refusal != nil {
			refusal = *s.Refusal
		}
		refusal.Message = words
		return undone(&refusal)
	}
	message := "the pod is " + leave(v)
	if words != "" {
		message += "; " + words
	}
	return move.Progress{Stage: move.Done, Message: message}
}

// leave says how the pod of a view goes.
func leave(v view) string {
	switch {
	case v.Pod == nil:
		return "gone"
	case v.Pod.DeletionTimestamp != nil:
		return "being deleted"
	}
	return "at its end"
}
