package restart

import (
	"context"
	"errors"
	"net/http"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/schemas"
)

// soon is after what time a step looks again at what it has just changed, or what somebody else has.
const soon = 100 * time.Millisecond

// method is one of the two. found is what [Restarter.For] read, or nil.
type method struct {
	r     *Restarter
	name  schemas.Method
	found *candidate
}

// view is the cluster as a step finds it.
type view struct {
	// Deployment is nil if it was deleted, or made anew.
	Deployment *appsv1.Deployment
	// Pod is nil if it was deleted.
	Pod *corev1.Pod
	// Autoscaler is nil if the move has none, or it was deleted.
	Autoscaler *autoscalingv2.HorizontalPodAutoscaler
	Now        time.Time
}

// going says whether the pod is gone or will be without anybody's doing.
func (v view) going() bool {
	return v.Pod == nil || v.Pod.DeletionTimestamp != nil || schemas.Ended(v.Pod)
}

// decision is what a step does, and what it then says. Repeating it does no harm.
type decision struct {
	// Change is made to the Deployment. Whether it was made is seen there afterwards, so a conflict only means another
	// look.
	Change *change
	// Cost is what the deletion cost of the pod becomes.
	Cost *cost
	// Minimum is changed of the autoscaler.
	Minimum *minimumChange
	// Ask: the eviction is asked for as a dry run, and Change made only if it would be allowed.
	Ask bool
	// Shorten: the pod is given less time to stop.
	Shorten bool
	// GiveUp: nothing is changed yet, but the move is to be taken back, for this reason and what the scheduler adds to it.
	GiveUp *move.Refusal
	// Then is the outcome when that was done.
	Then move.Progress
}

// Plan implements [move.Method].
func (m *method) Plan(ctx context.Context, pod *corev1.Pod, now time.Time) (move.State, *move.Refusal, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c := m.found
	if c == nil || c.Pod.UID != pod.UID {
		var err error
		if c, err = m.r.find(ctx, pod); err != nil {
			return nil, nil, err
		}
	}
	s, refusal, err := m.plan(ctx, c, now)
	if refusal != nil || err != nil {
		return nil, refusal, err
	}
	return s.encode(), nil, nil
}

// plan makes the state of a move that nothing was done for yet, or says why there can be none.
func (m *method) plan(ctx context.Context, c *candidate, now time.Time) (state, *move.Refusal, error) {
	if c == nil || c.Method != m.name {
		return state{}, &move.Refusal{Outcome: schemas.Deferred, Reason: schemas.ReasonRestartRunning,
			Message: "the pod's Deployment does not take part in this way, or does not any more"}, nil
	}
	if replicasOf(c.Deployment) > 1 && restarting(c.Deployment) {
		refusal := not(*c, schemas.ReasonRestartRunning, "%s", situation(c.Deployment))
		refusal.Wait = true
		return state{}, refusal, nil
	}
	full, err := m.r.complement(ctx, *c, now)
	if err != nil {
		return state{}, nil, err
	}
	if refusal := eligible(full); refusal != nil {
		return state{}, refusal, nil
	}
	return fresh(full), nil, nil
}

// Step implements [move.Method].
func (m *method) Step(ctx context.Context, text move.State, now time.Time) (move.Progress, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	s, err := decode(text)
	if err != nil {
		return move.Progress{}, err
	}
	v, err := m.look(ctx, s, now)
	if err != nil {
		return move.Progress{}, err
	}
	switch {
	case v.Deployment == nil:
		return m.deleted(s, v), nil
	case !s.began(v.Deployment):
		return m.begin(ctx, s, v)
	}
	s.Begun = true
	if m.name == schemas.MethodSurge {
		return m.carryOut(ctx, s, v, followSurge(s, v, m.r.grace()))
	}
	return m.carryOut(ctx, s, v, followRollout(s, v))
}

// look reads the Deployment and then the pod, so that what is known of the pod is never older.
func (m *method) look(ctx context.Context, s state, now time.Time) (view, error) {
	d, err := m.r.deployment(ctx, s.Deployment.Namespace, s.Deployment.Name)
	if err != nil {
		return view{}, err
	}
	if d != nil && d.UID != s.Deployment.UID {
		d = nil
	}
	pod, err := m.r.pod(ctx, s.Pod)
	if err != nil {
		return view{}, err
	}
	if pod != nil && pod.UID != s.Pod.UID {
		pod = nil
	}
	scaler, err := m.r.autoscaler(ctx, s)
	if err != nil {
		return view{}, err
	}
	return view{Deployment: d, Pod: pod, Autoscaler: scaler, Now: now}, nil
}

// begin makes the first change, or plans anew when the Deployment is not the one that was planned for.
func (m *method) begin(ctx context.Context, s state, v view) (move.Progress, error) {
	if v.going() {
		return wentBefore(v, "the pod went before anything was changed"), nil
	}
	if v.Deployment.ResourceVersion != s.Version {
		return m.again(ctx, s, v)
	}
	first := firstOf(m.name, s)
	err := m.r.patch(ctx, v.Deployment, first)
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return m.overtaken(ctx, s, v.Now)
	case refused(err):
		return move.Progress{Stage: move.Released, Refusal: refusalOf(err)}, nil
	case err != nil:
		return move.Progress{}, err
	case m.r.cfg.DryRun:
		words := "dry run: " + s.Deployment.String() + " would make a replacement first"
		return move.Progress{Stage: move.Done, Message: words}, nil
	}
	s.Begun = true
	return move.Progress{State: s.encode(), Message: s.Deployment.String() + " makes a replacement first"}, nil
}

// overtaken looks again when somebody else changed the Deployment first. It may have been for another pod of it, whose
// restart this pod goes with.
func (m *method) overtaken(ctx context.Context, s state, now time.Time) (move.Progress, error) {
	v, err := m.look(ctx, s, now)
	switch {
	case err != nil:
		return move.Progress{}, err
	case v.Deployment == nil:
		return m.deleted(s, v), nil
	case s.began(v.Deployment):
		return move.Progress{Message: "somebody else changed the Deployment", Look: soon}, nil
	case v.going():
		return wentBefore(v, "the pod went before anything was changed"), nil
	}
	return m.again(ctx, s, v)
}

// wentBefore is the end of a move that never began.
func wentBefore(v view, words string) move.Progress {
	refusal := &move.Refusal{Outcome: schemas.Rejected, Reason: schemas.ReasonPodGone, Message: words}
	if v.Pod != nil && v.Pod.DeletionTimestamp != nil {
		refusal.Reason = schemas.ReasonPodTerminating
	}
	return move.Progress{Stage: move.Done, Refusal: refusal, Message: words}
}

// again plans for the Deployment as it is now. The new plan is remembered before it is carried out, like the first one.
func (m *method) again(ctx context.Context, s state, v view) (move.Progress, error) {
	c, err := m.r.find(ctx, v.Pod)
	if err != nil {
		return move.Progress{}, err
	}
	renewed, refusal, err := m.plan(ctx, c, v.Now)
	if err != nil {
		return move.Progress{}, err
	}
	if refusal != nil {
		return move.Progress{Stage: move.Released, Refusal: refusal, Message: refusal.Message}, nil
	}
	return move.Progress{Stage: move.Replanned, State: renewed.encode(), Look: soon,
		Message: s.Deployment.String() + " was changed since the move was planned"}, nil
}

// deleted is what becomes of a move whose Deployment was deleted: its pods follow it, unless they were to stay.
func (m *method) deleted(s state, v view) move.Progress {
	words := s.Deployment.String() + " was deleted"
	refusal := &move.Refusal{Outcome: schemas.Deferred, Reason: schemas.ReasonRestartUnhealthy, Message: words}
	switch {
	case v.going() && !s.Begun:
		return wentBefore(v, words)
	case v.going():
		return move.Progress{Stage: move.Done, Message: words}
	case s.Begun && v.Now.Before(s.At.Add(s.Limit)), v.Now.Before(s.At.Add(moment)):
		return move.Progress{Message: words + ", its pod not yet"}
	case !s.Begun:
		return move.Progress{Stage: move.Released, Refusal: refusal, Message: words}
	default:
		return move.Progress{Stage: move.Undone, Refusal: refusal, Message: words}
	}
}

// carryOut does what was decided.
func (m *method) carryOut(ctx context.Context, s state, v view, d decision) (move.Progress, error) {
	if d.GiveUp != nil {
		s.Refusal, s.Back = m.r.because(ctx, v.Deployment, d.GiveUp), v.Now.UTC().Round(0)
		return soonAgain(s, s.Refusal.Message), nil
	}
	if d.Ask {
		if held, err := m.r.askToEvict(ctx, s); err != nil || held != "" {
			return working(s, held), err
		}
	}
	if err := m.accompany(ctx, s, v, d); err != nil {
		return move.Progress{}, err
	}
	if d.Change != nil {
		err := m.r.patch(ctx, v.Deployment, *d.Change)
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return soonAgain(s, "somebody else changed the Deployment"), nil
		}
		if err != nil {
			return move.Progress{}, err
		}
	}
	if d.Then.Stage == move.Done {
		d.Then.Message += m.r.where(ctx, s, v)
	}
	return d.Then, nil
}

// accompany makes the changes of a decision that are not about the Deployment.
func (m *method) accompany(ctx context.Context, s state, v view, d decision) error {
	if d.Shorten {
		if err := m.r.shorten(ctx, s); err != nil {
			return err
		}
	}
	if d.Minimum != nil {
		if err := m.r.patchMinimum(ctx, v.Autoscaler, *d.Minimum); err != nil {
			return err
		}
	}
	if d.Cost != nil {
		return m.r.patchCost(ctx, s, *d.Cost)
	}
	return nil
}

// working goes on when a pod of the workload changes, or after a while: the status of a Deployment or a budget follows
// its pods with a delay.
func working(s state, message string) move.Progress {
	return move.Progress{State: s.encode(), Message: message, Look: 2 * time.Second}
}

func soonAgain(s state, message string) move.Progress {
	return move.Progress{State: s.encode(), Message: message, Look: soon}
}

// refused says whether the API server answered that it will not do that, now or later.
func refused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooManyRequests: // these pass
		return false
	default:
		return code >= 400 && code < 500
	}
}

// refusalOf is what a refused first change means for the pod.
func refusalOf(err error) *move.Refusal {
	r := &move.Refusal{Outcome: schemas.Failed, Reason: schemas.ReasonInvalid, Message: err.Error()}
	if apierrors.IsForbidden(err) {
		r.Reason = schemas.ReasonForbidden
	}
	return r
}
