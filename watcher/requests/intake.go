package requests

import (
	"context"
	"fmt"
	"time"

	"github.com/rehome-dev/rehome/request"
	"github.com/rehome-dev/rehome/schemas"
)

// overlap is how long after its start a session checks whether the previous leader has answered a request.
const overlap = 5 * time.Second

// mostMaintained is the number of requests for nodes that are remembered, as many as the bus can hold open, and
// maintainedFor is how long. The watcher answers the cancellation of a forgotten one that no such request is open.
const (
	mostMaintained = 10_000
	maintainedFor  = 7 * 24 * time.Hour
)

// Handle accepts or rejects one request. A request over the rate limit of its sender is not read, and dropping it does not delay
// the next one.
func (c *Controller) Handle(ctx context.Context, e schemas.Event, stored time.Time, read func() schemas.Event) error {
	sender, name, ok := request.SenderOf(e.Channel)
	answer := schemas.Receipt{Sender: sender, Name: name}
	key := keyOf(answer)
	if sequence, _ := c.maintained.Get(key); ok && sequence == e.Sequence || c.knows(key, e.Sequence) {
		return nil
	}
	if ok && stored.Before(c.began.Add(overlap)) {
		if done, err := c.resume(ctx, answer, stored, read); done || err != nil {
			return err
		}
	}
	if l := c.limitsOf(sender); !l.requests.AllowN(c.cfg.Now(), 1) {
		return c.tooMany(ctx, e, answer, l, read)
	}
	e = read()
	if !ok {
		return c.answers.Reject(ctx, e, answer, request.Malformed("the subject is %.100q, want rehome.request.SENDER.NAME, each "+
			"1 to 63 of a-z, 0-9 and -", e.Channel))
	}
	return c.consider(ctx, e, answer, stored)
}

func keyOf(r schemas.Receipt) string { return r.Sender + "/" + r.Name }

// knows reports whether the message is accepted, or waits to be dropped.
func (c *Controller) knows(key string, sequence uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.requests[key]
	return r != nil && r.event.Sequence == sequence || c.dropping[sequence]
}

// consider validates and authorizes a request, and then executes or rejects it.
func (c *Controller) consider(ctx context.Context, e schemas.Event, answer schemas.Receipt, stored time.Time) error {
	key := keyOf(answer)
	if request.Action(e) == schemas.ActionMaintain {
		c.maintained.Add(key, e.Sequence, maintainedFor)
		return nil
	}
	c.maintained.Remove(key)
	before, last, err := c.answers.LastBefore(ctx, e, answer.Sender, answer.Name)
	if err != nil {
		return err
	}
	asked, no := request.Read(e, answer.Sender, answer.Name, stored, last)
	answer.Requester, answer.Action, answer.Target, answer.DryRun = asked.Requester, asked.Action, asked.Target, asked.DryRun
	if no == nil {
		if answer.Fingerprint, err = request.Fingerprint(asked); err != nil {
			return err
		}
		answer.Profile, no = allowedByPolicy(c.cfg.Policy, asked)
	}
	if no != nil {
		return c.answers.Reject(ctx, e, answer, no)
	}
	switch {
	case before.CausationID == e.ID && (last.State == schemas.RequestFinished || last.Reason == schemas.ReceiptConflict):
		return c.cfg.Bus.DropRequest(ctx, e) // it is answered
	case last.State == schemas.RequestFinished:
		return c.answers.Repeat(ctx, e, answer, last)
	}
	switch asked.Action {
	case schemas.ActionEvaluate:
		return c.evaluate(ctx, e, answer, asked)
	case schemas.ActionCancel:
		return c.cancel(ctx, e, answer, asked)
	}
	return c.accept(ctx, e, answer, asked, stored)
}

// accept finds the pods of a request, publishes the accepted receipt, and starts the moves.
func (c *Controller) accept(
	ctx context.Context, e schemas.Event, answer schemas.Receipt, asked schemas.Request, stored time.Time,
) error {
	limits := c.cfg.Policy.Asking()
	s, _ := limits.Sender(asked.Sender)
	if no := request.TooManyOpen(s, c.openOf(s.Name, ""), c.openOf(s.Name, asked.Requester)); no != nil {
		return c.answers.Reject(ctx, e, answer, no)
	}
	found, missing, no := targetPods(c.cfg.Cluster, *asked.Target, s, stored)
	if no == nil && len(found) > limits.MaxPods {
		no = request.NewEnd(schemas.ReceiptTooManyPods, "%d pods, want at most %d", len(found), limits.MaxPods)
	}
	if no != nil {
		return c.answers.Reject(ctx, e, answer, no)
	}
	protected := 0
	for _, p := range found {
		pod := schemas.RequestedPod{
			Pod:  schemas.PodRef{Namespace: p.Namespace, Name: p.Name, UID: p.UID},
			Node: p.Spec.NodeName, Protected: c.cfg.Protections(answer.Profile, p, asked.Override),
		}
		if len(pod.Protected) > 0 {
			protected++
		}
		answer.Pods = append(answer.Pods, pod)
	}
	answer.State, answer.Reason, answer.Missing = schemas.RequestAccepted, schemas.ReceiptAccepted, missing
	answer.Deadline = request.Deadline(asked, stored)
	answer.Message = fmt.Sprintf("moving %d of %s", len(found)-protected, plural(len(found), "pod", "pods"))
	if protected > 0 {
		answer.Message += fmt.Sprintf(", %d protected", protected)
	}
	if err := c.answers.Send(ctx, e, answer); err != nil {
		return err
	}
	c.start(keyOf(answer), e, asked, answer)
	return nil
}

// openOf returns the number of open requests of a sender, for one requester or for all.
func (c *Controller) openOf(sender, requester string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.requests {
		if r.request.Sender == sender && !r.finished && (requester == "" || r.request.Requester == requester) {
			n++
		}
	}
	return n
}

// evaluate enqueues all scopes of the matching strategies.
func (c *Controller) evaluate(ctx context.Context, e schemas.Event, answer schemas.Receipt, asked schemas.Request) error {
	event := e
	event.Data = nil
	cause := schemas.Cause{Kind: schemas.CauseRequest, Event: e.ID, Time: c.cfg.Now().UTC()}
	n := c.cfg.Evaluate(asked.Profile, asked.Strategy, cause, event)
	if n == 0 {
		return c.answers.Reject(ctx, e, answer, noStrategy(asked))
	}
	return c.answers.Finish(ctx, e, answer,
		request.NewEnd(schemas.ReceiptDone, "%s evaluated", plural(n, "strategy is", "strategies are")))
}

// noStrategy is the end of a request to evaluate strategies that the policy does not have.
func noStrategy(asked schemas.Request) *request.End {
	has, strategy := "the policy", ""
	if asked.Profile != "" {
		has = fmt.Sprintf("profile %q", asked.Profile)
	}
	if asked.Strategy != "" {
		strategy = fmt.Sprintf(" %q", asked.Strategy)
	}
	return request.NewEnd(schemas.ReceiptPolicyUnknown, "%s has no strategy%s", has, strategy)
}

// cancel ends an open request of the same sender. The maintenance role does the same for requests for nodes, also if they have
// ended, until their receipts expire.
func (c *Controller) cancel(ctx context.Context, e schemas.Event, answer schemas.Receipt, asked schemas.Request) error {
	key := asked.Sender + "/" + asked.Request
	if other, err := c.othersAnswer(ctx, asked); err != nil || other {
		return err
	}
	end := request.NewEnd(schemas.ReceiptNothingToDo, "no request %s is open", asked.Request)
	if c.end(key, "canceled: "+asked.Reason) {
		end = request.NewEnd(schemas.ReceiptDone, "request %s is canceled", asked.Request)
	}
	return c.answers.Finish(ctx, e, answer, end)
}

// othersAnswer reports whether the maintenance role answers the cancellation of a request: it finds that request, or its receipt.
func (c *Controller) othersAnswer(ctx context.Context, asked schemas.Request) (bool, error) {
	key := asked.Sender + "/" + asked.Request
	sequence, maintained := c.maintained.Get(key)
	if !maintained {
		return false, nil
	}
	channel := schemas.Request{Sender: asked.Sender, Name: asked.Request}.Channel()
	open, err := c.cfg.Bus.HasRequest(ctx, schemas.Event{Channel: channel, Sequence: sequence.(uint64)})
	if err != nil || open {
		return open, err
	}
	_, last, err := c.answers.Last(ctx, asked.Sender, asked.Request)
	if err != nil || last.Action == schemas.ActionMaintain {
		return true, err
	}
	c.maintained.Remove(key)
	return false, nil
}

// end cancels a request, and reports whether it was open.
func (c *Controller) end(key, message string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.requests[key]
	if r == nil || r.end != "" {
		return false
	}
	r.end, r.message = schemas.ReceiptCancelled, message
	c.queue.Add(key)
	return true
}

// resume continues a request that the previous leader has accepted. done is false if it was not answered yet.
func (c *Controller) resume(
	ctx context.Context, answer schemas.Receipt, stored time.Time, read func() schemas.Event,
) (done bool, err error) {
	before, last, err := c.answers.Last(ctx, answer.Sender, answer.Name)
	if err != nil || before.ID == "" {
		return false, err
	}
	e, key := read(), keyOf(answer)
	switch {
	case before.CausationID != e.ID:
		return false, nil
	case last.State == schemas.RequestRejected:
		return true, c.answers.DropRejected(ctx, e, answer.Sender, answer.Name)
	case last.State != schemas.RequestAccepted:
		return true, c.cfg.Bus.DropRequest(ctx, e)
	case last.Action == schemas.ActionMaintain:
		c.maintained.Add(key, e.Sequence, maintainedFor)
		return true, nil
	}
	asked, no := request.Read(e, answer.Sender, answer.Name, stored, last)
	if no == nil {
		_, no = allowedByPolicy(c.cfg.Policy, asked)
	}
	if no == nil {
		_, no = profile(c.cfg.Policy, last.Profile)
	}
	last.Sender, last.Name = answer.Sender, answer.Name
	c.start(key, e, asked, last)
	if no != nil { // the policy has changed
		c.end(key, no.Message)
	}
	return true, nil
}
