package actuator

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"

	"github.com/rehome-dev/rehome/actuator/limit"
	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// parkedFor is the longest time that an intent is parked before it is deferred. Most blockers pass within seconds, when
// a replacement is ready; evaluating the pod again each time would cost more.
const parkedFor = time.Minute

// blocker identifies what blocks parked intents: a node, a namespace, a workload, or a pod, by name or UID, or everything.
type blocker struct{ kind, name string }

func workloadBlocker(workload types.UID) blocker { return blocker{"workload", string(workload)} }

// podBlocker blocks the intents for a pod that is not in the cache yet, or whose eviction call has no answer yet.
func podBlocker(pod types.UID) blocker { return blocker{"pod", string(pod)} }

// parked is the reason why an entry waits outside the queue.
type parked struct {
	by  blocker
	why *move.Refusal // with the objects that block it
	// until is the time at which the reason may end by itself. Zero means that only a change of the blocker ends it.
	until time.Time
}

// admission is the input of the rules of admission.
type admission struct {
	intent Intent
	at     limitKeys
	moves  *moves
	view   View
	limits policy.Limits
	now    time.Time
}

// blocked returns the first rule that parks the admission, and whether there is one. The rules are pure.
func blocked(c admission) (parked, bool) {
	for _, rule := range []func(admission) (parked, bool){
		tooManyInFlight, // in total, per node, per namespace, and per workload
		coolingDown,     // one move of a workload at a time, if the policy requires it
		unavailable,     // without a budget, some pods of a workload stay available
	} {
		if p, blocks := rule(c); blocks {
			return p, true
		}
	}
	return parked{}, false
}

func tooManyInFlight(c admission) (parked, bool) {
	most := c.limits.InFlight
	reached := func(n int, most *uint) bool { return most != nil && uint(n) >= *most }
	park := func(by blocker, reason schemas.ReasonCode, of string, most uint, refs ...schemas.ObjectRef) (parked, bool) {
		words := fmt.Sprintf("%d pods %sare being moved, which is the limit", most, of)
		if most == 1 {
			words = "1 pod " + of + "is being moved, which is the limit"
		}
		return parked{by: by, why: deferredBy(refs, reason, words)}, true
	}
	w := c.moves.workloads[c.at.workload]
	switch {
	case reached(len(c.moves.all), most.Total):
		return park(blocker{kind: "everything"}, schemas.ReasonMovingTotal, "", *most.Total)
	case reached(c.moves.nodes[c.at.node], most.PerNode):
		return park(blocker{"node", c.at.node}, schemas.ReasonMovingNode, "of node "+c.at.node+" ", *most.PerNode,
			schemas.ObjectRef{Kind: "Node", Name: c.at.node})
	case reached(c.moves.namespaces[c.at.namespace], most.PerNamespace):
		return park(blocker{"namespace", c.at.namespace}, schemas.ReasonMovingNamespace, "of namespace "+c.at.namespace+" ",
			*most.PerNamespace, schemas.ObjectRef{Kind: "Namespace", Name: c.at.namespace})
	case w != nil && reached(len(w.moves), most.PerWorkload):
		ref := c.workload()
		return park(workloadBlocker(c.at.workload), schemas.ReasonMovingWorkload, fmt.Sprintf("of %s ", ref), *most.PerWorkload, ref)
	}
	return parked{}, false
}

// coolingDown counts from the acceptance of a move. A requested move has its cooldown before it.
func coolingDown(c admission) (parked, bool) {
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

// unavailable counts every desired pod that is not ready, for any reason, and every pod that is about to go. A pod that
// is not ready itself may go, because that makes nothing worse. A move of the pod itself does not count.
func unavailable(c admission) (parked, bool) {
	pod, known := c.view.Pod(c.intent.Pod.UID)
	if !known || pod.Budgeted || !pod.Ready || c.at.workload == "" {
		return parked{}, false
	}
	tally := c.view.Tally(c.at.workload)
	going := 0
	if w := c.moves.workloads[c.at.workload]; w != nil {
		going = len(w.going) // its eviction is requested and not visible yet
		if w.going[c.intent.Pod.UID] {
			going--
		}
	}
	most := c.limits.MayBeUnavailable(tally.Wanted)
	if tally.Wanted-tally.Ready+going < most {
		return parked{}, false
	}
	return c.byWorkload(schemas.ReasonWorkloadUnavailable, fmt.Sprintf(
		"%d of %d pods of %%s are available, and without a poddisruptionbudget %d may be unavailable at once",
		tally.Ready-going, tally.Wanted, most)), true
}

// byWorkload parks an intent under its workload, whose name replaces %s in the message.
func (c admission) byWorkload(reason schemas.ReasonCode, message string) parked {
	ref := c.workload()
	return parked{by: workloadBlocker(c.at.workload), why: deferredBy([]schemas.ObjectRef{ref}, reason, fmt.Sprintf(message, ref))}
}

func deferredBy(blockers []schemas.ObjectRef, reason schemas.ReasonCode, message string) *move.Refusal {
	return &move.Refusal{Outcome: schemas.Deferred, Reason: reason, Message: message, Blockers: blockers}
}

func (c admission) workload() schemas.ObjectRef {
	if w := workloadOf(c.view, c.intent.Pod.UID); w != nil {
		return *w
	}
	return schemas.ObjectRef{Kind: "workload", UID: c.at.workload}
}

// awaitsAnswer parks an intent whose pod an earlier session may have evicted.
func awaitsAnswer(x *inFlight) parked {
	return parked{by: podBlocker(x.uid()), why: move.Deferred(schemas.ReasonAPIUnavailable,
		"the actuator restarted before the API server answered an eviction call for the pod; it may still evict the pod")}
}

// awaitsCache parks an intent whose pod is not in the cache yet. A time releases it too, because the view reports no changes
// of pods without a workload.
func awaitsCache(e *entry, now time.Time) parked {
	why := move.Deferred(schemas.ReasonAPIUnavailable, "%v", errNotCached)
	return parked{by: podBlocker(e.uid()), until: now.Add(trackEvery), why: why}
}

// parks returns the reason why an intent is parked now, and whether it is. The caller holds mu.
func (s *session) parks(i Intent, at limitKeys, now time.Time) (parked, bool) {
	p, blocks := blocked(admission{i, at, s.moves, s.cfg.View, s.policy.Load().Limits, now})
	if rate := s.namespaceBucket(at.namespace).Wait(now); !blocks && rate > 0 {
		why := move.Deferred(schemas.ReasonNamespaceRate, "namespace %s has used up its rate", at.namespace)
		return parked{by: blocker{"namespace", at.namespace}, until: now.Add(rate), why: why}, true
	}
	return p, blocks
}

// reject gives an entry a verdict before its execution. again is the time of the next try, or zero if unknown.
func (s *session) reject(e *entry, r *move.Refusal, again time.Time) {
	v := e.intent.Verdict(r.Outcome, r.Reason, r.Message)
	v.Blockers = r.Blockers
	if r.Outcome == schemas.Deferred {
		v.Workload = workloadOf(s.cfg.View, e.uid())
	}
	if !again.IsZero() {
		v.Again = again.UTC()
	}
	s.entries.decide(e, v)
}

// notNow returns the reason why an intent is not executed now, or nil, and the earliest time of the next try.
func (s *session) notNow(e *entry, at limitKeys, now time.Time) (why *move.Refusal, again time.Time) {
	if e.intent.expired(now) {
		return late(e.intent), time.Time{}
	}
	// A settled move counts only until its end is stored: its pod can be back after a restore of etcd, and the cache can lack it.
	x := s.moves.all[e.uid()]
	if last := s.settled[e.uid()]; x == nil && last != nil && last.ending {
		x = last
	}
	if x != nil {
		return rejected(schemas.ReasonMoving, "on the move for %s of profile %s", x.Intent.Strategy, x.Intent.Profile), time.Time{}
	}
	if why, until := s.breakerOpen(at.namespace, now); why != nil {
		return why, until
	}
	if why := s.departures.stale(e.message, at.workload); why != nil {
		return why, time.Time{}
	}
	k := limit.BreakerKey{Workload: at.workload, Strategy: e.intent.Strategy, Node: at.node}
	if until := s.loop.Holds(k, now); !until.IsZero() {
		return move.Deferred(schemas.ReasonLoop,
			"moving pods of this workload off %s has not helped: they come back; the next try is at %s", at.node, clock(until)), until
	}
	reason, message, wait := limit.Admits(s.policy.Load().Limits, s.counted, at.node, at.namespace, now)
	if wait == 0 {
		return nil, time.Time{}
	}
	if wait != limit.Never {
		again = now.Add(wait)
	}
	return move.Deferred(reason, "%s; %s", message, limit.RoomAgain(wait, now)), again
}

// breakerOpen returns the reason if the cluster circuit breaker holds all moves, or those of a namespace, and the earliest
// time of the next try. Otherwise the reason is nil.
func (s *session) breakerOpen(namespace string, now time.Time) (why *move.Refusal, again time.Time) {
	if list := s.cluster.Open(); len(list) > 0 {
		return move.Deferred(list[0].Reason, "%s", list[0].Message), now.Add(policy.ClusterBreakerPause)
	}
	message, until := s.cluster.Refuses(namespace, now)
	if message == "" {
		return nil, time.Time{}
	}
	return move.Deferred(schemas.ReasonStormFailures, "%s", message), until
}

// namespaceBucket returns the bucket of a namespace, or nil if the policy has no rate per namespace.
func (s *session) namespaceBucket(namespace string) *limit.Bucket {
	full := ofNamespace(s.policy.Load())
	if full != nil && s.namespaces[namespace] == nil {
		s.namespaces[namespace] = full
	}
	return s.namespaces[namespace]
}

// ofNamespace returns a full bucket of the rate per namespace, or nil if there is none.
func ofNamespace(p *policy.Policy) *limit.Bucket {
	r := p.Rate.PerNamespace
	if r == nil {
		return nil
	}
	return limit.NewBucket(policy.Rate{EvictionsPerSecond: r.EvictionsPerSecond, Burst: r.Burst})
}

// park lets an entry wait outside the queue, for at most a minute in total. The caller holds mu.
func (s *session) park(e *entry, p parked, now time.Time) {
	if e.since.IsZero() {
		e.since = now
	}
	if !now.Before(e.since.Add(parkedFor)) {
		s.reject(e, p.why, time.Time{})
		return
	}
	e.parked = &p
	list := s.parked[p.by]
	i, _ := slices.BinarySearchFunc(list, e, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.number, b.number))
	})
	s.parked[p.by] = slices.Insert(list, i, e)
	if !p.until.IsZero() {
		s.queues.wanted.AddWithOpts(priorityqueue.AddOpts{Priority: new(e.priority), After: p.until.Sub(now)}, e.uid())
	}
}

// unpark ends the parking of a parked entry.
func (s *session) unpark(e *entry) {
	by := e.parked.by
	e.parked = nil
	if s.parked[by] = slices.DeleteFunc(s.parked[by], func(o *entry) bool { return o == e }); len(s.parked[by]) == 0 {
		delete(s.parked, by)
	}
}

// release enqueues the first entry that is parked under a blocker. When that entry is no longer parked under it, for any
// reason, the next one is released.
func (s *session) release(by blocker) {
	if list := s.parked[by]; len(list) > 0 {
		s.enqueue(list[0])
	}
}

// releaseFor enqueues entries that a completed move blocked. The caller holds mu.
func (s *session) releaseFor(at limitKeys) {
	for _, by := range []blocker{
		{kind: "everything"}, {"node", at.node}, {"namespace", at.namespace}, workloadBlocker(at.workload),
	} {
		s.release(by)
	}
	s.freed()
}

// releaseAll enqueues all parked entries. The caller holds mu.
func (s *session) releaseAll() {
	for _, list := range s.parked {
		for _, e := range list {
			s.enqueue(e)
		}
	}
}

// enqueue lets the dispatch loop reconcile the pod of an entry as soon as verdictRate allows another verdict on the pod.
func (s *session) enqueue(e *entry) {
	after := s.verdicts[e.uid()].Wait(s.cfg.Now())
	if after > 0 {
		s.metrics.throttled.Inc()
	}
	s.queues.wanted.AddWithOpts(priorityqueue.AddOpts{Priority: new(e.priority), After: after}, e.uid())
}

// expire gives a verdict to the entries that have expired or were parked for too long. The caller holds mu.
func (s *session) expire(now time.Time) {
	s.entries.rejectAll(late, func(i Intent) bool { return i.expired(now) })
	for _, list := range s.parked {
		for _, e := range slices.Clone(list) {
			if !now.Before(e.since.Add(parkedFor)) {
				s.reject(e, e.parked.why, time.Time{})
			}
		}
	}
}

// checkCluster updates the cluster breaker after a change. The caller holds mu.
func (s *session) checkCluster(now time.Time) {
	if !s.clusterDue {
		return
	}
	s.clusterDue = false
	state := limit.ClusterState{Now: now, Nodes: s.cfg.View.Nodes()}
	for _, x := range s.moves.all {
		if !x.Moved.IsZero() && x.State == nil {
			state.Pending = append(state.Pending, x.leftAt())
		}
	}
	for _, x := range s.settled {
		if x.Pending {
			state.Pending = append(state.Pending, x.leftAt())
		}
	}
	open, changed := s.cluster.Look(state)
	if !changed {
		return
	}
	s.metrics.storm.Reset()
	for _, c := range open {
		s.metrics.storm.WithLabelValues(string(c.Reason)).Set(1)
		s.cfg.Log.Warn("cluster circuit breaker open; no pods are moved", "reason", c.Reason, "why", c.Message)
		s.events.announce(corev1.EventTypeWarning, stormEvent, "moves stopped: "+c.Message)
	}
	if len(open) == 0 {
		s.change(keyStorm, nil)
		s.cfg.Log.Info("cluster circuit breaker closed; pods can move again")
		s.events.announce(corev1.EventTypeNormal, stormEvent, "cluster circuit breaker closed; pods can move again")
	} else {
		s.change(keyStorm, stormRecord{open})
	}
	s.releaseAll()
	s.freed()
}

// storeLoop stores the state of a workload breaker. It does not write a key for nodes without a return on every move: a
// restart can at most miss one return.
func (s *session) storeLoop(k limit.BreakerKey) {
	if b, ok := s.loop.Entry(k); ok && b.Returns > 0 {
		s.change(loopKey(k), b)
	}
}
