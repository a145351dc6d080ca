package watcher

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	req "github.com/rehome-dev/rehome/request"
	"github.com/rehome-dev/rehome/schemas"
)

// Requests is what the watcher needs of the bus to answer requests.
type Requests interface {
	// FollowRequests hands over every open request, oldest first, and each new one, one at a time, with the time at which it
	// was stored, until ctx ends. Of the event only Channel and Sequence are known until read is called, which costs what the
	// request is large. After an error, and after a loss of the connection, it hands a request over again. A message that is no
	// event reads as one without a type.
	FollowRequests(
		ctx context.Context, handle func(ctx context.Context, e schemas.Event, stored time.Time, read func() schemas.Event) error,
	) error
	// DropRequest takes the request of that Channel and Sequence out of those that are open. One that is gone is no error.
	DropRequest(ctx context.Context, e schemas.Event) error
	// Receipt is the last receipt for a sender and a name. The zero Event: none is known.
	Receipt(ctx context.Context, sender, name string) (schemas.Event, error)
}

// requests are those that the leader works on. What has to outlive it is on the bus: the request, and the receipt that says
// which pods it is about. Its methods may be called from many goroutines. Make one with newRequests.
type requests struct {
	l      *lead
	bus    Requests // nil: nobody is answered
	began  time.Time
	kicked chan struct{} // capacity 1: some of dirty are to be looked at
	rates  map[string]*rates
	unread *unread
	// nodes are the sequences of the requests for nodes, by SENDER/NAME, which the maintenance role answers. Only handle uses it.
	nodes map[string]uint64

	mu     sync.Mutex
	open   map[string]*asking // by SENDER/NAME
	ending map[string]*asking // whose last scope is still to be built
	pods   map[types.UID][]string
	dirty  map[string]bool
}

// asking is one accepted request.
type asking struct {
	fingerprint string        // of its receipts
	event       schemas.Event // of the request, without data
	request     schemas.Request
	profile     string
	deadline    time.Time
	pods        []*askedPod
	end         schemas.ReceiptReason // why it is over; empty: it is not
	why         string                // the same in words, where there is more to say
	withdraw    bool                  // some of its pods are asked for at this moment
}

// askedPod is one pod of a request.
type askedPod struct {
	pod    schemas.PodRef
	node   string
	gone   bool // there is none of its UID any more
	done   bool // there is a last word on it
	moving bool // it is on its way
	last   schemas.RemainingPod
}

func newRequests(l *lead) *requests {
	return &requests{
		l: l, bus: l.w.config.Requests, began: l.w.now(), kicked: make(chan struct{}, 1), rates: map[string]*rates{},
		unread: newUnread(), nodes: map[string]uint64{},
		open: map[string]*asking{}, ending: map[string]*asking{}, pods: map[types.UID][]string{}, dirty: map[string]bool{},
	}
}

// follow answers requests until ctx ends.
func (r *requests) follow(ctx context.Context) {
	if r.bus == nil {
		return
	}
	if err := r.bus.FollowRequests(ctx, r.handle); err != nil && ctx.Err() == nil {
		r.l.w.log.Error("requests cannot be followed; nobody is answered", "error", err)
	}
}

// handle takes one request over, or rejects it. What it costs is bounded by the allowance of the sender: one that is too many
// is not even read, and what drops it does not hold up the next one.
func (r *requests) handle(ctx context.Context, e schemas.Event, stored time.Time, read func() schemas.Event) error {
	sender, name, ok := req.SenderOf(e.Channel)
	if ok && (r.knows(sender+"/"+name, e.Sequence) || r.nodes[sender+"/"+name] == e.Sequence) || r.unread.has(e) {
		return nil
	}
	answer := schemas.Receipt{Sender: sender, Name: name}
	if ok && stored.Before(r.began.Add(overlap)) { // the leader before may have answered it
		if done, err := r.resume(ctx, answer, stored, read); done || err != nil {
			return err
		}
	}
	now, rates := r.l.w.now(), r.ratesOf(sender)
	if !rates.requests.take(now) {
		return r.tooMany(ctx, e, answer, rates, read)
	}
	e = read()
	if !ok {
		return r.reject(ctx, e, answer, malformed("it was published on %.100q, want rehome.request.SENDER.NAME, both of them "+
			"1 to 63 of a-z, 0-9 and -", e.Channel))
	}
	return r.consider(ctx, e, answer, stored)
}

// consider does what a request asks for, or rejects it.
func (r *requests) consider(ctx context.Context, e schemas.Event, answer schemas.Receipt, stored time.Time) error {
	key := answer.Sender + "/" + answer.Name
	if req.Action(e) == schemas.ActionMaintain {
		r.nodes[key] = e.Sequence
		return nil
	}
	delete(r.nodes, key)
	request, no := req.Read(e, answer.Sender, answer.Name, stored)
	answer.Action, answer.Target, answer.DryRun = request.Action, request.Target, request.DryRun
	if no == nil {
		var err error
		if answer.Fingerprint, err = req.Fingerprint(request); err != nil {
			return err
		}
		answer.Profile, no = r.l.scopes.plan.mayAsk(request)
	}
	if no != nil {
		return r.reject(ctx, e, answer, no)
	}
	if done, err := r.repeat(ctx, e, answer); done || err != nil {
		return err
	}
	switch request.Action {
	case schemas.ActionEvaluate:
		return r.evaluate(ctx, e, answer, request)
	case schemas.ActionCancel:
		if _, is := r.nodes[request.Sender+"/"+request.Request]; is {
			return nil // the maintenance role answers
		}
		return r.cancel(ctx, e, answer, request)
	case schemas.ActionDeschedule, schemas.ActionMaintain:
	}
	return r.accept(ctx, e, answer, request, stored)
}

// knows says whether the request of that number is worked on already.
func (r *requests) knows(key string, sequence uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, ok := r.open[key]
	return ok && a.event.Sequence == sequence
}

// ratesOf are the allowances of a sender. Only handle uses them.
func (r *requests) ratesOf(sender string) *rates {
	s, known := r.l.scopes.plan.requests.Sender(sender)
	if !known {
		s.Name, s.PerMinute = otherSenders, othersPerMinute
	}
	key := fmt.Sprint(known, " ", s.Name) // a sender of the policy can be called other
	if r.rates[key] == nil {
		r.rates[key] = newRates(s.Name, s.PerMinute, r.began)
	}
	return r.rates[key]
}

// tooMany rejects a request that is one too many. Who sends them is told so once a second at most, with how many they were.
func (r *requests) tooMany(
	ctx context.Context, e schemas.Event, answer schemas.Receipt, of *rates, read func() schemas.Event,
) error {
	now := r.l.w.now()
	if of.log.take(now) {
		r.l.w.log.Warn("more requests than the policy allows; the others of this minute are counted only", "sender", answer.Sender)
	}
	if !of.tells(now) {
		of.untold++
		r.count(answer.Sender, schemas.RequestRejected)
		r.unread.add(e)
		return nil
	}
	no := refuse(schemas.ReceiptTooManyRequests, "more than %v requests of this sender in a minute; ask again later",
		of.requests.perMinute)
	if of.untold > 0 {
		no.Message += fmt.Sprintf("; %d more were rejected without a receipt", of.untold)
	}
	if err := r.reject(ctx, read(), answer, no); err != nil {
		return err
	}
	of.untold = 0
	return nil
}

// openOf counts the open requests of a sender.
func (r *requests) openOf(sender string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, a := range r.open {
		if a.request.Sender == sender {
			n++
		}
	}
	return n
}

// count counts a request. A sender that the policy does not have is one of others.
func (r *requests) count(sender string, state schemas.ReceiptState) {
	if _, known := r.l.scopes.plan.requests.Sender(sender); !known {
		sender = otherSenders
	}
	r.l.w.metrics.requests.WithLabelValues(sender, string(state)).Inc()
}

// evaluate makes evaluations pending that somebody asked for, which are then a consequence of the request.
func (r *requests) evaluate(ctx context.Context, e schemas.Event, answer schemas.Receipt, request schemas.Request) error {
	var chosen []enabled
	for _, s := range r.l.scopes.plan.all {
		if (request.Strategy == "" || request.Strategy == s.strategy.Name) &&
			(request.Profile == "" || request.Profile == s.profile.Name) {
			chosen = append(chosen, s)
		}
	}
	if len(chosen) == 0 {
		return r.reject(ctx, e, answer, refuse(schemas.ReceiptPolicyUnknown,
			"the policy has no profile %q with strategy %q", request.Profile, request.Strategy))
	}
	now := r.l.w.now()
	cause := schemas.Cause{Kind: schemas.CauseRequest, Event: e.ID, Time: now.UTC()}
	w := wake{cause: cause, event: e, at: now.Add(r.l.w.config.Settle)}
	w.event.Data = nil
	nodes := nodeNames(r.l.w.cluster, r.l.scopes.plan.selector)
	for _, s := range chosen {
		if s.grouped() {
			r.l.wakeAllGroups(s, w)
		}
		for _, n := range nodes {
			r.l.enqueue(s, r.l.keysOnNode(s, n, w))
		}
	}
	answer.State, answer.Reason = schemas.RequestFinished, schemas.ReceiptDone
	answer.Message = fmt.Sprintf("%s evaluated", plural(len(chosen), "strategy is", "strategies are"))
	return r.close(ctx, e, answer)
}

// cancel gives up an open request of the same sender.
func (r *requests) cancel(ctx context.Context, e schemas.Event, answer schemas.Receipt, request schemas.Request) error {
	key := request.Sender + "/" + request.Request
	answer.State, answer.Reason = schemas.RequestFinished, schemas.ReceiptNothingToDo
	answer.Message = "no request " + request.Request + " is open"
	r.mu.Lock()
	if a, ok := r.open[key]; ok && a.end == "" {
		a.end, a.why = schemas.ReceiptCancelled, "cancelled: "+request.Reason
		r.kick(key)
		answer.Reason, answer.Message = schemas.ReceiptDone, "request "+request.Request+" is given up"
	}
	r.mu.Unlock()
	return r.close(ctx, e, answer)
}

// kick has a request looked at. The caller holds mu.
func (r *requests) kick(key string) {
	r.dirty[key] = true
	select {
	case r.kicked <- struct{}{}:
	default:
	}
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
