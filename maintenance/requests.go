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

// requests are the open requests for nodes. The watcher answers all others, and those over the rate limit of their sender; this
// role reads requests at the same rate. The bus keeps the requests and their receipts. Methods may be called from many goroutines.
type requests struct {
	*session

	mu    sync.Mutex
	open  map[string]*nodeRequest  // by SENDER/NAME
	rates map[string]*rate.Limiter // by sender; senders that the policy does not know share one
}

// nodeRequest is one open request. Mutable fields are guarded by requests.mu.
type nodeRequest struct {
	event  schemas.Event // without data; before it is read it has a channel and a sequence
	stored time.Time
	read   func() schemas.Event // nil: it was read
	// accepted is the receipt. nil: the request is not accepted yet.
	accepted *schemas.Receipt
	// uid identifies the maintenance. Empty: it is not known.
	uid types.UID
	// end is why the request is over. nil: it is not.
	end *request.Rejection
}

func newRequests(s *session) *requests {
	return &requests{session: s, open: map[string]*nodeRequest{}, rates: map[string]*rate.Limiter{}}
}

// othersPerMinute is the rate of all senders together that the policy does not know.
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

// add takes an open request over, to be read by reconcile.
func (r *requests) add(_ context.Context, e schemas.Event, stored time.Time, read func() schemas.Event) error {
	sender, name, ok := request.SenderOf(e.Channel)
	if !ok {
		return nil // the watcher rejects it
	}
	key := sender + "/" + name
	r.mu.Lock()
	defer r.mu.Unlock()
	if x := r.open[key]; x == nil || x.event.Sequence != e.Sequence {
		r.open[key] = &nodeRequest{event: e, stored: stored, read: read}
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

// get is a copy of an open request.
func (r *requests) get(key string) (x *nodeRequest, copied nodeRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if x = r.open[key]; x != nil {
		copied = *x
	}
	return x, copied
}

// update changes a request. Nothing ends twice.
func (r *requests) update(x *nodeRequest, change func(x *nodeRequest)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if x.end == nil {
		change(x)
	}
}

// remove forgets a request, unless another one has its name by now.
func (r *requests) remove(key string, x *nodeRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open[key] == x {
		delete(r.open, key)
	}
}

// reconcile reads a request and accepts or rejects it, or finishes one that is over. after is when to call it again.
func (r *requests) reconcile(ctx context.Context, key string) (after time.Duration, err error) {
	x, is := r.get(key)
	if x == nil {
		return 0, nil
	}
	sender, name, _ := strings.Cut(key, "/")
	if is.accepted == nil {
		if !r.allow(sender) {
			return time.Second, nil // by then the watcher has rejected it, if it is over the limit
		}
		if done, err := r.accept(ctx, sender, name, x); done || err != nil {
			if done && err == nil {
				r.remove(key, x)
			}
			return 0, err
		}
	}
	if _, is = r.get(key); is.accepted == nil {
		return 0, nil // another one has the name
	}
	if is.end == nil {
		end, err := r.over(ctx, is)
		if err != nil {
			return 0, err
		}
		if end == nil {
			return max(is.accepted.Deadline.Sub(r.now()), time.Millisecond), nil
		}
		r.update(x, func(x *nodeRequest) { x.end = end })
		_, is = r.get(key)
	}
	last := schemas.Receipt{
		Sender: sender, Name: name, Action: schemas.ActionMaintain, Maintenance: is.accepted.Maintenance,
		Fingerprint: is.accepted.Fingerprint, State: schemas.RequestFinished, Reason: is.end.Reason, Message: is.end.Message,
	}
	if err := r.close(ctx, is.event, last); err != nil {
		return 0, err
	}
	r.log.Info("request finished", "request", key, "reason", is.end.Reason, "message", is.end.Message)
	r.remove(key, x)
	return 0, nil
}

// accept reads a request and does what it asks for. done: nothing is left to do, or the watcher answers it.
func (r *requests) accept(ctx context.Context, sender, name string, x *nodeRequest) (done bool, err error) {
	if open, err := r.cfg.Bus.HasRequest(ctx, x.event); err != nil || !open {
		return err == nil, err // the watcher has rejected it
	}
	e := x.event
	if x.read != nil {
		e = x.read()
	}
	action := request.Action(e)
	if action == schemas.ActionCancel {
		return true, r.cancel(ctx, e, sender, name, x.stored)
	}
	if action != schemas.ActionMaintain {
		return true, nil
	}
	before, last, err := r.lastReceipt(ctx, sender, name)
	if err != nil {
		return false, err
	}
	q, no := request.Read(e, sender, name, x.stored)
	if no == nil {
		no = mayAsk(r.policy.Load().Asking(), q)
	}
	answer := schemas.Receipt{
		Sender: sender, Name: name, Action: q.Action, Maintenance: q.Maintenance, DryRun: q.DryRun, Target: q.Target,
	}
	if answer.Fingerprint, err = request.Fingerprint(q); err != nil {
		return false, err
	}
	switch {
	case before.CausationID == e.ID && last.State == schemas.RequestAccepted: // by the leader before
		r.begin(x, e, last, "")
		if no != nil { // the policy is another one now
			r.update(x, func(x *nodeRequest) { x.end = request.Refuse(schemas.ReceiptCancelled, "%s", no.Message) })
		}
		return false, nil
	case before.CausationID == e.ID && e.ID != "": // answered, and not dropped
		return true, r.cfg.Bus.DropRequest(ctx, e)
	case no != nil:
		return true, r.reject(ctx, e, answer, no)
	case before.ID == "" || last.State != schemas.RequestFinished:
		return r.do(ctx, x, e, answer, q)
	case last.Fingerprint != answer.Fingerprint: // the name was used before
		no = request.Refuse(schemas.ReceiptConflict, "a finished request has this name: choose another")
		return true, r.reject(ctx, e, answer, no)
	}
	return true, r.close(ctx, e, last)
}

// do stores the desired state of a node, and then accepts the request: a leader that takes over in between stores the same again.
func (r *requests) do(
	ctx context.Context, x *nodeRequest, e schemas.Event, answer schemas.Receipt, q schemas.Request,
) (done bool, err error) {
	s, _ := r.policy.Load().Asking().Sender(q.Sender)
	if r.openOf(s.Name) >= s.Open {
		no := request.Refuse(schemas.ReceiptTooManyRequests, "%d requests of this sender are open", s.Open)
		return true, r.reject(ctx, e, answer, no)
	}
	wanted := *q.Maintenance
	node, no := r.node(wanted)
	if no != nil {
		return true, r.reject(ctx, e, answer, no)
	}
	if node != nil {
		wanted.Node = node.Name
	}
	answer.Maintenance = &wanted
	name := schemas.RequestedMaintenance(wanted.Node)
	d := desired{name: name, node: wanted.Node, reason: reasonOf(q), NodeRequest: wanted, uid: markOf(node, name)}
	is, no, err := r.change(ctx, name, func(is *v1alpha1.NodeMaintenance) (*v1alpha1.NodeMaintenance, *request.Rejection) {
		switch {
		case is == nil && wanted.Stage == v1alpha1.Complete && d.uid == "":
			return nil, nil
		case is == nil && node == nil:
			return nil, request.Refuse(schemas.ReceiptUnknownTarget, "there is no node %s", wanted.Node)
		}
		return d.of(is, r.now())
	})
	switch {
	case err != nil:
		return false, err
	case no != nil:
		return true, r.reject(ctx, e, answer, no)
	case is == nil:
		end := notHeld(wanted.Node, r.otherHolder(wanted.Node))
		answer.State, answer.Reason, answer.Message = schemas.RequestFinished, end.Reason, end.Message
		return true, r.close(ctx, e, answer)
	}
	answer.State, answer.Reason, answer.Deadline = schemas.RequestAccepted, schemas.ReceiptAccepted, request.Deadline(q, x.stored)
	answer.Message = fmt.Sprintf("node %s will be %s", wanted.Node, reachedWord(wanted.Stage))
	if err := r.answer(ctx, e, answer); err != nil {
		return false, err
	}
	r.begin(x, e, answer, is.UID)
	return false, nil
}

// begin notes that a request is accepted.
func (r *requests) begin(x *nodeRequest, e schemas.Event, accepted schemas.Receipt, uid types.UID) {
	e.Data = nil
	r.update(x, func(x *nodeRequest) { x.event, x.read, x.accepted, x.uid = e, nil, &accepted, uid })
}

// mayAsk says why the policy does not let the sender ask for a node.
func mayAsk(p policy.Requests, q schemas.Request) *request.Rejection {
	s, known := p.Sender(q.Sender)
	switch {
	case !known:
		return request.Refuse(schemas.ReceiptNotAllowed, "the policy has no sender %q", q.Sender)
	case !s.May(q.Action):
		return request.Refuse(schemas.ReceiptNotAllowed, "the policy does not let %s ask to %s", s.Name, q.Action)
	case !s.Nodes:
		return request.Refuse(schemas.ReceiptNotAllowed, "the policy does not let %s ask for the pods of a node", s.Name)
	case len(s.Namespaces) > 0:
		return request.Refuse(schemas.ReceiptNotAllowed,
			"the policy lets %s ask for pods of some namespaces alone, and a maintenance is about all pods of a node", s.Name)
	}
	return nil
}

// openOf counts the accepted requests of a sender.
func (r *requests) openOf(sender string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.open {
		if x.accepted != nil && x.accepted.Sender == sender {
			n++
		}
	}
	return n
}

// node is the node that a request names; nil if it names one that does not exist.
func (r *requests) node(q schemas.NodeRequest) (*corev1.Node, *request.Rejection) {
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
		return nil, request.Refuse(schemas.ReceiptUnknownTarget, "no node has the provider ID %s", q.ProviderID)
	case 1:
		return found[0], nil
	}
	return nil, request.Refuse(schemas.ReceiptUnknownTarget,
		"%d nodes have the provider ID %s: name the node", len(found), q.ProviderID)
}

// otherHolder is the maintenance that has cordoned a node, if it is not the one of requests. Empty: there is none.
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

// over says why an accepted request is over. nil: it is not. A refused maintenance that has begun nothing is completed; otherwise
// it would begin unexpectedly, as soon as the guard accepts it.
func (r *requests) over(ctx context.Context, x nodeRequest) (*request.Rejection, error) {
	want := *x.accepted.Maintenance
	name := schemas.RequestedMaintenance(want.Node)
	is, err := r.stored(ctx, name)
	if err != nil {
		return nil, err
	}
	end := judge(want, x.uid, is, r.otherHolder(want.Node))
	if end == nil && !r.now().Before(x.accepted.Deadline) {
		end = late(want, is)
	}
	if end == nil || end.Reason != schemas.ReceiptRefused || begun(is) {
		return end, nil
	}
	_, no, err := r.change(ctx, name, func(now *v1alpha1.NodeMaintenance) (*v1alpha1.NodeMaintenance, *request.Rejection) {
		if now == nil || now.UID != is.UID || now.Generation != is.Generation {
			return nil, nil
		}
		return completed(now).of(now, r.now())
	})
	if no != nil { // a dry run leaves the request open
		return nil, err
	}
	return end, err
}

// cancel ends an open request for a node. The watcher answers if the request is about pods.
func (r *requests) cancel(ctx context.Context, e schemas.Event, sender, name string, stored time.Time) error {
	q, no := request.Read(e, sender, name, stored)
	s, known := r.policy.Load().Asking().Sender(sender)
	if no != nil || !known || !s.May(q.Action) {
		return nil // the watcher rejects it
	}
	answer := schemas.Receipt{Sender: sender, Name: name, Action: q.Action, State: schemas.RequestFinished}
	key := sender + "/" + q.Request
	x, is := r.get(key)
	switch {
	case x == nil:
		_, last, err := r.lastReceipt(ctx, sender, q.Request)
		if err != nil || last.Action != schemas.ActionMaintain {
			return err
		}
		answer.Reason, answer.Message = schemas.ReceiptNothingToDo, "no request "+q.Request+" is open"
		return r.close(ctx, e, answer)
	case is.accepted == nil:
		return fmt.Errorf("cancel request %s: it was not read yet", key)
	}
	why := "cancelled: " + q.Reason + goesOn(r.objects.get(schemas.RequestedMaintenance(is.accepted.Maintenance.Node)))
	r.update(x, func(x *nodeRequest) { x.end = request.Refuse(schemas.ReceiptCancelled, "%s", why) })
	r.enqueue(requestKey, key)
	answer.Reason, answer.Message = schemas.ReceiptDone, "request "+q.Request+" is given up"
	return r.close(ctx, e, answer)
}

// lastReceipt reads the last receipt for a name. The zero Event: there is none that can be read.
func (r *requests) lastReceipt(ctx context.Context, sender, name string) (schemas.Event, schemas.Receipt, error) {
	e, err := r.cfg.Bus.Receipt(ctx, sender, name)
	if err != nil || e.ID == "" {
		return schemas.Event{}, schemas.Receipt{}, err
	}
	last, err := schemas.Decode[schemas.Receipt](e)
	if err != nil {
		return schemas.Event{}, schemas.Receipt{}, nil
	}
	return e, last, nil
}

// answer publishes a receipt.
func (r *requests) answer(ctx context.Context, e schemas.Event, receipt schemas.Receipt) error {
	out, err := request.Receipt(r.cfg.Source, receipt, r.now(), e)
	if err != nil {
		return err
	}
	if _, err := r.cfg.Bus.Publish(ctx, out); err != nil {
		return fmt.Errorf("receipt for request %s: %w", e.ID, err)
	}
	sender := receipt.Sender
	if _, known := r.policy.Load().Asking().Sender(sender); !known {
		sender = "other"
	}
	r.metrics.requests.WithLabelValues(sender, string(receipt.State)).Inc()
	return nil
}

// reject answers that nothing is done, and drops the request.
func (r *requests) reject(ctx context.Context, e schemas.Event, answer schemas.Receipt, no *request.Rejection) error {
	answer.State, answer.Reason, answer.Message = schemas.RequestRejected, no.Reason, no.Message
	r.log.Info("request rejected", "sender", answer.Sender, "name", answer.Name, "reason", no.Reason, "message", no.Message)
	return r.close(ctx, e, answer)
}

// close publishes the last receipt of a request, and drops the request.
func (r *requests) close(ctx context.Context, e schemas.Event, last schemas.Receipt) error {
	if err := r.answer(ctx, e, last); err != nil {
		return err
	}
	return r.cfg.Bus.DropRequest(ctx, e)
}
