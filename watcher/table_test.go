package watcher

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/bus/bustest"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/schematest"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// verdictsOf has the verdicts of a bus as a watcher wants them.
type verdictsOf struct{ *bus.Bus }

func (b verdictsOf) FollowVerdicts(ctx context.Context, since time.Time, handle func(schemas.Event)) error {
	return b.Events(ctx, bus.Query{Channels: []string{bus.VerdictChannels}, Since: since, Follow: true}, func(e schemas.Event) error {
		handle(e)
		return nil
	})
}

// office is a watcher of objects that a test changes, with a real bus.
type office struct {
	*site
	bus    *bus.Bus
	scopes chan schemas.Event // of maintenances
}

func newOffice(t *testing.T, p policy.Policy) *office {
	t.Helper()
	b := bustest.New(t, schemas.MaintenanceStrategy)
	o := &office{bus: b, scopes: make(chan schemas.Event, 1000)}
	running(t, func(ctx context.Context) {
		_ = b.Work(ctx, bus.Work{Strategy: schemas.MaintenanceStrategy}, func(_ context.Context, e schemas.Event) error {
			o.scopes <- e
			return nil
		})
	})
	o.site = newSite(t, machine("n1", "a"), machine("n2", "b"))
	o.w.plan.Store(mustPlan(t, p))
	o.w.maintained.known.Store(false)
	o.w.config.Bus, o.w.config.Requests, o.w.config.Maintenances = verdictsOf{b}, b, b.Maintenances()
	o.w.table = &table{bus: b.Maintenances(), w: o.w}
	running(t, func(ctx context.Context) { o.w.table.run(ctx) })
	return o
}

// running lets f run until the test ends, or stop is called.
func running(t *testing.T, f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { f(ctx) })
	stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
	})
	t.Cleanup(stop)
	return stop
}

// asks publishes a request of the sender admin.
func (o *office) asks(name string, m schemas.NodeRequest, change ...func(*schemas.Request)) {
	o.t.Helper()
	r := schemas.Request{
		Sender: "admin", Name: name, Action: schemas.ActionMaintain, Reason: "new kernel", Requester: "Robin", Maintenance: &m,
	}
	for _, c := range change {
		c(&r)
	}
	e, err := schemas.NewEvent("/test/admin", r, time.Now(), schemas.Event{})
	if err == nil {
		_, err = o.bus.Publish(o.t.Context(), e)
	}
	if err != nil {
		o.t.Fatal(err)
	}
}

// answered waits for the last receipt of a request to be that one. Of another sender than admin, name is SENDER/NAME.
func (o *office) answered(name, want string) (last schemas.Receipt) {
	o.t.Helper()
	sender, of, given := strings.Cut(name, "/")
	if !given {
		sender, of = "admin", name
	}
	got := ""
	bustest.Eventually(o.t, "request "+name+": "+want, func() bool {
		e, err := o.bus.Receipt(o.t.Context(), sender, of)
		if err != nil || e.ID == "" {
			return false
		}
		if last, err = schemas.Decode[schemas.Receipt](e); err != nil {
			o.t.Fatal(err)
		}
		got = fmt.Sprintf("%s %s: %s", last.State, last.Reason, last.Message)
		return got == want
	})
	return last
}

// entry is the maintenance of the table as it is. nil: there is none.
func (o *office) entry(name string) *v1alpha1.NodeMaintenance {
	o.t.Helper()
	m, err := o.bus.Maintenances().Get(o.t.Context(), name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		o.t.Fatal(err)
	}
	return m
}

// cordonedFor is how the maintenance of a mark has left a node that it has cordoned.
func cordonedFor(t *testing.T, name string, uid types.UID) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Spec.Unschedulable = true
		markedBy(t, schemas.CordonMark{Name: name, UID: uid, At: time.Unix(1000, 0).UTC()})(n)
	}
}

// writes stores a status as an actuator does, or with stage empty removes the entry.
func (o *office) writes(name string, stage v1alpha1.NodeStage) {
	o.t.Helper()
	m := o.entry(name)
	if stage == "" {
		if err := o.bus.Maintenances().Delete(o.t.Context(), m); err != nil {
			o.t.Fatal(err)
		}
		return
	}
	start := metav1.Unix(1000, 0)
	m.Status = v1alpha1.NodeMaintenanceStatus{ObservedGeneration: m.Generation, Nodes: []v1alpha1.NodeStatus{
		{Name: "n1", UID: "uid-n1", Stage: stage, Start: &start},
	}}
	if _, err := o.bus.Maintenances().Put(o.t.Context(), m); err != nil {
		o.t.Fatal(err)
	}
}

func TestTheMaintenanceOfANodeIsAskedForOverTheBusAndSurvivesWhoLeads(t *testing.T) {
	o := newOffice(t, policy.Policy{})
	stop := running(t, o.w.leadOn)
	o.asks("drain", schemas.NodeRequest{Node: "n1", Stage: v1alpha1.Drain, Deadline: within(time.Hour)})
	last := o.answered("drain", "accepted Accepted: node n1 is to be drained")
	if want := (&schemas.NodeRequest{Node: "n1", Stage: v1alpha1.Drain, Deadline: within(time.Hour)}); !reflect.DeepEqual(last.Maintenance, want) {
		t.Errorf("the receipt is about %+v, want %+v", last.Maintenance, want)
	}
	first := o.entry("node/n1")
	want := v1alpha1.NodeMaintenanceSpec{
		Nodes: v1alpha1.NodeSet{Names: []string{"n1"}}, Stage: v1alpha1.Drain, Reason: "new kernel (asked for by Robin)",
		Deadline: within(time.Hour),
	}
	if !reflect.DeepEqual(first.Spec, want) || first.Generation != 1 || first.UID == "" {
		t.Errorf("got %+v, want spec %+v", first, want)
	}
	bustest.Eventually(t, "it is evaluated", func() bool {
		select {
		case e := <-o.scopes:
			s, err := schemas.Decode[schemas.MaintenanceScope](e)
			return err == nil && s.Key == "node/n1" && s.Maintenance.ResourceVersion == first.ResourceVersion && len(s.Nodes) == 1
		default:
			return false
		}
	})
	o.writes("node/n1", v1alpha1.Draining)
	stop()
	o.writes("node/n1", v1alpha1.IsDrained) // while nobody leads
	stop = running(t, o.w.leadOn)
	o.answered("drain", "finished Done: node n1 is drained")

	o.asks("back", schemas.NodeRequest{Node: "n1", Stage: v1alpha1.Cordon})
	o.answered("back", "rejected Conflict: the stage cannot go from Drain to Cordon, only forwards; "+
		"when the node is given back, it can be asked for anew")
	o.asks("complete", schemas.NodeRequest{Node: "n1", Stage: v1alpha1.Complete})
	o.answered("complete", "accepted Accepted: node n1 is to be given back")
	if m := o.entry("node/n1"); m.Generation != 2 || m.UID != first.UID || m.Spec.Stage != v1alpha1.Complete {
		t.Errorf("got %+v, want generation 2 of the same", m)
	}
	stop()
	o.writes("node/n1", "")
	running(t, o.w.leadOn)
	o.answered("complete", "finished Done: node n1 is given back")
	o.asks("nothing", schemas.NodeRequest{Node: "n1", Stage: v1alpha1.Complete})
	o.answered("nothing", "finished NothingToDo: node n1 is not maintained")

	o.asks("again", schemas.NodeRequest{Node: "n1", Stage: v1alpha1.Drain})
	o.answered("again", "accepted Accepted: node n1 is to be drained")
	if m := o.entry("node/n1"); m.Generation != 1 || m.UID == first.UID {
		t.Errorf("got %+v, want a new one", m)
	}
	o.asks("missing", schemas.NodeRequest{Node: "n9", Stage: v1alpha1.Drain})
	o.answered("missing", "rejected UnknownTarget: there is no node n9")
}

func TestANoticeOfACloudDrainsTheNodeOfTheMachineInItsTime(t *testing.T) {
	sender := policy.Sender{
		Name: "spot", Actions: []schemas.RequestAction{schemas.ActionMaintain}, Nodes: true, PerMinute: 100, Open: 1000,
	}
	o := newOffice(t, policy.Policy{Requests: &policy.Requests{Senders: []policy.Sender{sender}}})
	n := machine("n1", "a")
	n.Spec.ProviderID = "aws:///eu-central-1a/i-0a1b2c3d4e5f67890"
	o.set(n)
	running(t, o.w.leadOn)
	for _, e := range schematest.Examples(t) {
		if e.Name == "request-maintain" { // the one that the page about requests shows
			if _, err := o.bus.Publish(t.Context(), e.Event); err != nil {
				t.Fatal(err)
			}
		}
	}
	last := o.answered("spot/i-0a1b2c3d4e5f67890", "accepted Accepted: node n1 is to be drained")
	if last.Maintenance.Node != "n1" || last.Maintenance.ProviderID != "i-0a1b2c3d4e5f67890" {
		t.Errorf("the receipt is about %+v, want the node as well", last.Maintenance)
	}
	if m := o.entry("node/n1"); m.Spec.Deadline.Duration != 2*time.Minute || m.Spec.Stage != v1alpha1.Drain {
		t.Errorf("got %+v", m.Spec)
	}
	o.writes("node/n1", v1alpha1.Gone)
	o.answered("spot/i-0a1b2c3d4e5f67890", "finished Done: node n1 has left the cluster")
}

func TestAMaintenanceGoesOnWhenNobodyWaitsForItAnyMore(t *testing.T) {
	o := newOffice(t, policy.Policy{})
	running(t, o.w.leadOn)
	drain := schemas.NodeRequest{Node: "n1", Stage: v1alpha1.Drain}
	o.asks("one", drain)
	o.answered("one", "accepted Accepted: node n1 is to be drained")
	o.asks("stop", drain, func(r *schemas.Request) {
		r.Action, r.Maintenance, r.Request, r.Reason = schemas.ActionCancel, nil, "one", "later"
	})
	const goes = "; its maintenance goes on until Complete is asked for"
	o.answered("one", "finished Cancelled: cancelled: later"+goes)
	o.asks("two", drain, func(r *schemas.Request) { r.Deadline = time.Now().Add(time.Second) })
	o.answered("two", "finished DeadlineExceeded: node n1 is not drained yet"+goes)
	if m := o.entry("node/n1"); m.Spec.Stage != v1alpha1.Drain || m.Generation != 1 {
		t.Errorf("got %+v, want it as it was asked for", m)
	}
	hold := drain
	hold.Deadline, hold.OnDeadline = within(time.Hour), v1alpha1.Hold
	o.asks("held", hold, func(r *schemas.Request) { r.Deadline = time.Now().Add(time.Second) })
	o.answered("held", "finished DeadlineExceeded: node n1 is not drained yet"+goes+"; when the drain has taken 1h0m0s no more pods move")
	o.asks("three", drain)
	o.answered("three", "accepted Accepted: node n1 is to be drained")
	o.asks("complete", schemas.NodeRequest{Node: "n1", Stage: v1alpha1.Complete})
	o.answered("three", "finished Cancelled: node n1 is to be given back, as was asked for meanwhile")
}

func TestAMaintenanceThatAGuardRefusesIsGivenUpUnlessItWasBegun(t *testing.T) {
	o := newOffice(t, policy.Policy{})
	running(t, o.w.leadOn)
	o.asks("drain", schemas.NodeRequest{Node: "n1", Stage: v1alpha1.Drain})
	o.answered("drain", "accepted Accepted: node n1 is to be drained")
	m := o.entry("node/n1")
	m.Status = v1alpha1.NodeMaintenanceStatus{ObservedGeneration: 1, Conditions: []metav1.Condition{
		{Type: v1alpha1.Accepted, Status: metav1.ConditionFalse, Reason: "SingleNode", Message: "it is the only one"},
	}}
	if _, err := o.bus.Maintenances().Put(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	o.answered("drain", "finished Refused: SingleNode: it is the only one; nothing is done")
	if m := o.entry("node/n1"); m.Spec.Stage != v1alpha1.Complete || m.Generation != 2 {
		t.Errorf("got %+v, want that nothing is wanted of it any more", m.Spec)
	}
}

func TestAMaintenanceWhoseTableWasLostIsFoundAgainByItsMark(t *testing.T) {
	o := newOffice(t, policy.Policy{})
	o.set(machine("n1", "a", cordonedFor(t, "node/n1", "lost")))
	running(t, o.w.leadOn)
	o.asks("complete", schemas.NodeRequest{Node: "n1", Stage: v1alpha1.Complete})
	o.answered("complete", "accepted Accepted: node n1 is to be given back")
	if m := o.entry("node/n1"); m.UID != "lost" || m.Spec.Stage != v1alpha1.Complete {
		t.Errorf("got %+v, want one that can take the mark back", m)
	}
}

func TestANodeThatAnotherMaintenanceHoldsIsNotSaidToBeGivenBack(t *testing.T) {
	o := newOffice(t, policy.Policy{})
	o.set(machine("n1", "a", cordonedFor(t, "rack-7", "u7")), machine("n2", "b", cordonedFor(t, "sign/n2", "u2")))
	running(t, o.w.leadOn)
	o.asks("n1", schemas.NodeRequest{Node: "n1", Stage: v1alpha1.Complete})
	o.answered("n1", "finished HeldByAnother: node n1 stays cordoned: maintenance rack-7 holds it: complete that")
	o.asks("n2", schemas.NodeRequest{Node: "n2", Stage: v1alpha1.Complete})
	o.answered("n2", "finished HeldByAnother: node n2 stays cordoned: maintenance sign/n2 holds it until its sign is gone from the node")

	o.asks("waits", schemas.NodeRequest{Node: "n1", Stage: v1alpha1.Drain})
	o.answered("waits", "accepted Accepted: node n1 is to be drained")
	o.asks("complete", schemas.NodeRequest{Node: "n1", Stage: v1alpha1.Complete})
	o.answered("complete", "accepted Accepted: node n1 is to be given back")
	o.writes("node/n1", "")
	o.answered("complete", "finished HeldByAnother: node n1 stays cordoned: maintenance rack-7 holds it: complete that")
}

func TestInADryRunNoMaintenanceIsStoredThatWouldBecomeRealLater(t *testing.T) {
	o := newOffice(t, starting())
	o.set(machine("n1", "a", taintedBy("cloud.example.com/interruption")))
	kept := wish{name: "sign/n2", node: "n2", reason: "why", NodeRequest: schemas.NodeRequest{Stage: v1alpha1.Drain}}.first(time.Now())
	if _, err := o.bus.Maintenances().Put(t.Context(), kept); err != nil {
		t.Fatal(err)
	}
	o.w.config.DryRun = true
	bustest.Eventually(t, "the table is known", func() bool { return len(o.w.table.list()) == 1 })
	s := newLead(o.w, o.w.plan.Load(), newOutbox(o.out, o.w.log, o.w.metrics)).signs
	for _, node := range []string{"n1", "n2"} {
		if err := s.at(t.Context(), node); err != nil {
			t.Fatal(err)
		}
	}
	if began, ended := o.entry("sign/n1"), o.entry("sign/n2"); began != nil || ended.Spec.Stage != v1alpha1.Drain {
		t.Errorf("a sign that came, and one that went: got %+v, %+v, want none, and what was there before", began, ended)
	}
	running(t, o.w.leadOn)
	const refused = "rejected NotAllowed: the watcher runs with --dry-run, and changes no maintenance: nothing was stored; " +
		"ask when it runs without"
	o.asks("drain", schemas.NodeRequest{Node: "n1", Stage: v1alpha1.Drain})
	o.answered("drain", refused)
	o.asks("complete", schemas.NodeRequest{Node: "n1", Stage: v1alpha1.Complete})
	o.answered("complete", refused)
	if m := o.entry("node/n1"); m != nil {
		t.Errorf("got %+v, want none", m)
	}
}

func TestNothingIsDecidedBeforeBothTheTableAndTheKindsAreKnown(t *testing.T) {
	o := newOffice(t, policy.Policy{})
	bustest.Eventually(t, "the table is known", o.w.maintained.known.Load) // which nobody asks about from then on
	o.w.kinds = &kinds{to: o.w}
	o.w.nowKnown()
	knows := func() bool { return o.w.maintained.known.Load() }
	got := []bool{knows()}
	o.w.kinds.answered()
	got = append(got, knows())
	o.w.kinds.served.Store(true) // they are installed later
	o.w.nowKnown()
	got = append(got, knows())
	o.w.kinds.synced.Store(true)
	o.w.nowKnown()
	got = append(got, knows())
	o.w.table.synced.Store(false)
	o.w.nowKnown()
	got = append(got, knows())
	if want := []bool{false, true, false, true, false}; !reflect.DeepEqual(got, want) {
		t.Errorf("known before it was asked, without the kinds, when they come, when they are read, and without the table: "+
			"got %v, want %v", got, want)
	}
	if err := o.w.knowsMaintenances(); err == nil || !strings.Contains(err.Error(), "the maintenances of the bus are not known yet") {
		t.Errorf("got %v", err)
	}
}
