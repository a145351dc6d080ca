package maintenance

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/request"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// requests are the open requests for nodes. The watcher answers all others, and those beyond the rate of their sender; this role
// reads requests at the same rate. What has to outlive a session is on the bus: the request, and its receipt. Its methods may be
// called from many goroutines.
type requests struct {
	*session

	mu   sync.Mutex
	open map[string]*nodeRequest // by SENDER/NAME
	// rates are the rates of the senders; those that the policy does not know share one.
	rates map[string]flowcontrol.RateLimiter
}

// nodeRequest is one open request.
type nodeRequest struct {
	event  schemas.Event // without data; before it is read it has a channel and a sequence
	stored time.Time
	read   func() schemas.Event // nil: it was read
	// request is what it asks for, once it is accepted, and wanted the same with the name of the node. nil: it is not accepted.
	request  schemas.Request
	wanted   *schemas.NodeRequest
	deadline time.Time
	// uid is that of the maintenance. Empty: it is not known.
	uid types.UID
	// fingerprint is that of its receipts.
	fingerprint string
	// end is why the request is over. Empty: it is not.
	end schemas.ReceiptReason
	why string
}

func newRequests(s *session) *requests {
	return &requests{session: s, open: map[string]*nodeRequest{}, rates: map[string]flowcontrol.RateLimiter{}}
}

// othersPerMinute is the rate of all senders together that the policy does not know.
const othersPerMinute = 10

// rate is the rate of a sender. The caller holds mu.
func (r *requests) rate(sender string) flowcontrol.RateLimiter {
	s, known := r.policy.Load().Asking().Sender(sender)
	perMinute, name := othersPerMinute, ""
	if known {
		perMinute, name = s.PerMinute, s.Name
	}
	if r.rates[name] == nil {
		r.rates[name] = flowcontrol.NewTokenBucketRateLimiter(float32(perMinute)/60, max(1, perMinute))
	}
	return r.rates[name]
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
	if x := r.open[key]; x != nil && x.event.Sequence == e.Sequence {
		return nil
	}
	r.open[key] = &nodeRequest{event: e, stored: stored, read: read}
	r.enqueue(requestKey, key)
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
		if x.wanted != nil && schemas.RequestedMaintenance(x.wanted.Node) == name {
			r.enqueue(requestKey, key)
		}
	}
}

func (r *requests) get(key string) *nodeRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open[key]
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
	x := r.get(key)
	if x == nil {
		return 0, nil
	}
	if x.wanted == nil {
		if x.read != nil {
			sender, _, _ := strings.Cut(key, "/")
			r.mu.Lock()
			allowed := r.rate(sender).TryAccept()
			r.mu.Unlock()
			if !allowed {
				return time.Second, nil // by then the watcher has rejected it, if it is one too many
			}
		}
		done, err := r.accept(ctx, key, x)
		if err != nil {
			return 0, err
		}
		if done {
			r.remove(key, x)
			return 0, nil
		}
	}
	if err := r.look(ctx, x); err != nil {
		return 0, err
	}
	r.mu.Lock()
	end, why := x.end, x.why
	r.mu.Unlock()
	if end == "" {
		return max(x.deadline.Sub(r.now()), time.Millisecond), nil
	}
	last := r.receiptOf(key, x)
	last.State, last.Reason, last.Message = schemas.RequestFinished, end, why
	if err := r.close(ctx, x.event, last); err != nil {
		return 0, err
	}
	r.log.Info("request finished", "request", key, "reason", end, "message", why)
	r.remove(key, x)
	return 0, nil
}

func (r *requests) receiptOf(key string, x *nodeRequest) schemas.Receipt {
	sender, name, _ := strings.Cut(key, "/")
	return schemas.Receipt{
		Sender: sender, Name: name, Action: x.request.Action, Maintenance: x.wanted, Fingerprint: x.fingerprint,
	}
}

// accept reads a request and does what it asks for. done: nothing is left to do, or another role answers it.
func (r *requests) accept(ctx context.Context, key string, x *nodeRequest) (done bool, err error) {
	if open, err := r.cfg.Bus.HasRequest(ctx, x.event); err != nil || !open {
		return err == nil, err // the watcher has rejected it: it was one too many
	}
	e := x.event
	if x.read != nil {
		e = x.read()
	}
	action := request.Action(e)
	if action != schemas.ActionMaintain && action != schemas.ActionCancel {
		return true, nil
	}
	sender, name, _ := strings.Cut(key, "/")
	before, last, err := r.lastReceipt(ctx, sender, name)
	if err != nil {
		return false, err
	}
	if action == schemas.ActionCancel {
		return true, r.cancel(ctx, e, sender, name, x.stored)
	}
	q, no := request.Read(e, sender, name, x.stored)
	answer := schemas.Receipt{Sender: sender, Name: name, Action: q.Action, Maintenance: q.Maintenance, DryRun: q.DryRun, Target: q.Target}
	if answer.Fingerprint, err = request.Fingerprint(q); err != nil {
		return false, err
	}
	switch {
	case before.CausationID == e.ID && last.State == schemas.RequestAccepted: // by the leader before
		r.begin(x, e, q, last, "")
		if no == nil {
			no = mayAsk(r.policy.Load().Asking(), q)
		}
		if no != nil { // the policy is another one now
			r.mu.Lock()
			x.end, x.why = schemas.ReceiptCancelled, no.Message
			r.mu.Unlock()
		}
		return false, nil
	case before.CausationID == e.ID && e.ID != "": // answered, and not dropped
		return true, r.cfg.Bus.DropRequest(ctx, e)
	}
	if no == nil {
		no = mayAsk(r.policy.Load().Asking(), q)
	}
	if no != nil {
		return true, r.reject(ctx, e, answer, no)
	}
	if before.ID != "" && last.State == schemas.RequestFinished { // the name was used before: it is the same request
		if last.Fingerprint != answer.Fingerprint {
			return true, r.reject(ctx, e, answer, request.Refuse(schemas.ReceiptConflict, "a finished request has this name: choose another"))
		}
		return true, r.close(ctx, e, last)
	}
	return r.do(ctx, x, e, answer, q)
}

// do stores the desired state of a node, and then says that the request is accepted: a leader that takes over in between stores
// the same again, which changes nothing.
func (r *requests) do(
	ctx context.Context, x *nodeRequest, e schemas.Event, answer schemas.Receipt, q schemas.Request,
) (done bool, err error) {
	s, _ := r.policy.Load().Asking().Sender(q.Sender)
	if r.openOf(s.Name) >= s.Open {
		return true, r.reject(ctx, e, answer, request.Refuse(schemas.ReceiptTooManyRequests, "%d requests of this sender are open", s.Open))
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
	is, no, err := r.store(ctx, q, wanted, node)
	switch {
	case err != nil:
		return false, err
	case no != nil:
		return true, r.reject(ctx, e, answer, no)
	case is == nil:
		answer.State = schemas.RequestFinished
		answer.Reason, answer.Message = notHeld(wanted.Node, r.otherHolder(wanted.Node))
		return true, r.close(ctx, e, answer)
	}
	answer.State, answer.Reason, answer.Deadline = schemas.RequestAccepted, schemas.ReceiptAccepted, request.Deadline(q, x.stored)
	answer.Message = fmt.Sprintf("node %s is to be %s", wanted.Node, reachedWord(wanted.Stage))
	if err := r.answer(ctx, e, answer); err != nil {
		return false, err
	}
	r.begin(x, e, q, answer, is.UID)
	return false, nil
}

// begin notes that a request is accepted.
func (r *requests) begin(x *nodeRequest, e schemas.Event, q schemas.Request, accepted schemas.Receipt, uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.Data = nil
	x.event, x.read, x.request, x.wanted, x.deadline, x.uid = e, nil, q, accepted.Maintenance, accepted.Deadline, uid
	x.fingerprint = accepted.Fingerprint
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
func (r *requests) openOf(sender string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, x := range r.open {
		if x.wanted != nil && x.request.Sender == sender {
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
	return nil, request.Refuse(schemas.ReceiptUnknownTarget, "%d nodes have the provider ID %s: name the node", len(found), q.ProviderID)
}

// store stores the desired state of a node, which is nil if it does not exist. The result is nil if there is nothing to complete.
// A maintenance that the table has lost begins again with the UID of the mark on the node.
func (r *requests) store(
	ctx context.Context, q schemas.Request, wanted schemas.NodeRequest, node *corev1.Node,
) (*v1alpha1.NodeMaintenance, *request.Rejection, error) {
	name := schemas.RequestedMaintenance(wanted.Node)
	d := desired{name: name, node: wanted.Node, reason: reasonOf(q), NodeRequest: wanted, uid: markOf(node, name)}
	return r.change(ctx, name, func(is *v1alpha1.NodeMaintenance) (*v1alpha1.NodeMaintenance, *request.Rejection) {
		switch {
		case is == nil && wanted.Stage == v1alpha1.Complete && d.uid == "":
			return nil, nil
		case is == nil && node == nil:
			return nil, request.Refuse(schemas.ReceiptUnknownTarget, "there is no node %s", wanted.Node)
		}
		return d.of(is, r.now())
	})
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

// look finds out whether an accepted request is over. One that was refused, of which nothing was begun, is given up: it would begin
// as soon as the guard does not refuse it any more, when nobody expects it.
func (r *requests) look(ctx context.Context, x *nodeRequest) error {
	r.mu.Lock()
	over, want, uid := x.end != "", *x.wanted, x.uid
	r.mu.Unlock()
	if over {
		return nil
	}
	name := schemas.RequestedMaintenance(want.Node)
	is, err := r.session.read(ctx, name)
	if err != nil {
		return err
	}
	end, why := judge(want, uid, is, r.otherHolder(want.Node))
	if end == "" && !r.now().Before(x.deadline) {
		end, why = schemas.ReceiptDeadlineExceeded, late(want, is)
	}
	var no *request.Rejection
	if end == schemas.ReceiptRefused && !begun(is) {
		_, no, err = r.change(ctx, name, func(now *v1alpha1.NodeMaintenance) (*v1alpha1.NodeMaintenance, *request.Rejection) {
			if now == nil || now.UID != is.UID || now.Generation != is.Generation {
				return nil, nil
			}
			give := desired{reason: now.Spec.Reason, NodeRequest: schemas.NodeRequest{Stage: v1alpha1.Complete}}
			return give.of(now, r.now())
		})
	}
	if err == nil && no == nil && end != "" { // a dry run cannot give it up, and leaves it open
		r.mu.Lock()
		x.end, x.why = end, why
		r.mu.Unlock()
	}
	return err
}

// cancel ends an open request for a node. The watcher answers if the request is about something else.
func (r *requests) cancel(ctx context.Context, e schemas.Event, sender, name string, stored time.Time) error {
	q, no := request.Read(e, sender, name, stored)
	s, known := r.policy.Load().Asking().Sender(sender)
	if no != nil || !known || !s.May(q.Action) {
		return nil // the watcher rejects it
	}
	answer := schemas.Receipt{Sender: sender, Name: name, Action: q.Action, State: schemas.RequestFinished}
	key := sender + "/" + q.Request
	x := r.get(key)
	if x == nil {
		_, last, err := r.lastReceipt(ctx, sender, q.Request)
		if err != nil || last.Action != schemas.ActionMaintain {
			return err
		}
		answer.Reason, answer.Message = schemas.ReceiptNothingToDo, "no request "+q.Request+" is open"
		return r.close(ctx, e, answer)
	}
	r.mu.Lock()
	accepted := x.wanted != nil
	if accepted && x.end == "" {
		x.end = schemas.ReceiptCancelled
		x.why = "cancelled: " + q.Reason + goesOn(r.index.get(schemas.RequestedMaintenance(x.wanted.Node)))
	}
	r.mu.Unlock()
	if !accepted {
		return fmt.Errorf("cancel request %s: it was not read yet", key)
	}
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
