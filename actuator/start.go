package actuator

import (
	"fmt"
	"time"

	"github.com/rehome-dev/rehome/actuator/limit"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// start begins to work on the intents whose turn it is, as many as can be, and returns how long it takes until the next
// one can without anything changing.
func (t *term) start(now time.Time) (flights []flight, pause time.Duration) {
	for t.table.waiting.Len() > 0 && t.running < t.cfg.Parallel {
		if t.underWay() || t.deferred(now) || t.hold(now) {
			continue // the next pod may be on another node
		}
		wait, down := t.line.wait(now)
		if down && t.running > 0 || t.busAway.Load() && t.running+t.storing > 0 || t.storing > storingMost ||
			t.storm.Trial() && t.running > 0 {
			break // while somebody is away, one intent at a time tries it; its end wakes
		}
		if wait = max(wait, t.bucket.Wait(now)); wait > 0 {
			return flights, wait
		}
		flights = append(flights, t.takeOff(now))
	}
	return flights, time.Hour // for ever: wake ends it
}

// storingMost bounds the verdicts that are on their way to the bus at once.
const storingMost = 256

// takeOff begins to work on the intent whose turn it is.
func (t *term) takeOff(now time.Time) flight {
	c := t.table.next()
	at := marked(c.open, t.cfg.View)
	t.limits.Begin(originOf(c.open))
	all, space := t.bucket, t.space(at.namespace)
	all.Take()
	space.Take()
	x := &moving{
		record: record{
			Open: c.open, Method: schemas.MethodEviction, Begun: now, Workload: workloadOf(t.cfg.View, c.open.Intent.Pod.UID),
			Newest: newest(t.cfg.View, at.workload),
		},
		at: at, seen: t.cfg.View.Latest(),
	}
	t.moves.add(x)
	scope := c.answer.scope
	t.departures.begin(c.open.Intent.Pod.UID, scope, at.workload)
	t.running++
	return flight{c, c.open, x, scope, all, space}
}

// underWay rejects the intent whose turn it is when its pod was moved already, and says whether it did: an answer can come
// late. To begin the move anew would take the place of what is remembered of it.
func (t *term) underWay() bool {
	c := t.table.front()
	uid := c.open.Intent.Pod.UID
	var o Objection
	pod, known := t.cfg.View.Pod(uid)
	switch x := t.moves.all[uid]; {
	case x != nil:
		o = Objection{schemas.Rejected, schemas.ReasonMoving,
			fmt.Sprintf("on the move for %s of profile %s", x.Open.Strategy, x.Open.Profile)}
	case t.kept[uid] != nil && !known:
		o = Objection{schemas.Rejected, schemas.ReasonPodGone, "the pod was moved, and is gone"}
	case t.kept[uid] != nil && pod.Leaving:
		o = Objection{schemas.Rejected, schemas.ReasonPodTerminating, "the pod was moved, and is being deleted"}
	default:
		return false
	}
	t.answer(c, c.open.Verdict(o.Outcome, o.Reason, o.Message))
	return true
}

// deferred defers the intent whose turn it is when a limit of a window or a brake forbids it, and says whether it did.
func (t *term) deferred(now time.Time) bool {
	c := t.table.front()
	o, again, ok := t.forbidden(c.open, c.answer, now)
	if !ok {
		return false
	}
	v := c.open.Verdict(o.Outcome, o.Reason, o.Message)
	v.Workload = workloadOf(t.cfg.View, c.open.Intent.Pod.UID)
	if !again.IsZero() {
		v.Again = again.UTC()
	}
	t.answer(c, v)
	return true
}

// answer gives the intent whose turn it is a verdict without any work on it.
func (t *term) answer(c *claim, v schemas.Verdict) {
	t.table.settle(c)
	t.apply(changes{verdicts: []decided{{claim: c, verdict: v}}})
}

// forbidden says why an intent, which the answer listed last, has to be decided about again later, and when at the earliest.
func (t *term) forbidden(o Open, of *answer, now time.Time) (why Objection, again time.Time, ok bool) {
	if len(t.open) > 0 {
		return Objection{schemas.Deferred, t.open[0].Reason, t.open[0].Message}, now.Add(policy.StormPause), true
	}
	workload := marked(o, t.cfg.View).workload
	if why, until := t.storm.Refuses(o.Intent.Pod.Namespace, now); why != "" {
		return Objection{schemas.Deferred, schemas.ReasonStormFailures, why}, until, true
	}
	if why, outdated := t.departures.outdated(of, workload); outdated {
		return why, time.Time{}, true
	}
	key := limit.BreakerKey{Workload: workload, Strategy: o.Strategy, Node: o.Intent.Node}
	if until := t.loop.Holds(key, now); !until.IsZero() {
		return Objection{schemas.Deferred, schemas.ReasonLoop, fmt.Sprintf(
			"moving pods of this workload off %s has not helped: they come back; the next try is at %s", o.Intent.Node, clock(until),
		)}, until, true
	}
	reason, message, wait := t.limits.Admits(originOf(o), now)
	if wait == 0 {
		return Objection{}, time.Time{}, false
	}
	if wait != limit.Never {
		again = now.Add(wait)
	}
	return Objection{schemas.Deferred, reason, message + "; " + limit.RoomAgain(wait, now)}, again, true
}

// hold lets the intent whose turn it is wait for something that is on the move, if it has to, and says whether it does.
func (t *term) hold(now time.Time) bool {
	c := t.table.front()
	p := t.policy.Load()
	at := marked(c.open, t.cfg.View)
	h, holds := held(candidate{open: c.open, at: at, moves: t.moves, view: t.cfg.View, limits: p.Limits, now: now})
	if wait := t.space(at.namespace).Wait(now); !holds && wait > 0 {
		holds, h = true, hold{
			by: holder{"namespace", at.namespace}, until: now.Add(wait),
			why: Objection{schemas.Deferred, schemas.ReasonNamespaceRate, "namespace " + at.namespace + " has used up its rate"},
		}
	}
	if !holds {
		return false
	}
	t.table.hold(h, now)
	due := c.since.Add(holdPatience)
	if !h.until.IsZero() && h.until.Before(due) {
		due = h.until
	}
	if t.due.IsZero() || due.Before(t.due) {
		t.due = due
	}
	return true
}

// space is the bucket of a namespace. nil: the policy has no rate for each of them.
func (t *term) space(namespace string) *limit.Bucket {
	r := t.policy.Load().Rate.PerNamespace
	if r == nil {
		return nil
	}
	if t.spaces[namespace] == nil {
		t.spaces[namespace] = limit.NewBucket(policy.Rate{EvictionsPerSecond: r.EvictionsPerSecond, Burst: r.Burst})
	}
	return t.spaces[namespace]
}
