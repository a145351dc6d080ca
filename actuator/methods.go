package actuator

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// noteFunc remembers how a pod is going to be moved, before the first step. An error means that it is not remembered, and
// that nothing may be changed.
type noteFunc func(ctx context.Context, r record) error

// unnoted is for callers that remember nothing.
func unnoted(context.Context, record) error { return nil }

// way is a way of moving a pod that takes longer than one call.
type way struct {
	name     schemas.Method
	by       move.Method
	workload *schemas.ObjectRef
	accepted Objection // what its beginning is called
	skip     bool      // a pod that cannot go this way goes none
}

// ways are those that are tried before an eviction, in order.
func (a *Actuator) ways(ctx context.Context, open Open, pod *corev1.Pod) ([]way, error) {
	var out []way
	p, asked := a.policy.Load(), open.asked()
	if asked.Method == schemas.UseEvict {
		return nil, nil
	}
	by, name, workload, err := a.restart(ctx, open, pod)
	if err != nil {
		return nil, err
	}
	if by != nil {
		accepted := Objection{schemas.Restarted, schemas.ReasonRestartAccepted, "rollout restart of " + workload.String()}
		if name == schemas.MethodSurge {
			accepted.Reason, accepted.Message = schemas.ReasonSurgeAccepted, "one replica more for "+workload.String()
		}
		skip := p.Restart.Otherwise == policy.OtherwiseSkip && !prefersRestart(p, open)
		out = append(out, way{name, by, workload, accepted, skip})
	}
	if asked.DryRun {
		return out, nil // an EvictionRequest that is not made tells nothing that an eviction does not
	}
	if a.requests != nil && p.EvictionRequests > 0 && a.requests.Available(ctx) {
		out = append(out, way{schemas.MethodEvictionRequest, a.requests, nil,
			Objection{schemas.Requested, schemas.ReasonEvictionRequestAccepted, "an EvictionRequest was made"}, false})
	}
	return out, nil
}

// method is the way of that name. nil: it is not one that takes steps.
func (a *Actuator) method(name schemas.Method) move.Method {
	switch {
	case (name == schemas.MethodRestart || name == schemas.MethodSurge) && a.restarts != nil:
		return a.restarts.Method(name)
	case name == schemas.MethodEvictionRequest && a.requests != nil:
		return a.requests
	case name == schemas.MethodBackground && a.background != nil:
		return a.background
	}
	return nil
}

// moveBy takes the pod of s on its way by the first method that can, and the eviction API if none can.
func (a *Actuator) moveBy(ctx context.Context, s Situation, note noteFunc) (schemas.Verdict, error) {
	ways, err := a.ways(ctx, s.Open, s.Pod)
	if err != nil {
		return schemas.Verdict{}, fmt.Errorf("how to move pod %s: %w: %w", s.Open.Intent.Pod, ErrUnavailable, err)
	}
	var instead *schemas.Instead
	for _, w := range ways {
		v, refusal, err := a.begin(ctx, s, w, instead, note)
		if err != nil || refusal == nil {
			return v, err
		}
		if w.skip || refusal.Wait {
			return a.verdict(s.Open, Objection{refusal.Outcome, refusal.Reason, refusal.Message}), nil
		}
		if instead == nil {
			instead = &schemas.Instead{Method: w.name, Reason: refusal.Reason, Message: refusal.Message}
		}
	}
	if err := note(ctx, record{Open: s.Open, Method: schemas.MethodEviction, Instead: instead}); err != nil {
		return schemas.Verdict{}, fmt.Errorf("evict pod %s: %w", s.Open.Intent.Pod, err)
	}
	if err := ctx.Err(); err != nil {
		return schemas.Verdict{}, fmt.Errorf("evict pod %s: %w", s.Open.Intent.Pod, err)
	}
	calling, end := detached(ctx)
	defer end()
	v := a.evict(calling, s, note)
	v.Instead = instead
	return v, nil
}

// plans is how often a move is planned that others overtake before its first step. Each time, somebody else has changed what
// was planned for, such as a controller that writes the status of an object that was just made.
const plans = 5

// begin plans a move and takes its first step, or says why it cannot go this way. A pod that went meanwhile, by itself, has
// its verdict with that.
func (a *Actuator) begin(
	ctx context.Context, s Situation, w way, instead *schemas.Instead, note noteFunc,
) (schemas.Verdict, *move.Refusal, error) {
	failed := func(err error) (schemas.Verdict, *move.Refusal, error) {
		return schemas.Verdict{}, nil, fmt.Errorf("%s of pod %s: %w: %w", w.name, s.Open.Intent.Pod, ErrUnavailable, err)
	}
	state, refusal, err := w.by.Plan(ctx, s.Pod, s.Now)
	if err != nil {
		return failed(err)
	}
	if refusal != nil {
		return schemas.Verdict{}, refusal, nil
	}
	r := record{Open: s.Open, Method: w.name, Workload: w.workload, Instead: instead, State: state}
	if err := note(ctx, r); err != nil {
		return failed(err)
	}
	calling, end := detached(ctx)
	defer end()
	p, err := a.first(calling, &r, w.by, note)
	v := a.verdict(s.Open, w.accepted)
	v.Method, v.Instead, v.Workload = w.name, instead, w.workload
	switch {
	case err != nil && p.Stage == move.Replanned:
		return failed(err)
	case err != nil:
		v.Message += "; the first step is tried again: " + err.Error()
		return v, nil, nil
	case p.Refusal != nil && p.Stage == move.Done:
		return a.verdict(s.Open, Objection{p.Refusal.Outcome, p.Refusal.Reason, p.Refusal.Message}), nil, nil
	case p.Refusal != nil:
		return schemas.Verdict{}, p.Refusal, note(ctx, record{Open: s.Open, Method: schemas.MethodEviction})
	case p.Stage == move.Done:
		r.State = nil
	}
	return v, nil, note(calling, r)
}

// first takes the first step of a move, of a newer plan as long as things are not as they were when it was planned. r is
// changed to what was remembered last.
func (a *Actuator) first(ctx context.Context, r *record, by move.Method, note noteFunc) (move.Progress, error) {
	for n := 1; ; n++ {
		p, err := by.Step(ctx, r.State, a.cfg.Now())
		if p.State != nil {
			r.State = p.State
		}
		if err != nil || p.Stage != move.Replanned {
			return p, err
		}
		if n == plans {
			refusal := &move.Refusal{Outcome: schemas.Deferred, Reason: schemas.ReasonRestartRunning, Message: p.Message}
			return move.Progress{Stage: move.Released, Refusal: refusal, Message: p.Message}, nil
		}
		if err := note(ctx, *r); err != nil {
			return p, err // of the note: nothing was changed
		}
	}
}
