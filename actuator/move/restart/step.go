package restart

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// soon is after what time a step looks again at what it has just changed, or what somebody else has.
const soon = 100 * time.Millisecond

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

// plans is how often a move is planned whose Deployment another client changes before the first step, such as a controller that
// writes the status of an object that was just made.
const plans = 5

// Start implements [move.Method]. It is not applicable to pods without a Deployment, to Deployments that do not take part,
// and to those with several replicas and no budget that forbids a disruption. A missing right is a refusal.
func (r *Method) Start(ctx context.Context, pod *corev1.Pod, now time.Time, save move.Save) (move.Progress, error) {
	p, err := r.start(ctx, pod, now, save)
	if apierrors.IsForbidden(err) {
		name, _ := takesPart(policy.Restart{Workloads: policy.RestartAll, Method: r.policy().Method}, "", "")
		return move.Refused(name, move.Forbidden(err)), nil
	}
	return p, err
}

func (r *Method) start(ctx context.Context, pod *corev1.Pod, now time.Time, save move.Save) (move.Progress, error) {
	reading, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c, err := r.find(reading, pod, r.policy())
	if err != nil {
		return move.Progress{}, err
	}
	if c == nil {
		return move.Progress{Stage: move.NotApplicable}, nil
	}
	s, refusal, err := r.plan(reading, c, now)
	var p move.Progress
	for n := 1; ; n++ {
		switch {
		case err != nil:
			return move.Progress{}, err
		case refusal != nil:
			return move.Refused(c.Method, refusal), nil
		}
		if err := save(ctx, move.Record{Method: c.Method, Workload: refTo(c.Deployment), State: s.encode()}); err != nil {
			return move.Progress{}, fmt.Errorf("%s of pod %s: %w", c.Method, s.Pod, err)
		}
		p, err = r.first(ctx, s, now)
		if err != nil || p.Stage != replanned {
			return begunBy(c, p, err), nil
		}
		if n == plans {
			return move.Refused(c.Method, not(*c, schemas.ReasonRestartRunning, "%s", p.Message)), nil
		}
		s, err = decode(p.State)
	}
}

// begunBy is the progress after the first step.
func begunBy(c *candidate, p move.Progress, err error) move.Progress {
	d := refTo(c.Deployment)
	message := "rollout restart of " + d.String()
	if c.Method == schemas.MethodSurge {
		message = "one replica more for " + d.String()
	}
	p = move.Begun(p, c.Method, message, err)
	p.Workload = d
	return p
}

// replanned is the stage of a step that made a new plan, which has to be saved before the next step.
const replanned = move.NotApplicable

// first takes the first step.
func (r *Method) first(ctx context.Context, s state, now time.Time) (move.Progress, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	v, err := r.look(ctx, s, now)
	if err != nil {
		return move.Progress{}, err
	}
	if v.Deployment == nil {
		return r.deleted(s, v), nil
	}
	return r.begin(ctx, s, v)
}

// plan makes the state of a move that nothing was done for yet, or says why there can be none.
func (r *Method) plan(ctx context.Context, c *candidate, now time.Time) (state, *move.Refusal, error) {
	if replicasOf(c.Deployment) > 1 && restarting(c.Deployment) {
		refusal := not(*c, schemas.ReasonRestartRunning, "%s", situation(c.Deployment))
		refusal.Wait = true
		return state{}, refusal, nil
	}
	full, err := r.complement(ctx, *c, now)
	if err != nil {
		return state{}, nil, err
	}
	if refusal := eligible(full); refusal != nil {
		return state{}, refusal, nil
	}
	return fresh(full), nil, nil
}

// Step implements [move.Method].
func (r *Method) Step(ctx context.Context, text move.State, now time.Time) (move.Progress, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	s, err := decode(text)
	if err != nil {
		return move.Progress{}, err
	}
	v, err := r.look(ctx, s, now)
	if err != nil {
		return move.Progress{}, err
	}
	switch {
	case v.Deployment == nil:
		return r.deleted(s, v), nil
	case !s.began(v.Deployment):
		p, err := r.begin(ctx, s, v)
		if p.Stage == replanned {
			p.Stage = move.Working
		}
		return p, err
	}
	return r.follow(ctx, s, v)
}

// Cancel implements [move.Method]. A move whose first change was not made is Undone at once. A surge is taken back, and so is
// a rollout that has stopped no pod yet; a later one goes on, since undoing it would restart the new pods once more.
func (r *Method) Cancel(ctx context.Context, text move.State, now time.Time) (move.Progress, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	s, err := decode(text)
	if err != nil {
		return move.Progress{}, err
	}
	v, err := r.look(ctx, s, now)
	if err != nil {
		return move.Progress{}, err
	}
	begun := s.Begun || v.Deployment != nil && s.began(v.Deployment)
	canceled := &move.Refusal{Outcome: schemas.Deferred, Reason: schemas.ReasonTakenBack, Message: "the cause of the move is gone"}
	switch {
	case !begun && v.going():
		return wentBefore(v, "the pod went before anything was changed"), nil
	case v.Deployment == nil && begun:
		return r.deleted(s, v), nil
	case !begun:
		return move.Progress{Stage: move.Undone, Refusal: canceled, Message: canceled.Message}, nil
	case s.Refusal == nil && !s.Returning && !v.going() && (s.Method == schemas.MethodSurge || stoppedNone(v.Deployment)):
		s.Refusal, s.Back = canceled, now.UTC().Round(0) // saved before it is done
		return soonAgain(s, canceled.Message), nil
	}
	return r.follow(ctx, s, v)
}

// follow takes the next step of a move that has begun.
func (r *Method) follow(ctx context.Context, s state, v view) (move.Progress, error) {
	s.Begun = true
	if s.Method == schemas.MethodSurge {
		return r.carryOut(ctx, s, v, followSurge(s, v, r.grace()))
	}
	return r.carryOut(ctx, s, v, followRollout(s, v))
}

// look reads the Deployment and then the pod, so that what is known of the pod is never older.
func (r *Method) look(ctx context.Context, s state, now time.Time) (view, error) {
	d, err := r.deployment(ctx, s.Deployment.Namespace, s.Deployment.Name)
	if err != nil {
		return view{}, err
	}
	if d != nil && d.UID != s.Deployment.UID {
		d = nil
	}
	pod, err := r.pod(ctx, s.Pod)
	if err != nil {
		return view{}, err
	}
	if pod != nil && pod.UID != s.Pod.UID {
		pod = nil
	}
	scaler, err := r.autoscaler(ctx, s)
	if err != nil {
		return view{}, err
	}
	return view{Deployment: d, Pod: pod, Autoscaler: scaler, Now: now}, nil
}

// begin makes the first change, or plans anew when the Deployment is not the one that was planned for.
func (r *Method) begin(ctx context.Context, s state, v view) (move.Progress, error) {
	if v.going() {
		return wentBefore(v, "the pod went before anything was changed"), nil
	}
	if v.Deployment.ResourceVersion != s.Version {
		return r.again(ctx, s, v)
	}
	first := firstOf(s)
	err := r.patch(ctx, v.Deployment, first)
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return r.overtaken(ctx, s, v.Now)
	case refused(err):
		return move.Refused(s.Method, refusalOf(err)), nil
	case err != nil:
		return move.Progress{}, err
	case r.dryRun:
		words := "dry run: " + s.Deployment.String() + " would make a replacement first"
		return move.Progress{Stage: move.Done, Message: words}, nil
	}
	s.Begun = true
	return move.Progress{State: s.encode(), Message: s.Deployment.String() + " makes a replacement first"}, nil
}

// overtaken looks again when somebody else changed the Deployment first. It may have been for another pod of it, whose
// restart this pod goes with.
func (r *Method) overtaken(ctx context.Context, s state, now time.Time) (move.Progress, error) {
	v, err := r.look(ctx, s, now)
	switch {
	case err != nil:
		return move.Progress{}, err
	case v.Deployment == nil:
		return r.deleted(s, v), nil
	case s.began(v.Deployment):
		return move.Progress{Message: "somebody else changed the Deployment", Delay: soon}, nil
	case v.going():
		return wentBefore(v, "the pod went before anything was changed"), nil
	}
	return r.again(ctx, s, v)
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
func (r *Method) again(ctx context.Context, s state, v view) (move.Progress, error) {
	c, err := r.find(ctx, v.Pod, s.Policy)
	if err != nil {
		return move.Progress{}, err
	}
	if c == nil || c.Method != s.Method {
		return move.Refused(s.Method, &move.Refusal{Outcome: schemas.Deferred, Reason: schemas.ReasonRestartRunning,
			Message: "the pod's Deployment does not take part in this way any more"}), nil
	}
	renewed, refusal, err := r.plan(ctx, c, v.Now)
	if err != nil {
		return move.Progress{}, err
	}
	if refusal != nil {
		return move.Refused(s.Method, refusal), nil
	}
	return move.Progress{Stage: replanned, State: renewed.encode(), Delay: soon,
		Message: s.Deployment.String() + " was changed since the move was planned"}, nil
}

// deleted is what becomes of a move whose Deployment was deleted: its pods follow it, unless they were to stay.
func (r *Method) deleted(s state, v view) move.Progress {
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
func (r *Method) carryOut(ctx context.Context, s state, v view, d decision) (move.Progress, error) {
	if d.GiveUp != nil {
		s.Refusal, s.Back = r.because(ctx, v.Deployment, d.GiveUp), v.Now.UTC().Round(0)
		return soonAgain(s, s.Refusal.Message), nil
	}
	if d.Ask {
		if held, err := r.askToEvict(ctx, s); err != nil || held != "" {
			return working(s, held), err
		}
	}
	if err := r.accompany(ctx, s, v, d); err != nil {
		return move.Progress{}, err
	}
	if d.Change != nil {
		err := r.patch(ctx, v.Deployment, *d.Change)
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return soonAgain(s, "somebody else changed the Deployment"), nil
		}
		if err != nil {
			return move.Progress{}, err
		}
	}
	if d.Then.Stage == move.Done {
		d.Then.Message += r.where(ctx, s, v)
	}
	return d.Then, nil
}

// accompany makes the changes of a decision that are not about the Deployment.
func (r *Method) accompany(ctx context.Context, s state, v view, d decision) error {
	if d.Shorten {
		if err := r.shorten(ctx, s); err != nil {
			return err
		}
	}
	if d.Minimum != nil {
		if err := r.patchMinimum(ctx, v.Autoscaler, *d.Minimum); err != nil {
			return err
		}
	}
	if d.Cost != nil {
		return r.patchCost(ctx, s, *d.Cost)
	}
	return nil
}

// working goes on when a pod of the workload changes, or after a while: the status of a Deployment or a budget follows
// its pods with a delay.
func working(s state, message string) move.Progress {
	return move.Progress{State: s.encode(), Message: message, Delay: 2 * time.Second}
}

func soonAgain(s state, message string) move.Progress {
	return move.Progress{State: s.encode(), Message: message, Delay: soon}
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
