package maintenance

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/maintenance/apply"
	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/schemas"
)

const (
	// lifetime is how long an intent is valid. An intent that the actuator still has is renewed after half of that.
	lifetime = 10 * time.Minute
	// inFlightFor bounds a call that the actuator began before it read a newer message: its timeout plus the delivery
	// of the verdict.
	inFlightFor = 15 * time.Second
	// settleInterval is how often a maintenance checks whether withdrawn intents are settled.
	settleInterval = time.Second
)

// drains are the intents that the actuator has from each maintenance, and the events about it. Safe for concurrent use.
type drains struct {
	mu     sync.Mutex
	byName map[string]*drain
}

// drain is one maintenance.
type drain struct {
	// entries are the pods of the newest message, and pods of earlier ones whose intents may still be executed.
	entries map[types.UID]*entry
	// published is the content of the last events; changes wait for the next event. Only the reconcile of the
	// maintenance uses them.
	published *published
	changes   []schemas.NodeChange
	// refused has the times at which the API server last refused to cordon nodes. conditionsRefused has the times since which
	// it has refused to set the conditions of nodes. Only the reconcile uses them.
	refused           map[string]time.Time
	conditionsRefused map[string]time.Time
}

// entry is one pod.
type entry struct {
	intent schemas.Intent
	// open means that there is no verdict yet. uncertain means that the verdict may be on an earlier message that lists
	// the pod.
	open, uncertain bool
	// withdrawn means that the newest message does not list the pod. until is when the actuator can no longer act on an
	// older message.
	withdrawn bool
	until     time.Time
	// renew means that the next message contains the intent again, at any age. A move of the pod may be in flight.
	renew bool
	// sequence is the sequence number of the newest message that lists the pod.
	sequence uint64
	// attempts counts verdicts that began no move, and retryAt is the time of the next publication of the intent after
	// such a verdict.
	attempts int
	retryAt  time.Time
	blockers []schemas.ObjectRef
	// lastVerdict is the last verdict if it began no move. moving means that a move of the pod is in flight. A new
	// leader starts without them; trying again restores them.
	lastVerdict *plan.LastVerdict
	moving      bool
	// evicted means that the move in flight is an eviction, which nothing can end.
	evicted bool
	// move is the ID of the intent whose move is in flight, or empty if it is unknown.
	move string
	// settled is the time of the verdict that ended the last move of the pod. Verdicts can arrive in another order.
	settled time.Time
}

// mayMove reports whether the actuator may still execute the intent.
func (e *entry) mayMove() bool { return e.open || e.uncertain }

// cancelable reports whether a move may be in flight that ends when the actuator reads that the pod is withdrawn.
func (e *entry) cancelable() bool { return e.renew || e.moving && !e.evicted }

func newDrains() *drains { return &drains{byName: map[string]*drain{}} }

// of returns the state of a maintenance, or nil if it was not loaded.
func (d *drains) of(name string) *drain {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.byName[name]
}

func (d *drains) forget(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.byName, name)
}

// load reads the message of the previous leader, once in a session. Its intents are open, and are published again or
// withdrawn.
func (s *session) load(ctx context.Context, name string) error {
	if s.drains.of(name) != nil {
		return nil
	}
	e, err := s.cfg.Bus.Intents(ctx, intentsOf(name).Channel())
	if err != nil {
		return fmt.Errorf("read the intents of maintenance %s: %w", name, err)
	}
	x := &drain{entries: map[types.UID]*entry{}, refused: map[string]time.Time{}, conditionsRefused: map[string]time.Time{}}
	if e.ID != "" {
		a, err := schemas.Decode[schemas.Intents](e)
		if err != nil { // the actuator cannot read it either
			s.log.Warn("cannot read the stored intents of a maintenance", "maintenance", name, "error", err)
		}
		for _, i := range a.Intents {
			x.entries[i.Pod.UID] = &entry{intent: i, open: true, renew: true}
		}
	}
	s.drains.mu.Lock()
	defer s.drains.mu.Unlock()
	s.drains.byName[name] = x
	return nil
}

// drop forgets the intent for a pod, and keeps the verdict on it.
func (x *drain) drop(pod types.UID) {
	if e := x.entries[pod]; e.lastVerdict != nil || e.moving {
		e.open, e.uncertain, e.withdrawn = false, false, true
	} else {
		delete(x.entries, pod)
	}
}

// intentsOf returns an empty message of a maintenance. Maintenances belong to no profile of the policy.
func intentsOf(name string) schemas.Intents {
	return schemas.Intents{
		Profile: "default", Strategy: schemas.MaintenanceStrategy, Scope: schemas.ScopeRef{Kind: schemas.MaintenanceKind, Key: name},
		Intents: []schemas.Intent{},
	}
}

// inFlight returns the intents of the newest message whose pods are in flight and should still leave. Every further
// message lists them unchanged, because the actuator cancels a move in flight that a newer message does not list.
func (x *drain) inFlight(moving map[types.UID]bool) (list []schemas.Intent) {
	for uid, e := range x.entries {
		if moving[uid] && !e.withdrawn && !e.mayMove() {
			list = append(list, e.intent)
		}
	}
	slices.SortFunc(list, byPod)
	return list
}

func byPod(a, b schemas.Intent) int { return cmp.Compare(a.Pod.String(), b.Pod.String()) }

// withdraw publishes a message without the pods that no longer have to move, if the actuator may still execute one of
// them. moving are the pods in flight that should still leave.
func (s *session) withdraw(
	ctx context.Context, name string, wanted []schemas.Intent, moving map[types.UID]bool, now time.Time,
) error {
	keep := map[types.UID]bool{}
	for _, i := range wanted {
		keep[i.Pod.UID] = true
	}
	s.drains.mu.Lock()
	x, due := s.drains.byName[name], false
	var list []schemas.Intent
	for uid, e := range x.entries {
		switch {
		case keep[uid], moving[uid] && !e.withdrawn:
			if e.mayMove() {
				list = append(list, e.intent)
			}
		case !e.withdrawn && (e.moving || e.renew || e.intent.Expires.After(now)):
			due = true // even with a verdict: the actuator may have read the pod again since
		case e.cancelable() && now.Before(e.until):
		case !e.intent.Expires.After(now), !e.mayMove():
			x.drop(uid)
		}
	}
	inFlight := x.inFlight(moving)
	s.drains.mu.Unlock()
	if !due {
		return nil
	}
	slices.SortFunc(list, byPod)
	return s.send(ctx, name, x, list, inFlight, now)
}

// publish publishes the wanted pods, unless the actuator has them all. If they are too many for one message, the others
// follow when pods have left.
func (s *session) publish(
	ctx context.Context, name string, wanted []schemas.Intent, moving map[types.UID]bool, now time.Time,
) error {
	s.drains.mu.Lock()
	x, due := s.drains.byName[name], false
	inFlight := x.inFlight(moving)
	room := schemas.MostIntents - len(inFlight)
	for _, i := range wanted {
		if e := x.entries[i.Pod.UID]; e != nil && e.open {
			room--
		}
	}
	var list []schemas.Intent
	for _, i := range wanted {
		e := x.entries[i.Pod.UID]
		switch {
		case e != nil && e.open:
			due = due || e.renew || !now.Before(e.intent.Expires.Add(-lifetime/2))
		case e != nil && now.Before(e.retryAt), room <= 0:
			continue
		default:
			due = true
			room--
		}
		list = append(list, i)
	}
	s.drains.mu.Unlock()
	if !due {
		return nil
	}
	return s.send(ctx, name, x, list, inFlight, now)
}

// send publishes a message that lists these pods with new intents, and the pods in flight.
func (s *session) send(ctx context.Context, name string, x *drain, list, inFlight []schemas.Intent, now time.Time) error {
	sequence, err := s.cfg.Bus.IntentsSequence(ctx)
	a := intentsOf(name)
	id := fmt.Sprintf("maintenance.%d", sequence)
	a.Scope.Event, a.Scope.Sequence, a.Scope.Since, a.Scope.Now = id, sequence, now.UTC(), now.UTC()
	for _, i := range list {
		i.ID, i.Expires = id+"."+string(i.Pod.UID), now.Add(lifetime).UTC()
		a.Intents = append(a.Intents, i)
	}
	a.Intents = append(a.Intents, inFlight...)
	var e schemas.Event
	if err == nil {
		e, err = schemas.NewEvent(s.cfg.Source, a, now, schemas.Event{})
	}
	if err == nil && s.cfg.LeaseValid != nil && !s.cfg.LeaseValid() {
		err = apply.ErrNotLeading
	}
	if err == nil {
		err = s.cfg.Bus.Answer(ctx, e, a)
	}
	if err != nil {
		return fmt.Errorf("publish the intents of maintenance %s: %w", name, err)
	}
	s.drains.mu.Lock()
	defer s.drains.mu.Unlock()
	for _, is := range x.entries {
		if !is.withdrawn {
			is.withdrawn, is.until = true, now.Add(lifetime)
		}
	}
	for n, i := range a.Intents {
		was := x.entries[i.Pod.UID]
		switch {
		case n < len(list) && was == nil:
			x.entries[i.Pod.UID] = &entry{intent: i, open: true, sequence: sequence}
		case n < len(list):
			*was = entry{
				intent: i, open: true, sequence: sequence, attempts: was.attempts, lastVerdict: was.lastVerdict,
				moving: was.moving, evicted: was.evicted, settled: was.settled, move: was.move,
			}
		case was != nil:
			was.withdrawn, was.sequence = false, sequence
		}
	}
	return nil
}

// withhold removes the steps that give back a node from a decision while the actuator may still move a pod off it. It
// reports whether there are any.
func (s *session) withhold(ctx context.Context, name string, d *plan.Decision, now time.Time) (withheld bool, err error) {
	busy := func(n plan.NodeStep) bool { return n.Action == schemas.NodeReturn && s.drains.busy(name, n.Name, now) }
	if !slices.ContainsFunc(d.Nodes, busy) {
		return false, nil
	}
	e, err := s.cfg.Bus.Intents(ctx, intentsOf(name).Channel())
	if err != nil {
		return true, fmt.Errorf("read the intents of maintenance %s: %w", name, err)
	}
	s.drains.noteRead(name, e.ID == "", now)
	before := len(d.Nodes)
	d.Nodes = slices.DeleteFunc(d.Nodes, busy)
	return len(d.Nodes) < before, nil
}

// busy reports whether the actuator may still move a pod off the node: by an intent, or in a move that it may not know
// to be withdrawn.
func (d *drains) busy(name, node string, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.byName[name].entries {
		if e.intent.Node == node && (e.mayMove() && e.intent.Expires.After(now) || e.cancelable() && now.Before(e.until)) {
			return true
		}
	}
	return false
}

// noteRead records whether the actuator has read the newest message, and all earlier ones. After inFlightFor, it executes
// no intent that was withdrawn before.
func (d *drains) noteRead(name string, read bool, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	x := d.byName[name]
	for uid, e := range x.entries {
		if !read || !e.withdrawn {
			continue
		}
		if done := now.Add(inFlightFor); done.Before(e.until) {
			e.until = done
		}
		if !now.Before(e.until) {
			x.drop(uid)
		}
	}
}
