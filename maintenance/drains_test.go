package maintenance

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/test/kit/bustest"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/schematest"
)

// A move that was undone is an attempt: the next one waits, and the status names the reason.
func TestMoveTakenBack(t *testing.T) {
	d := newDrainOf(t)
	e := d.drains.of("kernel").entries["cart"]
	d.begins()
	d.Must(d.publish(t.Context(), "kernel", nil, map[types.UID]bool{"cart": true}, d.now)) // lists the pod in flight again
	d.outcome(schemas.Settled, schemas.ReasonTakenBack, func(v *schemas.Verdict) { v.Message = "the rollout is stuck" })
	last, moving := d.drains.lastVerdict("kernel", "cart")
	if last == nil {
		t.Fatal("the drain has no last verdict")
	}
	last.Since = time.Time{}
	expect.Equal(t, "last verdict", *last, plan.LastVerdict{Outcome: schemas.Settled, Reason: schemas.ReasonTakenBack, Message: "the rollout is stuck"})
	expect.Equal(t, "moving, may still move", []bool{moving, e.mayMove()}, []bool{false, false})
	expect.Equal(t, "attempts", e.attempts, 1)
	if !e.retryAt.After(d.now) {
		t.Errorf("the next try is at %v, want after %v", e.retryAt, d.now)
	}
}

// The actuator refuses a message with too many intents.
func TestManyPodsInMessages(t *testing.T) {
	b := natsBus{bustest.New(t)}
	s := New(Config{Bus: b, Source: "/test/maintenance"}).newSession(nil)
	expect.Must(t, s.load(t.Context(), "kernel"))
	var wanted []schemas.Intent
	for i := range schemas.MostIntents + 2 {
		uid := types.UID(fmt.Sprintf("p%05d", i))
		wanted = append(wanted, schemas.Intent{Pod: schemas.PodRef{Namespace: "shop", Name: string(uid), UID: uid}, Node: "n1"})
	}
	now := time.Now()
	listed := func() (n int, last string) {
		t.Helper()
		expect.Must(t, s.publish(t.Context(), "kernel", wanted, nil, now))
		e, err := b.Intents(t.Context(), intentsOf("kernel").Channel())
		expect.Must(t, err)
		a := schematest.Decode[schemas.Intents](t, e)
		return len(a.Intents), a.Intents[len(a.Intents)-1].Pod.Name
	}
	n, last := listed()
	expect.Equal(t, "first message", fmt.Sprint(n, " ", last), "5000 p04999")
	wanted = wanted[1:]
	delete(s.drains.of("kernel").entries, "p00000") // it has left
	n, last = listed()
	expect.Equal(t, "next message", fmt.Sprint(n, " ", last), "5000 p05000")
}

// An intent that expires again and again must not be published each second.
func TestExpiredIntentWaits(t *testing.T) {
	d := newDrains()
	e := &entry{intent: schemas.Intent{Pod: schemas.PodRef{UID: "cart"}}, open: true}
	d.byName["kernel"] = &drain{entries: map[types.UID]*entry{"cart": e}}
	now := time.Now()
	var waits []time.Duration
	for range 4 {
		v := schemas.Verdict{Outcome: schemas.Expired, Intent: e.intent, Scope: schemas.ScopeRef{Key: "kernel"}}
		d.verdict(v, now, func(string, string) bool { return false }, now)
		waits = append(waits, e.retryAt.Sub(now))
	}
	expect.Equal(t, "delays", waits, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second})
}

// The end of an older move, which is stored late, is not the end of the newer one, and no verdict on its intent.
func TestLateEndOfOlderMove(t *testing.T) {
	d := newDrainOf(t)
	older := func(v *schemas.Verdict) { v.Intent.ID = "older" }
	foreign := func(v *schemas.Verdict) {
		v.Strategy, v.Scope = "NodeTaints", schemas.ScopeRef{Kind: schemas.NodeKind, Key: "n1"}
	}
	type state struct{ Open, Moving bool }
	var got []state
	for _, step := range []func(){
		func() { d.outcome(schemas.Settled, schemas.ReasonTakenBack, older) },
		d.begins,
		func() { d.outcome(schemas.Settled, schemas.ReasonTakenBack, older, foreign) },
		func() { d.outcome(schemas.Settled, schemas.ReasonTakenBack, older) },
		d.settles,
	} {
		step()
		e := d.drains.of("kernel").entries["cart"]
		got = append(got, state{e.open, e.moving})
	}
	expect.Equal(t, "states", got, []state{{true, false}, {false, true}, {false, true}, {false, true}, {false, false}})
}

// The actuator stores verdicts in parallel, so the verdict that ends a move can arrive before an earlier rejection.
func TestRejectionDuringMove(t *testing.T) {
	for _, c := range []struct {
		name  string
		after time.Duration // from the end of another move to the rejection
		want  bool
	}{
		{"stored after the end of the move", -time.Second, false},
		{"during the next move", time.Second, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDrainOf(t)
			d.outcome(schemas.Settled, schemas.ReasonTakenBack, func(v *schemas.Verdict) { v.Strategy, v.Scope.Kind = "NodeTaints", schemas.NodeKind })
			d.now = d.now.Add(c.after)
			d.outcome(schemas.Rejected, schemas.ReasonMoving)
			_, moving := d.drains.lastVerdict("kernel", "cart")
			expect.Equal(t, "moving", moving, c.want)
		})
	}
}

// drainOf is a session with the maintenance kernel, which moves the pod cart off the node n1.
type drainOf struct {
	expect.T
	*session
	now time.Time
}

func newDrainOf(t *testing.T) *drainOf {
	t.Helper()
	view, err := cluster.NewOffline(Kinds()...)
	expect.Must(t, err)
	d := &drainOf{expect.T{TB: t}, New(Config{Bus: natsBus{bustest.New(t)}, Source: "/test/maintenance", View: view}).newSession(nil), time.Now()}
	d.Must(d.load(t.Context(), "kernel"))
	d.Must(d.publish(t.Context(), "kernel", []schemas.Intent{{Pod: schemas.PodRef{Namespace: "shop", Name: "cart", UID: "cart"}, Node: "n1"}}, nil, d.now))
	return d
}

// begins begins the move of the pod, and settles ends it.
func (d *drainOf) begins()  { d.outcome(schemas.Restarted, schemas.ReasonRestartAccepted) }
func (d *drainOf) settles() { d.outcome(schemas.Settled, schemas.ReasonTakenBack) }

// outcome stores a verdict on the pod.
func (d *drainOf) outcome(outcome schemas.Outcome, reason schemas.ReasonCode, changes ...func(*schemas.Verdict)) {
	d.Helper()
	v := schemas.Verdict{
		Outcome: outcome, Reason: reason, Strategy: schemas.MaintenanceStrategy, Intent: d.drains.of("kernel").entries["cart"].intent,
		Scope: schemas.ScopeRef{Kind: schemas.MaintenanceKind, Key: "kernel"},
	}
	for _, change := range changes {
		change(&v)
	}
	d.verdict(schematest.Event(d, "/test/actuator", v, d.now, schemas.Event{}))
}

// changesLeader begins the session of the next leader.
func (d *drainOf) changesLeader() {
	d.Helper()
	d.session = d.newSession(nil)
	d.Must(d.load(d.Context(), "kernel"))
}

// other publishes the intent for another pod.
func (d *drainOf) other(name string) {
	d.Helper()
	i := schemas.Intent{Pod: schemas.PodRef{Namespace: "shop", Name: name, UID: types.UID(name)}, Node: "n2"}
	d.Must(d.publish(d.Context(), "kernel", []schemas.Intent{i}, nil, d.now))
}

// withdraws withdraws all pods.
func (d *drainOf) withdraws() {
	d.Helper()
	d.Must(d.withdraw(d.Context(), "kernel", nil, nil, d.now))
}

// reads drops the newest message, as the actuator does after it has read a message without intents.
func (d *drainOf) reads() {
	d.Helper()
	b := d.cfg.Bus.(natsBus)
	sequence, err := b.IntentsSequence(d.Context())
	d.Must(err)
	d.Must(b.DropIntents(d.Context(), schemas.Event{Channel: intentsOf("kernel").Channel(), Sequence: sequence}))
	expect.Equal(d, "message", d.listed(), nil)
}

// listed returns the pods of the newest message, or nil if there is none.
func (d *drainOf) listed() []string {
	d.Helper()
	e, err := d.cfg.Bus.Intents(d.Context(), intentsOf("kernel").Channel())
	d.Must(err)
	if e.ID == "" {
		return nil
	}
	list := []string{"message"}
	for _, i := range schematest.Decode[schemas.Intents](d, e).Intents {
		list = append(list, i.Pod.Name)
	}
	return list
}

// waits reports whether the node n1 is not given back yet.
func (d *drainOf) waits() bool {
	d.Helper()
	decision := plan.Decision{Nodes: []plan.NodeStep{{Name: "n1", Action: schemas.NodeReturn}}}
	withheld, err := d.withhold(d.Context(), "kernel", &decision, d.now)
	d.Must(err)
	return withheld
}

func TestMoveIsWithdrawn(t *testing.T) {
	t.Run("after_its_intent_has_expired", func(t *testing.T) {
		d := newDrainOf(t)
		d.begins()
		d.now = d.now.Add(lifetime + time.Minute)
		d.withdraws()
		expect.Equal(t, "message", d.listed(), []string{"message"})
	})
	t.Run("after_the_leader_has_changed", func(t *testing.T) {
		d := newDrainOf(t)
		d.changesLeader()
		d.now = d.now.Add(lifetime + time.Minute)
		d.withdraws()
		expect.Equal(t, "message", d.listed(), []string{"message"})
	})
}

// A node is given back when the actuator has read that a move off it must end.
func TestNodeOfWithdrawnMove(t *testing.T) {
	t.Run("waits_for_the_actuator", func(t *testing.T) {
		d := newDrainOf(t)
		d.begins()
		d.now = d.now.Add(lifetime + time.Minute)
		d.withdraws()
		got := []bool{d.waits()}
		d.reads()
		got = append(got, d.waits())
		d.now = d.now.Add(inFlightFor - time.Second)
		got = append(got, d.waits())
		d.now = d.now.Add(time.Second)
		got = append(got, d.waits())
		expect.Equal(t, "waits", got, []bool{true, true, true, false})
	})
	t.Run("waits_as_long_if_messages_follow", func(t *testing.T) {
		d := newDrainOf(t)
		d.begins()
		d.withdraws()
		d.reads()
		got := []bool{d.waits()}
		d.other("basket")
		d.now = d.now.Add(inFlightFor)
		got = append(got, d.waits())
		expect.Equal(t, "waits", got, []bool{true, false})
	})
	t.Run("does_not_wait_after_the_move", func(t *testing.T) {
		d := newDrainOf(t)
		d.begins()
		d.withdraws()
		got := []bool{d.waits()}
		d.settles()
		got = append(got, d.waits())
		expect.Equal(t, "waits", got, []bool{true, false})
	})
	t.Run("does_not_wait_for_an_eviction", func(t *testing.T) {
		d := newDrainOf(t)
		d.outcome(schemas.Evicted, schemas.ReasonEvictionAccepted)
		d.withdraws()
		expect.Equal(t, "waits", d.waits(), false)
	})
	t.Run("waits_after_the_leader_has_changed", func(t *testing.T) {
		d := newDrainOf(t)
		d.changesLeader()
		d.now = d.now.Add(lifetime + time.Minute)
		d.withdraws()
		d.withdraws()
		got := []bool{d.waits()}
		d.reads()
		got = append(got, d.waits())
		d.now = d.now.Add(inFlightFor)
		got = append(got, d.waits())
		expect.Equal(t, "waits", got, []bool{true, true, false})
	})
	t.Run("does_not_wait_after_a_withdrawal", func(t *testing.T) {
		d := newDrainOf(t)
		d.changesLeader()
		d.withdraws()
		got := []bool{d.waits()}
		d.outcome(schemas.Withdrawn, schemas.ReasonSuperseded)
		got = append(got, d.waits())
		expect.Equal(t, "waits", got, []bool{true, false})
	})
	t.Run("waits_10_minutes_without_an_actuator", func(t *testing.T) {
		d := newDrainOf(t)
		d.begins()
		d.now = d.now.Add(lifetime + time.Minute)
		d.withdraws()
		d.now = d.now.Add(lifetime - time.Second)
		got := []bool{d.waits()}
		d.other("basket") // no new message makes it wait longer
		d.now = d.now.Add(time.Second)
		got = append(got, d.waits())
		expect.Equal(t, "waits", got, []bool{true, false})
	})
}
