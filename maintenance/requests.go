package maintenance

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/request"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// requests are the open requests for nodes. The watcher answers all others, and requests over the rate limit of their
// sender; this role reads requests at the same rate. The bus stores the requests and their receipts. Safe for
// concurrent use.
type requests struct {
	*session
	answers request.Answers
	began   time.Time // the start of the session

	mu    sync.Mutex
	open  map[string]nodeRequest   // by SENDER/NAME
	rates map[string]*rate.Limiter // by sender; senders that the policy does not list share one
}

// nodeRequest is one open request.
type nodeRequest struct {
	event    schemas.Event // without data; before it is read it has only a channel and a sequence
	stored   time.Time
	read     func() schemas.Event
	accepted *schemas.Receipt // nil if the request is not accepted yet
	uid      types.UID        // of the maintenance; empty if unknown
	end      *request.End     // the end of the request, or nil
}

func newRequests(s *session) *requests {
	return &requests{
		session: s, began: s.now(), open: map[string]nodeRequest{}, rates: map[string]*rate.Limiter{},
		answers: request.Answers{
			Bus: s.cfg.Bus, Source: s.cfg.Source, Now: s.now, Log: s.log,
			Publish: func(ctx context.Context, e schemas.Event) error {
				_, err := s.cfg.Bus.Publish(ctx, e)
				return err
			},
			Count: func(sender string, state schemas.ReceiptState) {
				if _, known := s.policy.Load().Asking().Sender(sender); !known {
					sender = "other"
				}
				s.metrics.requests.WithLabelValues(sender, string(state)).Inc()
			},
		},
	}
}

// othersPerMinute is the shared rate of all senders that the policy does not list.
const othersPerMinute = 10

// allow takes a token of the sender's rate limit.
func (r *requests) allow(sender string) bool {
	perMinute, name := othersPerMinute, ""
	if s, known := r.policy.Load().Asking().Sender(sender); known {
		perMinute, name = s.PerMinute, s.Name
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rates[name] == nil {
		r.rates[name] = rate.NewLimiter(rate.Limit(float64(perMinute)/60), max(1, perMinute))
	}
	return r.rates[name].Allow()
}

// add adds an open request for reconcile to read.
func (r *requests) add(_ context.Context, e schemas.Event, stored time.Time, read func() schemas.Event) error {
	sender, name, ok := request.SenderOf(e.Channel)
	if !ok {
		return nil // the watcher rejects it
	}
	key := sender + "/" + name
	r.mu.Lock()
	defer r.mu.Unlock()
	if x, known := r.open[key]; !known || x.event.Sequence != e.Sequence {
		r.open[key] = nodeRequest{event: e, stored: stored, read: read}
		r.enqueue(requestKey, key)
	}
	return nil
}

func (r *requests) enqueueAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range r.open {
		r.enqueue(requestKey, key)
	}
}

// maintenanceChanged enqueues the open requests about a maintenance.
func (r *requests) maintenanceChanged(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, x := range r.open {
		if x.accepted != nil && schemas.RequestedMaintenance(x.accepted.Maintenance.Node) == name {
			r.enqueue(requestKey, key)
		}
	}
}

func (r *requests) get(key string) (x nodeRequest, open bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x, open = r.open[key]
	return x, open
}

// put replaces or removes an open request, unless another message has its name by now. It never changes an end that is
// stored, because another worker may have stored it after x was read. It returns x with the stored end, and whether x was
// still open.
func (r *requests) put(key string, x nodeRequest, open bool) (is nodeRequest, stored bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, known := r.open[key]
	switch {
	case !known || was.event.Sequence != x.event.Sequence:
		return x, false
	case was.end != nil:
		x.end = was.end
	}
	if open {
		r.open[key] = x
	} else {
		delete(r.open, key)
	}
	return x, true
}

// reconcile reads a request and accepts or rejects it, or finishes a completed one. after is the time until the next
// call.
func (r *requests) reconcile(ctx context.Context, key string) (after time.Duration, err error) {
	x, open := r.get(key)
	if !open {
		return 0, nil
	}
	sender, name, _ := strings.Cut(key, "/")
	if x.accepted == nil {
		answered, err := r.answered(ctx, sender, name, x)
		if err != nil {
			return 0, err
		}
		if !answered && !r.allow(sender) {
			return time.Second, nil // by then the watcher has rejected it if it is over the limit
		}
		if x, err = r.accept(ctx, sender, name, x); err != nil {
			return 0, err
		}
		if r.put(key, x, x.accepted != nil); x.accepted == nil {
			return 0, nil
		}
	}
	if x.end == nil {
		if x.end, err = r.over(ctx, x); err != nil {
			return 0, err
		}
		x, _ = r.put(key, x, true) // the end stays the same if its receipt cannot be published
	}
	if x.end == nil {
		return max(x.accepted.Deadline.Sub(r.now()), time.Millisecond), nil
	}
	last := *x.accepted
	last.Deadline = time.Time{}
	if err := r.answers.Finish(ctx, x.event, last, x.end); err != nil {
		return 0, err
	}
	r.log.Info("request finished", "request", key, "reason", x.end.Reason, "message", x.end.Message)
	r.put(key, x, false)
	return 0, nil
}

// answered reports whether a request has a receipt of an earlier session, which took a token for it.
func (r *requests) answered(ctx context.Context, sender, name string, x nodeRequest) (bool, error) {
	if !x.stored.Before(r.began.Add(overlap)) {
		return false, nil
	}
	before, _, err := r.answers.Last(ctx, sender, name)
	return before.ID != "" && before.CausationID == x.read().ID, err
}

// accept reads and executes a request. Without a receipt in the result, the request is closed or the watcher answers
// it.
func (r *requests) accept(ctx context.Context, sender, name string, x nodeRequest) (nodeRequest, error) {
	if open, err := r.cfg.Bus.HasRequest(ctx, x.event); err != nil || !open {
		return x, err // the watcher has rejected it
	}
	e := x.read()
	switch request.Action(e) {
	case schemas.ActionCancel:
		return x, r.cancel(ctx, e, sender, name, x.stored)
	case schemas.ActionMaintain:
	default:
		return x, nil
	}
	before, last, err := r.answers.LastBefore(ctx, e, sender, name)
	if err != nil {
		return x, err
	}
	q, no := request.Read(e, sender, name, x.stored, last)
	if no == nil {
		no = mayAsk(r.policy.Load().Asking(), q)
	}
	answer := schemas.Receipt{
		Sender: sender, Name: name, Requester: q.Requester, Action: q.Action, Maintenance: q.Maintenance, DryRun: q.DryRun,
		Target: q.Target,
	}
	if answer.Fingerprint, err = request.Fingerprint(q); err != nil {
		return x, err
	}
	switch answered := before.CausationID == e.ID && e.ID != ""; {
	case answered && last.State == schemas.RequestAccepted: // by the previous leader
		x.event, x.accepted = e, &last
		x.event.Data = nil
		if no != nil { // the policy has changed
			x.end = request.NewEnd(schemas.ReceiptCancelled, "%s", no.Message)
		}
		return x, nil
	case answered: // and not dropped
		return x, r.cfg.Bus.DropRequest(ctx, e)
	case no != nil:
		return x, r.answers.Reject(ctx, e, answer, no)
	case last.State == schemas.RequestFinished:
		return x, r.answers.Repeat(ctx, e, answer, last)
	}
	return r.do(ctx, x, e, answer, q)
}

// do stores the desired state of a node, and then accepts the request. A leader that takes over in between stores the
// same state again.
func (r *requests) do(
	ctx context.Context, x nodeRequest, e schemas.Event, answer schemas.Receipt, q schemas.Request,
) (nodeRequest, error) {
	wanted := *q.Maintenance
	node, no := r.node(wanted)
	s, _ := r.policy.Load().Asking().Sender(q.Sender)
	if full := request.TooManyOpen(s, r.openOf(s.Name, ""), r.openOf(s.Name, q.Requester)); full != nil {
		no = full
	}
	if no != nil {
		return x, r.answers.Reject(ctx, e, answer, no)
	}
	if node != nil {
		wanted.Node = node.Name
	}
	answer.Maintenance = &wanted
	name := schemas.RequestedMaintenance(wanted.Node)
	d := desired{name: name, node: wanted.Node, reason: reasonOf(q), NodeRequest: wanted, uid: markOf(node, name), now: r.now()}
	is, no, err := r.change(ctx, name, func(is *v1alpha1.NodeMaintenance) (*v1alpha1.NodeMaintenance, *request.End) {
		switch {
		case is == nil && wanted.Stage == v1alpha1.Complete && d.uid == "":
			return nil, nil
		case is == nil && node == nil:
			return nil, request.NewEnd(schemas.ReceiptUnknownTarget, "there is no node %s", wanted.Node)
		}
		return d.of(is)
	})
	switch {
	case err != nil:
		return x, err
	case no != nil:
		return x, r.answers.Reject(ctx, e, answer, no)
	case is == nil:
		end := request.NewEnd(schemas.ReceiptNothingToDo, "node %s is not maintained", wanted.Node)
		if other := r.otherHolder(wanted.Node); other != "" {
			end = heldBy(other, wanted.Node)
		}
		return x, r.answers.Finish(ctx, e, answer, end)
	}
	answer.State, answer.Reason, answer.Deadline = schemas.RequestAccepted, schemas.ReceiptAccepted, request.Deadline(q, x.stored)
	answer.Message = fmt.Sprintf("node %s will be %s", wanted.Node, reachedWord(wanted.Stage))
	if err := r.answers.Send(ctx, e, answer); err != nil {
		return x, err
	}
	x.event, x.accepted, x.uid = e, &answer, is.UID
	x.event.Data = nil
	return x, nil
}

// mayAsk returns the reason why the sender may not request a node, or nil.
func mayAsk(p policy.Requests, q schemas.Request) *request.End {
	s, known := p.Sender(q.Sender)
	switch {
	case !known:
		return request.NewEnd(schemas.ReceiptNotAllowed, "the policy has no sender %q", q.Sender)
	case !s.May(q.Action):
		return request.NewEnd(schemas.ReceiptNotAllowed, "the policy does not allow %s to %s", s.Name, q.Action)
	case !s.Nodes:
		return request.NewEnd(schemas.ReceiptNotAllowed, "the policy does not allow %s to request the pods of a node", s.Name)
	case len(s.Namespaces) > 0:
		return request.NewEnd(schemas.ReceiptNotAllowed,
			"the policy allows %s only pods of some namespaces, and a maintenance affects all pods of a node", s.Name)
	}
	return nil
}

// openOf returns the number of accepted requests of a sender, for one requester or for all.
func (r *requests) openOf(sender, requester string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.open {
		if a := x.accepted; a != nil && a.Sender == sender && (requester == "" || a.Requester == requester) {
			n++
		}
	}
	return n
}

// node returns the node that a request names, or nil if it names one that does not exist.
func (r *requests) node(q schemas.NodeRequest) (*corev1.Node, *request.End) {
	if q.ProviderID == "" {
		return r.cfg.View.Node(q.Node), nil
	}
	var found []*corev1.Node
	for _, n := range r.cfg.View.AllNodes(labels.Everything()) {
		id := n.Spec.ProviderID
		if id != "" && (id == q.ProviderID || id[strings.LastIndex(id, "/")+1:] == q.ProviderID) {
			found = append(found, n)
		}
	}
	switch len(found) {
	case 0:
		return nil, request.NewEnd(schemas.ReceiptUnknownTarget, "no node has the provider ID %s", q.ProviderID)
	case 1:
		return found[0], nil
	}
	return nil, request.NewEnd(schemas.ReceiptUnknownTarget,
		"%d nodes have the provider ID %s: name the node", len(found), q.ProviderID)
}

// otherHolder returns the maintenance that has cordoned a node, unless it is the one for requests, or "".
func (r *requests) otherHolder(node string) string {
	n := r.cfg.View.Node(node)
	if n == nil {
		return ""
	}
	if mark := schemas.MarkOn(n); mark != nil && mark.Name != schemas.RequestedMaintenance(node) {
		return mark.Name
	}
	return ""
}

// cancel ends an open request for a node. The watcher answers if the request is about pods, or if the cancellation is finished.
func (r *requests) cancel(ctx context.Context, e schemas.Event, sender, name string, stored time.Time) error {
	before, last, err := r.answers.LastBefore(ctx, e, sender, name)
	switch {
	case err != nil:
		return err
	case last.State == schemas.RequestFinished && before.CausationID == e.ID: // and not dropped
		return r.cfg.Bus.DropRequest(ctx, e)
	case last.State == schemas.RequestFinished:
		return nil
	}
	q, no := request.Read(e, sender, name, stored, last)
	s, known := r.policy.Load().Asking().Sender(sender)
	if no != nil || !known || !s.May(q.Action) {
		return nil // the watcher rejects it
	}
	answer := schemas.Receipt{Sender: sender, Name: name, Requester: q.Requester, Action: q.Action}
	if answer.Fingerprint, err = request.Fingerprint(q); err != nil {
		return err
	}
	key, noneOpen := sender+"/"+q.Request, request.NewEnd(schemas.ReceiptNothingToDo, "no request %s is open", q.Request)
	x, open := r.get(key)
	switch {
	case !open:
		_, last, err := r.answers.Last(ctx, sender, q.Request)
		if err != nil || last.Action != schemas.ActionMaintain {
			return err
		}
		return r.answers.Finish(ctx, e, answer, noneOpen)
	case x.accepted == nil:
		return fmt.Errorf("cancel request %s: it was not read yet", key)
	}
	x.end = request.NewEnd(schemas.ReceiptCancelled, "canceled: %s%s",
		q.Reason, goesOn(r.objects.get(schemas.RequestedMaintenance(x.accepted.Maintenance.Node))))
	if x, open = r.put(key, x, true); !open || x.end.Reason != schemas.ReceiptCancelled {
		return r.answers.Finish(ctx, e, answer, noneOpen)
	}
	r.enqueue(requestKey, key)
	return r.answers.Finish(ctx, e, answer, request.NewEnd(schemas.ReceiptDone, "request %s is canceled", q.Request))
}
