package watcher

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	req "github.com/rehome-dev/rehome/request"
	"github.com/rehome-dev/rehome/schemas"
)

// run finishes requests on whose pods there is a last word, whose time is over, or that were given up, until ctx ends.
func (r *requests) run(ctx context.Context) {
	if r.bus == nil {
		return
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var tries backoff
	for {
		over, wait := r.look(r.l.w.now())
		for key, a := range over {
			if err := r.end(ctx, key, a); err != nil && ctx.Err() == nil {
				delay := tries.next()
				if tries.first() {
					r.l.w.log.Warn("a request could not be finished, trying again", "request", key, "error", err)
				}
				wait = min(wait, delay)
				r.mu.Lock()
				r.dirty[key] = true
				r.mu.Unlock()
			} else {
				tries.reset()
			}
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-r.kicked:
		case <-timer.C:
		}
	}
}

// end finishes a request that is over.
func (r *requests) end(ctx context.Context, key string, a *asking) error {
	r.mu.Lock()
	over := a.end != ""
	r.mu.Unlock()
	if !over {
		return nil
	}
	return r.finish(ctx, key, a)
}

// look returns the requests that are over, and how long it takes at most until one is
// whose time runs out.
func (r *requests) look(now time.Time) (over map[string]*asking, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	over, wait = map[string]*asking{}, time.Hour
	for key, a := range r.open {
		late := !now.Before(a.deadline)
		if !late {
			wait = min(wait, a.deadline.Sub(now))
		}
		if !late && !r.dirty[key] {
			continue
		}
		r.lookAt(a)
		switch {
		case a.end != "":
		case !slices.ContainsFunc(a.pods, func(x *askedPod) bool { return !x.gone && !x.done }):
			a.end = schemas.ReceiptDone
		case late:
			a.end = schemas.ReceiptDeadlineExceeded
		default:
			continue
		}
		over[key] = a
	}
	clear(r.dirty)
	return over, wait
}

// lookAt notes which pods are gone. The caller holds mu.
func (r *requests) lookAt(a *asking) {
	for _, x := range a.pods {
		if !x.gone {
			p := boundPod(r.l.w.cluster, x.pod.String())
			x.gone = p == nil || p.UID != x.pod.UID
		}
	}
}

// finish withdraws what is still asked for, says how the request ended, and drops it. In that order, so that whoever takes
// over in between does the rest.
func (r *requests) finish(ctx context.Context, key string, a *asking) error {
	receipt, withdraw := r.last(key, a)
	if withdraw {
		if err := r.withdraw(ctx, key, a); err != nil {
			return err
		}
	}
	if err := r.close(ctx, a.event, receipt); err != nil {
		return err
	}
	r.l.w.log.Info("request finished", "request", key, "reason", receipt.Reason, "message", receipt.Message)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open[key] == a {
		delete(r.open, key)
	}
	for _, x := range a.pods {
		r.pods[x.pod.UID] = slices.DeleteFunc(r.pods[x.pod.UID], func(k string) bool { return k == key })
		if len(r.pods[x.pod.UID]) == 0 {
			delete(r.pods, x.pod.UID)
		}
	}
	if withdraw { // a scope that was built before it was over may have been published after the one that withdraws
		r.ending[key] = a
		r.wake(key, a, schemas.CauseRequest)
	}
	return nil
}

// last is the last receipt of a request, and whether something is to be withdrawn.
func (r *requests) last(key string, a *asking) (receipt schemas.Receipt, withdraw bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	q := a.request
	sender, name, _ := req.SenderOf(a.event.Channel)
	receipt = schemas.Receipt{
		Fingerprint: a.fingerprint,
		Sender:      sender, Name: name, State: schemas.RequestFinished, Reason: a.end, Action: q.Action, Target: q.Target,
		Profile: a.profile, DryRun: q.DryRun,
	}
	for _, x := range a.pods {
		if x.gone {
			receipt.Gone++
			continue
		}
		receipt.Remaining = append(receipt.Remaining, x.last)
		withdraw = withdraw || !x.done
	}
	receipt.Message = fmt.Sprintf("%d of %s gone", receipt.Gone, plural(len(a.pods), "pod is", "pods are"))
	if a.why != "" {
		receipt.Message += "; " + a.why
	}
	r.l.w.log.Debug("request is over", "request", key, "reason", a.end)
	return receipt, withdraw
}

// withdraw publishes the empty scope of a request that is over.
func (r *requests) withdraw(ctx context.Context, key string, a *asking) error {
	now := r.l.w.now()
	scope := schemas.RequestScope{
		ScopeHead: schemas.ScopeHead{
			Kind: schemas.RequestKind, Key: key, Profile: a.profile, Strategy: schemas.RequestStrategy, Now: now.UTC(), Since: now.UTC(),
			Causes: []schemas.Cause{{Kind: schemas.CauseRequest, Event: a.event.ID, Time: now.UTC()}},
		},
		Request: a.request, Pods: []schemas.ScopedPod{},
	}
	e, err := schemas.NewEvent(r.l.w.config.Source, scope, now, a.event)
	if err == nil {
		e.Expires = now.Add(r.l.w.config.Resync).UTC()
		err = r.l.w.config.Bus.PublishAll(ctx, []schemas.Event{e})
	}
	if err != nil {
		return fmt.Errorf("withdraw request %s: %w", key, err)
	}
	return nil
}

// podGone notes that there may be no pod of that UID any more.
func (r *requests) podGone(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range r.pods[uid] {
		r.kick(key)
	}
}

// verdict notes what became of a pod of a request, and says whether it is to be asked for again although the verdict is one
// that ends it: it was on the move for another reason, which may come to nothing.
func (r *requests) verdict(v schemas.Verdict) (again bool) {
	if v.Strategy != schemas.RequestStrategy || v.Scope.Kind != schemas.RequestKind {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	a, ok := r.open[v.Scope.Key]
	if !ok {
		return false
	}
	i := slices.IndexFunc(a.pods, func(x *askedPod) bool { return x.pod.UID == v.Intent.Pod.UID })
	if i < 0 || v.Outcome == schemas.Settled && v.Reason != schemas.ReasonTakenBack {
		return false
	}
	x := a.pods[i]
	x.last.Outcome, x.last.Reason, x.last.Message = v.Outcome, v.Reason, v.Message
	x.moving = v.Outcome.Moves() && !v.DryRun
	x.done = v.Outcome == schemas.Failed || v.Outcome.Moves() && v.DryRun || v.Outcome == schemas.Rejected && ends(v.Reason)
	if x.done {
		r.kick(v.Scope.Key)
	}
	return v.Reason == schemas.ReasonMoving && v.Outcome == schemas.Rejected
}

// ends says whether a pod that was rejected for the reason is given up. The others are going, or the actuator has not read the
// policy yet.
func ends(reason schemas.ReasonCode) bool {
	switch reason {
	case schemas.ReasonMoving, schemas.ReasonPodTerminating, schemas.ReasonPodGone, schemas.ReasonProfileUnknown:
		return false
	}
	return true
}
