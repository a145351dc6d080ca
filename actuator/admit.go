package actuator

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator/limit"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// parkedFor is how long an intent is parked until it is deferred, which tells everybody why. What blocks it mostly passes within
// seconds, when a replacement is ready; a new evaluation each time would cost more than waiting.
const parkedFor = time.Minute

// blocker is what intents are parked under: a node, a namespace or a workload, by name or UID, that can take no more for now.
type blocker struct{ kind, name string }

// everything blocks whatever it is about.
func everything() blocker { return blocker{kind: "everything"} }

func workloadBlocker(workload types.UID) blocker { return blocker{"workload", string(workload)} }

// parked says why an entry waits beside the queue.
type parked struct {
	by  blocker
	why Objection
	// until is when it may be over without a change of what blocks it. Zero: a change ends it.
	until time.Time
	// blockers are what the verdict names, if it comes to one.
	blockers []schemas.ObjectRef
}

// candidate is everything that the rules of admission look at: the intent whose turn it is, and what is on the move.
type candidate struct {
	open   Open
	at     limitKeys
	moves  *moves
	view   View
	limits policy.Limits
	now    time.Time
}

// rules park an intent until something that is on the move arrives, in this order. The first one counts. They are pure.
func rules() []func(candidate) (parked, bool) {
	return []func(candidate) (parked, bool){
		totalMoving,     // no more at once at all
		nodeMoving,      // no more at once off one node
		namespaceMoving, // or out of one namespace
		workloadMoving,  // or of one workload
		coolingDown,     // one move of a workload after the other, where the policy asks for it
		enoughAvailable, // of a workload without a budget some pods stay available, whatever else happens to it
	}
}

// blocked returns the first rule that parks the candidate, and whether there is one.
func blocked(c candidate) (parked, bool) {
	for _, rule := range rules() {
		if p, blocks := rule(c); blocks {
			return p, true
		}
	}
	return parked{}, false
}

func totalMoving(c candidate) (parked, bool) {
	most := c.limits.InFlight.Total
	if most == nil || uint(len(c.moves.all)) < *most {
		return parked{}, false
	}
	return parked{by: everything(), why: Objection{schemas.Deferred, schemas.ReasonMovingTotal, onTheMove(*most)}}, true
}

func nodeMoving(c candidate) (parked, bool) {
	most := c.limits.InFlight.PerNode
	if most == nil || uint(c.moves.nodes[c.at.node]) < *most {
		return parked{}, false
	}
	return parked{
		by: blocker{"node", c.at.node}, blockers: []schemas.ObjectRef{{Kind: "Node", Name: c.at.node}},
		why: Objection{schemas.Deferred, schemas.ReasonMovingNode, "of node " + c.at.node + " " + onTheMove(*most)},
	}, true
}

func namespaceMoving(c candidate) (parked, bool) {
	most := c.limits.InFlight.PerNamespace
	if most == nil || uint(c.moves.namespaces[c.at.namespace]) < *most {
		return parked{}, false
	}
	return parked{
		by: blocker{"namespace", c.at.namespace}, blockers: []schemas.ObjectRef{{Kind: "Namespace", Name: c.at.namespace}},
		why: Objection{schemas.Deferred, schemas.ReasonMovingNamespace, "of namespace " + c.at.namespace + " " + onTheMove(*most)},
	}, true
}

func workloadMoving(c candidate) (parked, bool) {
	most := c.limits.InFlight.PerWorkload
	if w := c.moves.workloads[c.at.workload]; most == nil || w == nil || uint(len(w.moves)) < *most {
		return parked{}, false
	}
	return c.byWorkload(schemas.ReasonMovingWorkload, "of %s "+onTheMove(*most)), true
}

// coolingDown counts from when a move was accepted. One that is asked for may take any time until it is, and has its cooldown
// before it.
func coolingDown(c candidate) (parked, bool) {
	if c.limits.Pause <= 0 || c.at.workload == "" {
		return parked{}, false
	}
	if w := c.moves.workloads[c.at.workload]; w != nil && w.asked > 0 {
		return c.byWorkload(schemas.ReasonWorkloadPause, "another pod of %s is being moved at this moment"), true
	}
	until := c.moves.last[c.at.workload].Add(c.limits.Pause)
	if !c.now.Before(until) {
		return parked{}, false
	}
	p := c.byWorkload(schemas.ReasonWorkloadPause, "another pod of %s was moved less than "+c.limits.Pause.String()+" ago")
	p.until = until
	return p, true
}

// enoughAvailable counts every pod that is wanted and not ready as unavailable, whatever the cause, and every one that is
// about to go. A pod that is not ready itself can go: it makes nothing worse.
func enoughAvailable(c candidate) (parked, bool) {
	pod, known := c.view.Pod(c.open.Intent.Pod.UID)
	if !known || pod.Budgeted || !pod.Ready || c.at.workload == "" {
		return parked{}, false
	}
	tally := c.view.Tally(c.at.workload)
	going := 0
	if w := c.moves.workloads[c.at.workload]; w != nil {
		going = len(w.going) // asked to go, which is not seen yet
	}
	most := c.limits.MayBeUnavailable(tally.Wanted)
	if tally.Wanted-tally.Ready+going < most {
		return parked{}, false
	}
	return c.byWorkload(schemas.ReasonWorkloadUnavailable, fmt.Sprintf(
		"%d of %d pods of %%s are available, and without a poddisruptionbudget %d may be unavailable at once",
		tally.Ready-going, tally.Wanted, most)), true
}

// byWorkload parks under the workload, whose name takes the place of %s in the message.
func (c candidate) byWorkload(reason schemas.ReasonCode, message string) parked {
	ref := schemas.ObjectRef{Kind: "workload", UID: c.at.workload}
	if w := workloadOf(c.view, c.open.Intent.Pod.UID); w != nil {
		ref = *w
	}
	return parked{
		by: workloadBlocker(c.at.workload), blockers: []schemas.ObjectRef{ref},
		why: Objection{schemas.Deferred, reason, fmt.Sprintf(message, ref)},
	}
}

func onTheMove(most uint) string {
	if most == 1 {
		return "1 pod is on the move, as many as may be"
	}
	return fmt.Sprintf("%d pods are on the move, as many as may be", most)
}

// admit gives the open intent of a pod a verdict, parks it, or begins its execution. wait is how long it takes until there is
// capacity to execute it, if that is all that is missing. The caller holds mu.
func (s *session) admit(e *entry, now time.Time) (x *execution, wait time.Duration) {
	was := e.parked
	s.unpark(e)
	defer func() {
		if was != nil && e.parked == nil && wait == 0 {
			s.release(was.by) // it is not blocked any more: perhaps the next one is not either
		}
	}()
	if expired(e.open.Intent, now) {
		s.settle(e, Objection{schemas.Expired, schemas.ReasonExpired, expiredMessage(e.open.Intent)})
		return nil, 0
	}
	if o, under := s.underWay(e); under {
		s.settle(e, o)
		return nil, 0
	}
	if o, again, forbids := s.forbidden(e, now); forbids {
		v := e.open.Verdict(o.Outcome, o.Reason, o.Message)
		v.Workload = workloadOf(s.cfg.View, e.uid())
		if !again.IsZero() {
			v.Again = again.UTC()
		}
		s.entries.settle(e)
		s.apply(changes{verdicts: []verdictOn{{entry: e, verdict: v}}})
		return nil, 0
	}
	at := keysOf(e.open, s.cfg.View)
	p, blocks := blocked(candidate{open: e.open, at: at, moves: s.moves, view: s.cfg.View, limits: s.policy.Load().Limits, now: now})
	if space := s.space(at.namespace).Wait(now); !blocks && space > 0 {
		blocks, p = true, parked{
			by: blocker{"namespace", at.namespace}, until: now.Add(space),
			why: Objection{schemas.Deferred, schemas.ReasonNamespaceRate, "namespace " + at.namespace + " has used up its rate"},
		}
	}
	if blocks {
		s.park(e, p, now)
		return nil, 0
	}
	if wait = s.capacityWait(now); wait > 0 {
		return nil, wait
	}
	return s.begin(e, now), 0
}

// settle gives an intent a verdict that needs no execution. The caller holds mu.
func (s *session) settle(e *entry, o Objection) {
	s.apply(changes{verdicts: []verdictOn{s.entries.verdict(e, o.Outcome, o.Reason, o.Message)}})
}

// underWay says why an intent is rejected whose pod was moved already: a message can come late. To begin the move anew would take
// the place of what is remembered of it.
func (s *session) underWay(e *entry) (Objection, bool) {
	uid := e.uid()
	pod, known := s.cfg.View.Pod(uid)
	switch x := s.moves.all[uid]; {
	case x != nil:
		return Objection{schemas.Rejected, schemas.ReasonMoving,
			fmt.Sprintf("on the move for %s of profile %s", x.Open.Strategy, x.Open.Profile)}, true
	case s.kept[uid] != nil && !known:
		return Objection{schemas.Rejected, schemas.ReasonPodGone, "the pod was moved, and is gone"}, true
	case s.kept[uid] != nil && pod.Leaving:
		return Objection{schemas.Rejected, schemas.ReasonPodTerminating, "the pod was moved, and is being deleted"}, true
	}
	return Objection{}, false
}

// forbidden says why an intent has to be decided about again later, and when at the earliest.
func (s *session) forbidden(e *entry, now time.Time) (why Objection, again time.Time, ok bool) {
	if len(s.open) > 0 {
		return Objection{schemas.Deferred, s.open[0].Reason, s.open[0].Message}, now.Add(policy.StormPause), true
	}
	if why, until := s.cluster.Refuses(e.open.Intent.Pod.Namespace, now); why != "" {
		return Objection{schemas.Deferred, schemas.ReasonStormFailures, why}, until, true
	}
	workload := keysOf(e.open, s.cfg.View).workload
	if why, stale := s.departures.stale(e.message, workload); stale {
		return why, time.Time{}, true
	}
	key := limit.BreakerKey{Workload: workload, Strategy: e.open.Strategy, Node: e.open.Intent.Node}
	if until := s.loop.Holds(key, now); !until.IsZero() {
		return Objection{schemas.Deferred, schemas.ReasonLoop, fmt.Sprintf(
			"moving pods of this workload off %s has not helped: they come back; the next try is at %s", key.Node, clock(until),
		)}, until, true
	}
	reason, message, wait := s.windows.Admits(originOf(e.open), now)
	if wait == 0 {
		return Objection{}, time.Time{}, false
	}
	if wait != limit.Never {
		again = now.Add(wait)
	}
	return Objection{schemas.Deferred, reason, message + "; " + limit.RoomAgain(wait, now)}, again, true
}

// space is the bucket of a namespace. nil: the policy has no rate for each of them.
func (s *session) space(namespace string) *limit.Bucket {
	r := s.policy.Load().Rate.PerNamespace
	if r == nil {
		return nil
	}
	if s.spaces[namespace] == nil {
		s.spaces[namespace] = limit.NewBucket(policy.Rate{EvictionsPerSecond: r.EvictionsPerSecond, Burst: r.Burst})
	}
	return s.spaces[namespace]
}

// park lets an entry wait beside the queue, for a minute in all. The caller holds mu.
func (s *session) park(e *entry, p parked, now time.Time) {
	if e.since.IsZero() {
		e.since = now
	}
	e.parked = &p
	if !now.Before(e.since.Add(parkedFor)) {
		s.giveUp(e)
		return
	}
	list := s.parked[p.by]
	i, _ := slices.BinarySearchFunc(list, e, inOrder)
	s.parked[p.by] = slices.Insert(list, i, e)
	s.setTimer(e, now)
}

// inOrder orders parked entries as the queue would.
func inOrder(a, b *entry) int {
	return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.number, b.number))
}

// unpark takes an entry out of those that are parked.
func (s *session) unpark(e *entry) {
	if e.parked == nil {
		return
	}
	by := e.parked.by
	e.parked = nil
	list := slices.DeleteFunc(s.parked[by], func(o *entry) bool { return o == e })
	if s.parked[by] = list; len(list) == 0 {
		delete(s.parked, by)
	}
}

// release enqueues the first entry that is parked under a blocker. When that is not blocked any more, it releases the next.
func (s *session) release(by blocker) {
	if list := s.parked[by]; len(list) > 0 {
		s.enqueue(list[0])
	}
}

// releaseFor lets entries try again that a move blocked which is over. The caller holds mu.
func (s *session) releaseFor(at limitKeys) {
	s.release(everything())
	s.release(blocker{"node", at.node})
	s.release(blocker{"namespace", at.namespace})
	if at.workload != "" {
		s.release(workloadBlocker(at.workload))
	}
	s.freed()
}

// enqueue lets the dispatcher reconcile the pod of an entry.
func (s *session) enqueue(e *entry) {
	s.queues.wanted.AddWithOpts(addOpts(e.priority), e.uid())
}

// giveUp defers an entry that was parked for too long. The caller holds mu.
func (s *session) giveUp(e *entry) {
	p := *e.parked
	v := s.entries.verdict(e, p.why.Outcome, p.why.Reason, p.why.Message)
	s.unpark(e)
	v.verdict.Blockers = p.blockers
	s.apply(changes{verdicts: []verdictOn{v}})
}

// setTimer lets an entry be looked at when it expires, and when it was parked for long enough. The caller holds mu.
func (s *session) setTimer(e *entry, now time.Time) {
	due := e.open.Intent.Expires
	if e.parked != nil {
		due = sooner(sooner(due, e.since.Add(parkedFor)), e.parked.until)
	}
	if e.timer != nil {
		e.timer.Stop()
	}
	e.timer = time.AfterFunc(due.Sub(now), func() { s.due(e) })
}

// due looks at an entry that waits, because a time has come: it expires, or it was parked for long enough.
func (s *session) due(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	if e.state != entryWaiting || s.closed {
		return
	}
	p := e.parked
	switch {
	case expired(e.open.Intent, now):
		s.unpark(e)
		s.settle(e, Objection{schemas.Expired, schemas.ReasonExpired, expiredMessage(e.open.Intent)})
	case p != nil && !now.Before(e.since.Add(parkedFor)):
		s.giveUp(e)
	case p != nil && !p.until.IsZero() && !now.Before(p.until):
		s.release(p.by)
		s.enqueue(e)
	}
	if e.state == entryWaiting {
		s.setTimer(e, now)
	}
}
