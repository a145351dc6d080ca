package maintenance

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/request"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// allowing lets senders request something.
func allowing(senders ...policy.Sender) func(*Config) {
	return func(c *Config) { c.Policy.Requests = &policy.Requests{Senders: senders} }
}

// ask publishes a request, reconciles it, and returns a summary of its last receipt. Empty means that another role
// answers.
func (d *desk) ask(r schemas.Request) string {
	d.Helper()
	if r.Reason == "" {
		r.Reason = "new kernel"
	}
	e := schematest.Event(d, "/test", r, d.clock, schemas.Event{})
	_, err := d.cfg.Bus.Publish(d.Context(), e)
	d.Must(err)
	d.take(r.Sender + "/" + r.Name)
	return d.receipt(r.Sender, r.Name)
}

// take reads an open request from the bus, and reconciles it.
func (d *desk) take(key string) {
	d.Helper()
	ctx, end := context.WithCancel(d.Context())
	defer end()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = d.cfg.Bus.FollowRequests(ctx, d.requests.add)
	}()
	defer func() { end(); <-ended }()
	expect.Eventually(d, "the request is read", func() bool { _, open := d.requests.get(key); return open })
	_, err := d.requests.reconcile(ctx, key)
	d.Must(err)
}

// receipt returns a summary of the last receipt.
func (d *desk) receipt(sender, name string) string {
	d.Helper()
	_, got, err := d.requests.answers.Last(d.Context(), sender, name)
	d.Must(err)
	if got.State == "" {
		return ""
	}
	return fmt.Sprintf("%s %s: %s", got.State, got.Reason, got.Message)
}

func toMaintain(name, node string, stage v1alpha1.Stage) schemas.Request {
	return schemas.Request{
		Sender: "ops", Name: name, Action: schemas.ActionMaintain, Maintenance: &schemas.NodeRequest{Node: node, Stage: stage},
	}
}

func TestNodeRequests(t *testing.T) {
	d := newDesk(t, allowing(policy.Sender{Name: "ops", Nodes: true, PerMinute: 600, Open: 2}, policy.Sender{Name: "dev", PerMinute: 600, Open: 2}))
	d.node("n1", false, "", "")
	d.node("n2", false, "disks", "u2")
	dev := toMaintain("a", "n1", v1alpha1.Drain)
	dev.Sender = "dev"
	for _, tt := range []struct {
		name    string
		request schemas.Request
		want    string
	}{
		{"a drain", toMaintain("drain", "n1", v1alpha1.Drain), "accepted Accepted: node n1 will be drained"},
		{"an earlier stage", toMaintain("cordon", "n1", v1alpha1.Cordon),
			"rejected Conflict: the stage cannot go back from Drain to Cordon; retry when the node is given back"},
		{"a node that does not exist", toMaintain("gone", "n9", v1alpha1.Drain), "rejected UnknownTarget: there is no node n9"},
		{"a node that another maintenance holds", toMaintain("other", "n2", v1alpha1.Complete),
			"finished HeldByAnother: node n2 stays cordoned: maintenance disks holds it; set its stage to Complete"},
		{"a sender without the right", dev, "rejected NotAllowed: the policy does not allow dev to request the pods of a node"},
		{"an action of the watcher", schemas.Request{Sender: "ops", Name: "evaluate", Action: schemas.ActionEvaluate}, ""},
		{"a cancellation", schemas.Request{Sender: "ops", Name: "cancel", Action: schemas.ActionCancel, Request: "drain"},
			"finished Done: request drain is canceled"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d.TB = t
			expect.Equal(t, "receipt", d.ask(tt.request), tt.want)
		})
	}
	d.TB = t
	expect.Equal(t, "the table has", d.wanted("node/n1"), (&wanted{specOf("n1", v1alpha1.Drain, "new kernel"), 1}))
	_, err := d.requests.reconcile(t.Context(), "ops/drain")
	d.Must(err)
	const cancelled = "finished Cancelled: canceled: new kernel; its maintenance goes on until a request for Complete"
	expect.Equal(t, "the cancelled request", d.receipt("ops", "drain"), cancelled)
}

// A new leader, or a new policy, begins a new session.
func TestNodeRequestsInNewSession(t *testing.T) {
	d := newDesk(t, allowing(policy.Sender{Name: "ops", Nodes: true, PerMinute: 1, Open: 3}))
	d.node("n1", false, "", "")
	d.node("n2", false, "", "")
	d.ask(toMaintain("one", "n1", v1alpha1.Drain))
	d.clock = d.clock.Add(time.Minute)
	d.session = d.newSession(nil)
	t.Run("an accepted request uses up no rate", func(t *testing.T) {
		d.TB = t
		d.take("ops/one")
		got := []string{d.ask(toMaintain("two", "n2", v1alpha1.Drain)), d.ask(toMaintain("three", "n1", v1alpha1.Drain))}
		if want := []string{"accepted Accepted: node n2 will be drained", ""}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if x, _ := d.requests.get("ops/one"); x.accepted == nil {
			t.Error("the accepted request: got no receipt, want one")
		}
	})
}

// A client that got no answer sends its request again.
func TestNodeRequestSentAgain(t *testing.T) {
	d := newDesk(t, allowing(policy.Sender{Name: policy.HTTPSender, Nodes: true, PerMinute: 600, Open: 4}))
	d.node("n1", false, "", "")
	giveBack := toMaintain("back", "n1", v1alpha1.Complete)
	giveBack.Sender, giveBack.Requester, giveBack.Deadline = policy.HTTPSender, "ann", d.clock.Add(time.Hour).UTC()
	late, other := giveBack, giveBack
	late.Deadline = d.clock.Add(-time.Hour).UTC()
	other.Requester = "bob"
	nothing := schemas.Receipt{
		Sender: policy.HTTPSender, Name: "back", State: schemas.RequestFinished, Reason: schemas.ReceiptNothingToDo, Requester: "ann",
		Message: "node n1 is not maintained", Action: schemas.ActionMaintain, Maintenance: giveBack.Maintenance,
		Fingerprint: d.fingerprint(giveBack),
	}
	t.Run("after its deadline", func(t *testing.T) {
		d.TB = t
		d.ask(giveBack)
		d.ask(late)
		expect.Equal(t, "receipts", d.receipts("back"), []schemas.Receipt{nothing, nothing})
	})
	t.Run("by another user", func(t *testing.T) {
		d.TB = t
		d.ask(other)
		conflict := nothing
		conflict.State, conflict.Reason, conflict.Requester = schemas.RequestRejected, schemas.ReceiptConflict, "bob"
		conflict.Message, conflict.Fingerprint = "a finished request has this name: choose another", d.fingerprint(other)
		expect.Equal(t, "receipts", d.receipts("back"), []schemas.Receipt{nothing, nothing, conflict, nothing})
	})
}

func TestCancelOverHTTP(t *testing.T) {
	d := newDesk(t, allowing(policy.Sender{Name: policy.HTTPSender, Nodes: true, PerMinute: 600, Open: 4}))
	d.node("n1", false, "", "")
	drain := toMaintain("drain", "n1", v1alpha1.Drain)
	drain.Sender = policy.HTTPSender
	cancel := schemas.Request{Sender: policy.HTTPSender, Name: "stop", Action: schemas.ActionCancel, Request: "drain"}
	d.ask(drain)
	d.ask(cancel)
	d.ask(cancel) // the watcher repeats the receipt
	t.Run("the receipt has the fingerprint", func(t *testing.T) {
		expect.Equal(t, "receipts", d.receipts("stop"), []schemas.Receipt{{
			Sender: policy.HTTPSender, Name: "stop", State: schemas.RequestFinished, Reason: schemas.ReceiptDone,
			Message: "request drain is canceled", Action: schemas.ActionCancel, Fingerprint: d.fingerprint(cancel),
		}})
	})
}

// receipts returns all receipts for a request over HTTP.
func (d *desk) receipts(name string) (list []schemas.Receipt) {
	d.Helper()
	query := bus.Query{Channels: []string{schemas.Receipt{Sender: policy.HTTPSender, Name: name}.Channel()}, Since: time.Unix(0, 0)}
	d.Must(d.cfg.Bus.(natsBus).Events(d.Context(), query, func(e schemas.Event) error {
		list = append(list, schematest.Decode[schemas.Receipt](d, e))
		return nil
	}))
	return list
}

// fingerprint returns the fingerprint of a request that [desk.ask] publishes.
func (d *desk) fingerprint(r schemas.Request) string {
	d.Helper()
	r.Reason = "new kernel"
	text, err := request.Fingerprint(r)
	d.Must(err)
	return text
}

// interrupted is a table whose next read waits until during has returned.
type interrupted struct {
	Table
	during func()
}

func (i *interrupted) Get(ctx context.Context, name string) (*v1alpha1.NodeMaintenance, error) {
	if during := i.during; during != nil {
		i.during = nil
		during()
	}
	return i.Table.Get(ctx, name)
}

func TestCancelDuringReconcile(t *testing.T) {
	table := &interrupted{}
	d := newDesk(t, allowing(policy.Sender{Name: "ops", Nodes: true, PerMinute: 600, Open: 2}),
		func(c *Config) { table.Table, c.Table = c.Table, table })
	d.node("n1", false, "", "")
	d.ask(toMaintain("drain", "n1", v1alpha1.Drain))
	told := ""
	table.during = func() {
		told = d.ask(schemas.Request{Sender: "ops", Name: "cancel", Action: schemas.ActionCancel, Request: "drain"})
	}
	for range 2 { // the cancellation enqueues the request again
		_, err := d.requests.reconcile(t.Context(), "ops/drain")
		d.Must(err)
	}
	if want := "finished Done: request drain is canceled"; told != want {
		t.Errorf("the cancellation: got %q, want %q", told, want)
	}
	const cancelled = "finished Cancelled: canceled: new kernel; its maintenance goes on until a request for Complete"
	expect.Equal(t, "the request", d.receipt("ops", "drain"), cancelled)
}

func TestCancelAfterEnd(t *testing.T) {
	d := newDesk(t, allowing(policy.Sender{Name: "ops", Nodes: true, PerMinute: 600, Open: 2}))
	d.node("n1", false, "", "")
	d.ask(toMaintain("drain", "n1", v1alpha1.Drain))
	x, _ := d.requests.get("ops/drain")
	x.end = request.NewEnd(schemas.ReceiptDone, "node n1 is drained")
	d.requests.put("ops/drain", x, true)
	cancel := schemas.Request{Sender: "ops", Name: "cancel", Action: schemas.ActionCancel, Request: "drain"}
	expect.Equal(t, "the cancellation", d.ask(cancel), "finished NothingToDo: no request drain is open")
	_, err := d.requests.reconcile(t.Context(), "ops/drain")
	d.Must(err)
	expect.Equal(t, "the request", d.receipt("ops", "drain"), "finished Done: node n1 is drained")
}

func TestJudge(t *testing.T) {
	drain := schemas.NodeRequest{Node: "n1", Stage: v1alpha1.Drain}
	giveBack := schemas.NodeRequest{Node: "n1", Stage: v1alpha1.Complete}
	in := func(n v1alpha1.NodeStatus) *v1alpha1.NodeMaintenance {
		n.Name = "n1"
		return &v1alpha1.NodeMaintenance{Spec: specOf("n1", v1alpha1.Drain, ""), Status: v1alpha1.NodeMaintenanceStatus{Nodes: []v1alpha1.NodeStatus{n}}}
	}
	late := in(v1alpha1.NodeStatus{Stage: v1alpha1.Held, Message: "3 pods left"})
	completing := in(v1alpha1.NodeStatus{Stage: v1alpha1.Draining})
	completing.Spec.Stage = v1alpha1.Complete
	for _, tt := range []struct {
		name  string
		want  schemas.NodeRequest
		is    *v1alpha1.NodeMaintenance
		other string
		end   *request.End
	}{
		{"draining", drain, in(v1alpha1.NodeStatus{Stage: v1alpha1.Draining}), "", nil},
		{"drained", drain, in(v1alpha1.NodeStatus{Stage: v1alpha1.IsDrained, Pods: &v1alpha1.PodCounts{Moved: 1, Staying: 2}}), "",
			&request.End{Reason: schemas.ReceiptDone, Message: "node n1 is drained: 1 pod has left, 2 stay"}},
		{"late", drain, late, "", &request.End{Reason: schemas.ReceiptDeadlineExceeded, Message: "node n1 stays cordoned: 3 pods left"}},
		{"completed meanwhile", drain, completing, "",
			&request.End{Reason: schemas.ReceiptCancelled, Message: "node n1 is given back, as a later request asks"}},
		{"given back", giveBack, nil, "", &request.End{Reason: schemas.ReceiptDone, Message: "node n1 is given back"}},
		{"held by a drain trigger", giveBack, nil, "sign/n1", &request.End{Reason: schemas.ReceiptHeldByAnother,
			Message: "node n1 stays cordoned: maintenance sign/n1 holds it until the drain trigger is gone from the node"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			expect.Equal(t, "end", judge(tt.want, "", tt.is, tt.other), tt.end)
		})
	}
}
