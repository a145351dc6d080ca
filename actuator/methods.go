package actuator

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// saveFunc stores in the ledger how a pod is going to be moved, before the first step. An error means that it is not remembered, and
// that nothing may be changed.
type saveFunc func(ctx context.Context, r record) error

// unsaved is for callers that remember nothing.
func unsaved(context.Context, record) error { return nil }

// way is one way to move a pod.
type way struct {
	by move.Method
	// skip: a pod that cannot be moved in this way is not moved in another.
	skip bool
	// optional: a missing right does not matter, since the policy does not enable this way.
	optional bool
}

// ways are those that are tried for the pod, in order.
func (a *Actuator) ways(open Open) []way {
	var out []way
	p, asked := a.policy.Load(), open.asked()
	if asked.Method != schemas.UseEvict {
		preferred := prefersRestart(p, open)
		if by := a.restartFor(open); by != nil {
			out = append(out, way{by, p.Restart.Otherwise == policy.OtherwiseSkip && !preferred, preferred})
		}
		if a.requests != nil && p.EvictionRequests.Wait > 0 && !asked.DryRun { // a dry one tells nothing that an eviction does not
			out = append(out, way{by: a.requests})
		}
	}
	if asked.DryRun {
		return append(out, way{by: a.evictions.DryRun()})
	}
	return append(out, way{by: a.evictions})
}

// method is the method of that name. nil: it is not one that takes steps.
func (a *Actuator) method(name schemas.Method) move.Method {
	switch {
	case (name == schemas.MethodRestart || name == schemas.MethodSurge) && a.restarts != nil:
		return a.restarts
	case name == schemas.MethodEvictionRequest && a.requests != nil:
		return a.requests
	case name == schemas.MethodBackground && a.background != nil:
		return a.background
	}
	return nil
}

// moveBy starts the move of the pod of s by the first method that can.
func (a *Actuator) moveBy(ctx context.Context, s Situation, save saveFunc) (schemas.Verdict, error) {
	calling, end := detached(ctx)
	defer end()
	var instead *schemas.Instead
	for _, w := range a.ways(s.Open) {
		var saved record
		var failed error
		p, err := w.by.Start(calling, s.Pod, s.Now, func(_ context.Context, r move.Record) error {
			saved = record{Open: s.Open, Method: r.Method, Workload: r.Workload, Instead: instead, State: r.State}
			failed = cmp.Or(save(ctx, saved), ctx.Err())
			return failed
		})
		a.noteRight(w, p)
		switch {
		case failed != nil || errors.Is(err, move.ErrChanged):
			return schemas.Verdict{}, fmt.Errorf("move pod %s: %w", s.Open.Intent.Pod, err)
		case err != nil:
			return schemas.Verdict{}, fmt.Errorf("move pod %s: %w: %w", s.Open.Intent.Pod, ErrUnavailable, err)
		case p.Stage == move.NotApplicable, w.optional && p.Refusal != nil && p.Refusal.Reason == schemas.ReasonForbidden:
			continue
		case p.Stage == move.Released && p.Method != schemas.MethodEviction && !w.skip && !p.Refusal.Wait:
			if instead == nil {
				instead = &schemas.Instead{Method: p.Method, Reason: p.Refusal.Reason, Message: p.Refusal.Message}
			}
			continue
		case p.Refusal != nil:
			v := a.verdict(s.Open, Objection{p.Refusal.Outcome, p.Refusal.Reason, p.Refusal.Message})
			if v.Blockers = p.Refusal.Blockers; p.Method == schemas.MethodEviction {
				v.Instead = instead
			}
			return v, nil
		}
		outcome, reason := move.Accepted(p.Method)
		v := a.verdict(s.Open, Objection{outcome, reason, p.Message})
		v.Method, v.Instead, v.Workload = p.Method, instead, p.Workload
		if p.Stage == move.Working && p.State == nil || saved.State == nil {
			return v, nil
		}
		saved.State = p.State
		return v, save(calling, saved)
	}
	return schemas.Verdict{}, fmt.Errorf("move pod %s: %w", s.Open.Intent.Pod, ErrUnavailable)
}

// noteRight names the right that is missing for a method that the policy wants, in [Actuator.Ready], in a metric and in a Kubernetes
// Event, until the method works.
func (a *Actuator) noteRight(w way, p move.Progress) {
	if p.Method == "" || p.Method == schemas.MethodEviction || w.optional {
		return
	}
	if p.Refusal == nil || p.Refusal.Reason != schemas.ReasonForbidden {
		if _, was := a.rights.LoadAndDelete(p.Method); was {
			a.metrics.rights.DeleteLabelValues(string(p.Method))
		}
		return
	}
	err := fmt.Errorf("method %s: a right is missing, pods are moved by the next method: %s", p.Method, p.Refusal.Message)
	if _, was := a.rights.Swap(p.Method, err); was {
		return
	}
	a.metrics.rights.WithLabelValues(string(p.Method)).Set(1)
	a.cfg.Log.Warn("a right is missing", "method", p.Method, "error", p.Refusal.Message)
	if s := a.session.Load(); s != nil {
		s.events.announce(corev1.EventTypeWarning, rightEvent, err.Error())
	}
}
