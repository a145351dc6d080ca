package watcher

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/policy"
	req "github.com/rehome-dev/rehome/request"
	"github.com/rehome-dev/rehome/schemas"
)

// accept finds the pods of a request, says so, and has them evaluated.
func (r *requests) accept(
	ctx context.Context, e schemas.Event, answer schemas.Receipt, request schemas.Request, stored time.Time,
) error {
	plan, now := r.l.scopes.plan, r.l.w.now()
	s, _ := plan.requests.Sender(request.Sender)
	if r.openOf(s.Name) >= s.Open {
		return r.reject(ctx, e, answer, refuse(schemas.ReceiptTooManyRequests, "%d requests of this sender are open", s.Open))
	}
	found, missing, no := targeted(r.l.w.cluster, *request.Target, s, stored)
	if no == nil && len(found) > plan.requests.MaxPods {
		no = refuse(schemas.ReceiptTooManyPods, "%d pods, want at most %d", len(found), plan.requests.MaxPods)
	}
	if no != nil {
		return r.reject(ctx, e, answer, no)
	}
	by, ok := plan.find(evaluation{profile: answer.Profile, strategy: schemas.RequestStrategy})
	if !ok {
		return fmt.Errorf("request %s: there is no profile %q", e.ID, answer.Profile) // mayAsk has looked
	}
	moving := 0
	for _, p := range found {
		pod := schemas.RequestedPod{
			Pod:  schemas.PodRef{Namespace: p.Namespace, Name: p.Name, UID: p.UID},
			Node: p.Spec.NodeName, Protected: r.l.scopes.protectsAsked(by, p, request.Override, now),
		}
		if len(pod.Protected) == 0 {
			moving++
		}
		answer.Pods = append(answer.Pods, pod)
	}
	answer.State, answer.Reason, answer.Missing = schemas.RequestAccepted, schemas.ReceiptAccepted, missing
	answer.Deadline = req.Deadline(request, stored)
	answer.Message = fmt.Sprintf("%d of %s to be moved", moving, plural(len(found), "pod is", "pods are"))
	if protected := len(found) - moving; protected > 0 {
		answer.Message += fmt.Sprintf(", %d protected", protected)
	}
	if err := r.answer(ctx, e, answer); err != nil {
		return err
	}
	r.begin(e, request, answer)
	return nil
}

// resume goes on with a request that the leader before has answered. done is false when it has not. Of answer only Sender and
// Name are looked at.
func (r *requests) resume(
	ctx context.Context, answer schemas.Receipt, stored time.Time, read func() schemas.Event,
) (done bool, err error) {
	sender, name := answer.Sender, answer.Name
	before, last, ok, err := r.receipt(ctx, sender, name)
	if err != nil || !ok {
		return false, err
	}
	e := read()
	if before.CausationID != e.ID {
		return false, nil
	}
	if last.State != schemas.RequestAccepted {
		return true, r.bus.DropRequest(ctx, e)
	}
	if last.Action == schemas.ActionMaintain {
		r.nodes[sender+"/"+name] = e.Sequence
		return true, nil
	}
	request, no := req.Read(e, sender, name, stored)
	if no == nil {
		_, no = r.l.scopes.plan.mayAsk(request)
	}
	if no == nil {
		_, no = r.l.scopes.plan.profileOf(last.Profile)
	}
	r.begin(e, request, last)
	if no != nil { // the policy is another one now
		r.mu.Lock()
		defer r.mu.Unlock()
		a := r.open[sender+"/"+name]
		a.end, a.why = schemas.ReceiptCancelled, no.Message
		r.kick(sender + "/" + name)
	}
	return true, nil
}

// begin works on the pods of an accepted request.
func (r *requests) begin(e schemas.Event, request schemas.Request, accepted schemas.Receipt) {
	e.Data = nil
	a := &asking{event: e, request: request, profile: accepted.Profile, deadline: accepted.Deadline, fingerprint: accepted.Fingerprint}
	key, asks := accepted.Sender+"/"+accepted.Name, false
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range accepted.Pods {
		x := &askedPod{pod: p.Pod, node: p.Node, last: schemas.RemainingPod{Pod: p.Pod, Node: p.Node}}
		if len(p.Protected) > 0 {
			x.refused(p.Protected)
		}
		asks = asks || !x.done
		a.pods = append(a.pods, x)
		r.pods[p.Pod.UID] = append(r.pods[p.Pod.UID], key)
	}
	if !asks {
		a.end = schemas.ReceiptNothingToDo
	}
	r.open[key] = a
	r.kick(key)
	if asks && r.l.w.now().Before(a.deadline) {
		r.wake(key, a, schemas.CauseRequest)
	}
}

// wake makes the evaluation of a request pending. The caller holds mu.
func (r *requests) wake(key string, a *asking, why schemas.CauseKind) {
	now := r.l.w.now()
	cause := schemas.Cause{Kind: why, Time: now.UTC()}
	if why == schemas.CauseRequest {
		cause.Event = a.event.ID
	}
	r.l.queue.add(a.evaluation(key), now, cause, a.event)
}

// wakeAll makes the evaluations of all open requests pending.
func (r *requests) wakeAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, a := range r.open {
		r.wake(key, a, schemas.CauseResync)
	}
}

func (a *asking) evaluation(key string) evaluation {
	return evaluation{profile: a.profile, strategy: schemas.RequestStrategy, kind: schemas.RequestKind, key: key}
}

// refused notes that the pod is protected, which is the last word on it.
func (x *askedPod) refused(by []schemas.Protection) {
	x.done = true
	x.last.Outcome, x.last.Reason, x.last.Message = schemas.Rejected, schemas.ReasonProtected, inWords(by)
}

func inWords(protections []schemas.Protection) string {
	rules := make([]string, len(protections))
	for i, p := range protections {
		rules[i] = p.Rule + ": " + p.Detail
	}
	return strings.Join(rules, "; ")
}

// waiting are the pods that are still to be moved.
func (a *asking) waiting() []*askedPod {
	if a.end != "" {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(a.pods), func(x *askedPod) bool { return x.gone || x.done || x.moving })
}

// leavingAgain is when a pod that seems to go by itself is looked at again.
const leavingAgain = 15 * time.Second

// scope builds the scope of a request: those of its pods that are there, that are not on their way, and on which there is no
// last word. Of one that is over it is empty, which withdraws what was asked for. There is none when nothing is to be said.
func (r *requests) scope(head schemas.ScopeHead, e enabled) built {
	r.mu.Lock()
	a, ok := r.open[head.Key]
	if !ok {
		defer r.mu.Unlock()
		if a, ok = r.ending[head.Key]; ok {
			delete(r.ending, head.Key)
			return built{scope: schemas.RequestScope{ScopeHead: head, Request: a.request, Pods: []schemas.ScopedPod{}}}
		}
		return built{}
	}
	waiting := a.waiting()
	r.mu.Unlock()
	found := make([][]schemas.Protection, len(waiting)) // which takes long if it asks where pods fit
	pods := make([]*corev1.Pod, len(waiting))
	for i, x := range waiting {
		if p := boundPod(r.l.w.cluster, x.pod.String()); p != nil && p.UID == x.pod.UID {
			pods[i], found[i] = p, r.l.scopes.protectsAsked(e, p, a.request.Override, head.Now)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b, scope := built{}, schemas.RequestScope{ScopeHead: head, Request: a.request, Pods: []schemas.ScopedPod{}}
	for i, x := range waiting {
		if pods[i] == nil || x.gone || x.done || x.moving {
			continue // gone, which is seen soon; or something became of it meanwhile
		}
		found := found[i]
		if len(found) == 1 && found[0].Rule == policy.TerminatingPods {
			b.later(head.Now.Add(leavingAgain), head.Now)
			continue
		}
		if len(found) > 0 {
			x.refused(found)
			r.kick(head.Key)
			continue
		}
		scope.Pods = append(scope.Pods, schemas.ScopedPod{Pod: *pods[i]})
	}
	if len(scope.Pods) > 0 || a.withdraw {
		b.scope = scope
		a.withdraw = len(scope.Pods) > 0
	}
	return b
}
