package requests

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// retryTerminating is the delay before a terminating pod is checked again.
const retryTerminating = 15 * time.Second

// Reconcile finishes a request that has ended. It withdraws the scope, publishes the finished receipt, and drops the request.
// This order lets another leader complete the remaining steps. [Controller.Build] moves the pods.
func (c *Controller) Reconcile(ctx context.Context, key string) error {
	r, last, withdraw := c.over(key)
	if r == nil {
		return nil
	}
	if withdraw {
		if err := c.withdraw(ctx, key, r); err != nil {
			return err
		}
	}
	if err := c.answers.Close(ctx, r.event, last); err != nil {
		return err
	}
	c.cfg.Log.Info("request finished", "request", key, "reason", last.Reason, "message", last.Message)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range r.pods {
		uid := p.Pod.UID
		c.pods[uid] = slices.DeleteFunc(c.pods[uid], func(k string) bool { return k == key })
		if len(c.pods[uid]) == 0 {
			delete(c.pods, uid)
		}
	}
	switch r.finished = true; {
	case c.requests[key] != r: // a new request has the name
	case withdraw: // an older scope may be published after the empty one
		c.enqueue(key, r, schemas.Cause{Kind: schemas.CauseRequest, Event: r.event.ID})
	default:
		delete(c.requests, key)
	}
	return nil
}

// over returns the request and its finished receipt if the request has ended, else nil. withdraw: some pods still had to move.
func (c *Controller) over(key string) (r *entry, last schemas.Receipt, withdraw bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r = c.requests[key]
	if r == nil || r.finished {
		return nil, last, false
	}
	a := r.accepted
	last = schemas.Receipt{
		Fingerprint: a.Fingerprint, Sender: a.Sender, Name: a.Name, Requester: r.request.Requester, State: schemas.RequestFinished,
		Action: r.request.Action, Target: r.request.Target, Profile: a.Profile, DryRun: r.request.DryRun,
	}
	for _, p := range r.pods {
		if p.gone = p.gone || c.boundPod(p.Pod) == nil; p.gone {
			last.Gone++
			continue
		}
		last.Remaining = append(last.Remaining, p.RemainingPod)
		withdraw = withdraw || !p.final
	}
	switch now := c.cfg.Now(); {
	case r.end != "":
	case !withdraw:
		r.end = schemas.ReceiptDone
	case !now.Before(a.Deadline):
		r.end = schemas.ReceiptDeadlineExceeded
	default: // the timer of the deadline may be ahead of the clock
		c.queue.AddAfter(key, a.Deadline.Sub(now))
		return nil, last, false
	}
	last.Reason, last.Message = r.end, fmt.Sprintf("%d of %s gone", last.Gone, plural(len(r.pods), "pod is", "pods are"))
	if r.message != "" {
		last.Message += "; " + r.message
	}
	return r, last, withdraw
}

// withdraw publishes the empty scope of a request.
func (c *Controller) withdraw(ctx context.Context, key string, r *entry) error {
	now := c.cfg.Now()
	cause := schemas.Cause{Kind: schemas.CauseRequest, Event: r.event.ID, Time: now.UTC()}
	scope := r.scope(schemas.ScopeHead{
		Kind: schemas.RequestKind, Key: key, Profile: r.accepted.Profile, Strategy: schemas.RequestStrategy, Now: now.UTC(),
		Since: now.UTC(), Causes: []schemas.Cause{cause},
	})
	e, err := schemas.NewEvent(c.cfg.Source, scope, now, r.event)
	if err == nil {
		e.Expires = now.Add(c.cfg.Expires).UTC()
		err = c.cfg.Publish(ctx, []schemas.Event{e})
	}
	if err != nil {
		return fmt.Errorf("withdraw request %s: %w", key, err)
	}
	return nil
}

// scope returns the scope of the request without pods.
func (r *entry) scope(head schemas.ScopeHead) schemas.RequestScope {
	return schemas.RequestScope{ScopeHead: head, Request: r.request, Pods: []schemas.ScopedPod{}}
}

// Verdict records a verdict on a pod of a request. again reports that the pod must be evaluated again. It ignores verdicts on
// other scopes, whose keys can be equal.
func (c *Controller) Verdict(v schemas.Verdict) (again bool) {
	if v.Scope.Kind != schemas.RequestKind {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.requests[v.Scope.Key]
	if r == nil {
		return false
	}
	i := slices.IndexFunc(r.pods, func(p *pod) bool { return p.Pod.UID == v.Intent.Pod.UID })
	if i < 0 {
		return false
	}
	p, moving := r.pods[i], v.Outcome == schemas.Rejected && v.Reason == schemas.ReasonMoving
	switch {
	case v.Outcome == schemas.Settled && !v.Unmoved():
		p.steps = false
		return false
	case p.moves && moving: // the scope lists it while it moves
		return false
	}
	p.Outcome, p.Reason, p.Message = v.Outcome, v.Reason, v.Message
	p.moves = v.Outcome.Moves() && !v.DryRun
	p.steps = p.moves && v.Outcome != schemas.Evicted
	p.final = final(v)
	if p.final {
		c.queue.Add(v.Scope.Key)
	}
	return moving
}

// final reports whether a verdict ends the attempts. A rejection does not if the pod is about to go, or if the actuator has not
// loaded the policy yet.
func final(v schemas.Verdict) bool {
	if v.Outcome != schemas.Rejected {
		return v.Outcome == schemas.Failed || v.Outcome.Moves() && v.DryRun
	}
	switch v.Reason {
	case schemas.ReasonMoving, schemas.ReasonPodTerminating, schemas.ReasonPodGone, schemas.ReasonProfileUnknown:
		return false
	}
	return true
}

// terminating reports whether a pod is protected because it terminates already.
func terminating(by []schemas.Protection) bool {
	return slices.ContainsFunc(by, func(p schemas.Protection) bool { return p.Rule == policy.TerminatingPods })
}

// listed reports whether the scope lists the pod: it still has to move, or moves in several steps.
func (p *pod) listed() bool { return !p.gone && !p.final && (!p.moves || p.steps) }

// refuse marks the pod as protected.
func (p *pod) refuse(by []schemas.Protection) {
	rules := make([]string, len(by))
	for i, rule := range by {
		rules[i] = rule.Rule + ": " + rule.Detail
	}
	p.final, p.Outcome, p.Reason = true, schemas.Rejected, schemas.ReasonProtected
	p.Message = strings.Join(rules, "; ")
}

// Build returns the scope of a request with the pods that still have to move. It is empty to withdraw the last scope, and nil if
// there is nothing to publish. again is the time of the next build; zero waits for a change.
func (c *Controller) Build(head schemas.ScopeHead) (scope schemas.Payload, again time.Time) {
	r, candidates := c.candidates(head.Key)
	if r == nil {
		return nil, again
	}
	protections := make([][]schemas.Protection, len(candidates)) // not under the lock: the fit check is slow
	pods := make([]*corev1.Pod, len(candidates))
	for i, p := range candidates {
		if pods[i] = c.boundPod(p.Pod); pods[i] != nil {
			protections[i] = c.cfg.Protections(r.accepted.Profile, pods[i], r.request.Override)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	built := r.scope(head)
	for i, p := range candidates {
		switch by := protections[i]; {
		case pods[i] == nil || !p.listed(): // changed meanwhile
		case p.steps, len(by) == 0:
			built.Pods = append(built.Pods, schemas.ScopedPod{Pod: *pods[i]})
		case terminating(by):
			again = head.Now.Add(retryTerminating)
		default:
			p.refuse(by)
			c.queue.Add(head.Key)
		}
	}
	if len(built.Pods) > 0 || r.published || r.finished {
		r.published = len(built.Pods) > 0
		return built, again
	}
	return nil, again
}

// candidates returns a request and its pods that still have to move, or move in several steps. It deletes a finished request.
func (c *Controller) candidates(key string) (r *entry, pods []*pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r = c.requests[key]
	if r == nil {
		return nil, nil
	}
	if r.finished {
		delete(c.requests, key)
	}
	for _, p := range r.pods {
		if r.end == "" && p.listed() {
			pods = append(pods, p)
		}
	}
	return r, pods
}
