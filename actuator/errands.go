package actuator

import (
	"context"
	"slices"
	"time"

	"github.com/rehome-dev/rehome/actuator/maintenance"
	"github.com/rehome-dev/rehome/schemas"
)

// steps carries out what an answer wants besides moves: [maintenance.Steps], or one given.
type steps interface {
	Do(ctx context.Context, s schemas.MaintenanceSteps) (maintenance.Result, error)
}

// taskMessage is an answer with its event.
type taskMessage struct {
	answer schemas.Intents
	event  schemas.Event
}

// errand is the newest answer of a maintenance that wants more than moves. Its intents enter the table after everything else
// was done, or early, while steps on nodes that have failed are tried again. Until all is done the answer stays in the bus's
// table, so that the next leader begins with it anew. It is guarded by the mu of its term.
type errand struct {
	taskMessage
	state   errandState
	running bool          // somebody carries it out, or the one before
	renewed chan struct{} // a newer answer came
	at      time.Time     // since when nothing is left to be carried out
}

type errandState int

const (
	errandOpen    errandState = iota
	errandEarly               // its intents are in the table, and steps on nodes are still tried
	errandDone                // its intents are in the table
	errandDropped             // it did not hold any more
)

// send lets an answer with steps be carried out, beside all others. Of those of one maintenance the newest counts: one that
// waits is not carried out any more when a newer one comes, and one that is at work is finished first. One that is older than
// the newest is dropped, and the same one again changes nothing. The caller holds mu.
func (t *session) send(a schemas.Intents, e schemas.Event, now time.Time) {
	t.forgetErrands(now)
	e.Data = nil
	k := keyOf(a)
	x := t.errands[k]
	switch {
	case t.steps == nil: // nobody can carry it out
		t.apply(changes{drop: []schemas.Event{e}})
		return
	case x == nil:
		x = &errand{renewed: make(chan struct{}, 1)}
		t.errands[k] = x
	case a.Scope.Sequence < x.answer.Scope.Sequence:
		t.apply(changes{drop: []schemas.Event{e}})
		return
	case a.Scope.Sequence == x.answer.Scope.Sequence && a.Scope.Event == x.answer.Scope.Event:
		t.again(x, a, e, now)
		return
	}
	if x.state == errandEarly {
		t.apply(t.entries.completed(k, x.answer.Scope, now))
	}
	x.taskMessage, x.state = taskMessage{a, e}, errandOpen
	if x.running {
		select {
		case x.renewed <- struct{}{}:
		default:
		}
		return
	}
	x.running = true
	t.couriers.Go(func() { t.carry(x) })
}

// again takes an answer that is known already. It may have been stored again: then this is the one to drop.
func (t *session) again(x *errand, a schemas.Intents, e schemas.Event, now time.Time) {
	if e.Sequence > x.event.Sequence {
		x.event = e
	}
	switch x.state {
	case errandOpen:
	case errandEarly, errandDone:
		t.apply(t.entries.accept(a, e, 0, now))
	case errandDropped:
		t.apply(changes{drop: []schemas.Event{e}})
	}
}

// carry carries an errand out, and newer ones of its maintenance, until there is none or the term is over.
func (t *session) carry(x *errand) {
	for failures := 0; t.leading.Err() == nil; {
		t.mu.Lock()
		e := x.taskMessage
		t.mu.Unlock()
		if !t.released(e.answer) {
			return // the next leader begins anew
		}
		r, err := t.steps.Do(t.leading, *e.answer.Maintenance)
		if t.leading.Err() != nil {
			return // the next leader begins anew
		}
		t.tell(e.answer, r, err, failures)
		if !t.announce(e, r, err) {
			return // the same
		}
		if t.arrived(x, e, r, err) {
			return
		}
		if err == nil {
			failures = 0
			continue // a newer one came
		}
		select {
		case <-t.leading.Done():
		case <-x.renewed:
			failures = 0
		case <-time.After(backoff(failures)):
			failures++
		}
	}
}

// releasing is how often is looked whether what is in flight has landed.
const releasing = 20 * time.Millisecond

// released withdraws what an answer does not list any more, and waits until what is in flight of it has landed: no pod is moved
// off a node that was given back. It returns false when the term is over.
func (t *session) released(a schemas.Intents) bool {
	for {
		t.mu.Lock()
		c, flying := t.entries.withdrawUnlisted(a)
		t.apply(c)
		t.mu.Unlock()
		if !flying {
			return true
		}
		select {
		case <-t.leading.Done():
			return false
		case <-time.After(releasing):
		}
	}
}

// arrived takes up what became of an errand, and says whether nothing is left to be carried out.
func (t *session) arrived(x *errand, e taskMessage, r maintenance.Result, err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch now := t.cfg.Now(); {
	case x.answer.Scope != e.answer.Scope:
		return false
	case err != nil:
		t.failed(x, r, now)
		return false
	case x.state == errandEarly:
		x.state, x.at = errandDone, now
		t.apply(t.entries.completed(keyOf(x.answer), x.answer.Scope, now))
	case r.Dropped != "":
		x.state, x.at = errandDropped, now
		t.apply(changes{drop: []schemas.Event{x.event}})
	default:
		x.state, x.at = errandDone, now
		t.apply(t.entries.accept(x.answer, x.event, 0, now))
	}
	x.answer = schemas.Intents{Scope: x.answer.Scope} // all that is needed to tell it from others
	x.running = false
	t.freed()
	return true
}

// failed takes up what of an errand was done all the same: of its steps on nodes those that failed are left, and what moves pods
// enters the table if it may. The caller holds mu.
func (t *session) failed(x *errand, r maintenance.Result, now time.Time) {
	if len(r.Nodes) == 0 {
		return // not even the status, or the finalizer
	}
	left := *x.answer.Maintenance
	left.Nodes = nil
	for _, n := range r.Nodes {
		if n.Err != nil {
			left.Nodes = append(left.Nodes, n.NodeStep)
		}
	}
	x.answer.Maintenance = &left
	if x.state == errandOpen && mayMove(x.answer.Intents, r.Nodes) {
		x.state = errandEarly
		t.apply(t.entries.accept(x.answer, x.event, 1, now))
		t.freed()
	}
}

// mayMove says whether pods may move though steps have failed: none of them leaves a node that could not be cordoned or given
// back. Conditions that could not be set hold up nothing, since they are for people and other programs.
func mayMove(intents []schemas.Intent, done []maintenance.Done) bool {
	failed := map[string]bool{}
	for _, n := range done {
		if n.Outcome == maintenance.Failed && n.Action != schemas.NodeMark {
			failed[n.Name] = true
		}
	}
	return !slices.ContainsFunc(intents, func(i schemas.Intent) bool { return failed[i.Node] })
}

// forgetErrands forgets those that were done so long ago that no older answer can come any more.
func (t *session) forgetErrands(now time.Time) {
	for k, x := range t.errands {
		if !x.running && now.Sub(x.at) >= remember {
			delete(t.errands, k)
		}
	}
}
