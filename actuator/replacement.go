package actuator

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator/limit"
	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

const (
	// followFor limits how long a move is followed after its pod left. It allows for an image pull and the start of a new
	// node.
	followFor = 10 * time.Minute
	// replacedWithin is the time within which a controller creates a replacement. It usually needs milliseconds.
	replacedWithin = 30 * time.Second
	// skew is the tolerated difference of clocks.
	skew = 2 * time.Second
)

// Changed enqueues a change of the view.
func (a *Actuator) Changed(c cluster.Change) {
	if s := a.session.Load(); s != nil {
		s.queues.changes.Add(c)
	}
}

// observe handles the changes of the view until the queue is shut down.
func (s *session) observe() {
	for {
		c, shutdown := s.queues.changes.Get()
		if shutdown {
			return
		}
		s.mu.Lock()
		s.learn(c)
		s.mu.Unlock()
		s.queues.changes.Done(c)
	}
}

// learn handles one change of the view. It reads the changed pod and its moves, and all pods of the workload only if
// the change names no pod. The caller holds mu.
func (s *session) learn(c cluster.Change) {
	if c.Node != "" {
		s.clusterDue = true
		s.checkCluster(s.cfg.Now())
		return
	}
	w := s.moves.workloads[c.Workload]
	switch {
	case w == nil:
	case c.Pod == "":
		s.matchAll(c.Workload, w)
		for uid := range w.moves {
			s.queues.inFlight.Add(uid)
		}
	default:
		p, known := s.cfg.View.Pod(c.Pod)
		if w.moves[c.Pod] != nil {
			if known && p.Ready {
				w.going[c.Pod] = true
			} else {
				delete(w.going, c.Pod)
			}
			s.queues.inFlight.Add(c.Pod)
		}
		if x := w.replacements[c.Pod]; x != nil {
			s.queues.inFlight.Add(x.uid())
		} else if known {
			s.offer(w, p)
		}
		for uid, x := range w.moves {
			if x.State != nil {
				s.queues.inFlight.Add(uid)
			}
		}
	}
	if e := s.entries.front(c.Pod); e != nil && e.parked != nil {
		s.enqueue(e)
	}
	s.release(workloadBlocker(c.Workload))
}

// matchAll matches the moves of a workload with replacements among all of its pods.
func (s *session) matchAll(workload types.UID, w *workloadMoves) {
	pods := s.cfg.View.Pods(workload)
	w.going = map[types.UID]bool{}
	for _, p := range pods {
		if w.moves[p.Ref.UID] != nil && p.Ready {
			w.going[p.Ref.UID] = true
		}
		w.sawPod(p)
	}
	for _, p := range pods {
		s.offer(w, p)
	}
}

// offer assigns a replacement to the oldest move that waits for one. If there is none yet, it keeps the pod, because
// its move may be accepted a moment later.
func (s *session) offer(w *workloadMoves, p cluster.Pod) {
	uid := p.Ref.UID
	w.sawPod(p)
	if p.Leaving || w.moves[uid] != nil || w.replacements[uid] != nil {
		return
	}
	seen := s.cfg.View.Seen(uid)
	for i, x := range w.waiting {
		if x.replacedBy(p, seen) {
			w.waiting = slices.Delete(w.waiting, i, i+1)
			w.fresh = slices.DeleteFunc(w.fresh, func(o types.UID) bool { return o == uid })
			x.replacement, w.replacements[uid] = uid, x
			s.queues.inFlight.Add(x.uid())
			return
		}
	}
	if (w.first == 0 || seen > w.first) && !slices.Contains(w.fresh, uid) {
		w.fresh = append(w.fresh, uid)
	}
}

// await makes an accepted move wait for its replacement, which may exist already. The caller holds mu.
func (s *session) await(x *inFlight) {
	w := s.moves.workloads[x.at.workload]
	if w == nil || x.replacement != "" || slices.Contains(w.waiting, x) {
		return
	}
	i, _ := slices.BinarySearchFunc(w.waiting, x, func(a, b *inFlight) int { return a.older(b.record) })
	w.waiting = slices.Insert(w.waiting, i, x)
	fresh := w.fresh
	w.fresh = nil
	for _, uid := range fresh {
		if p, known := s.cfg.View.Pod(uid); known {
			s.offer(w, p)
		}
	}
}

// hasReplacement reports whether the workload of a move has a pod that can be its replacement.
func (s *session) hasReplacement(x *inFlight) bool {
	return slices.ContainsFunc(s.cfg.View.Pods(x.at.workload), func(p cluster.Pod) bool {
		return x.replacedBy(p, s.cfg.View.Seen(p.Ref.UID))
	})
}

// replacedBy reports whether a pod of the same workload replaces the moved pod. seen is its number in the view.
func (x *inFlight) replacedBy(p cluster.Pod, seen uint64) bool {
	newer := seen > x.seen
	switch {
	case x.seen != 0:
	case x.Newest.IsZero():
		newer = !p.Created.Before(x.Begun.Add(-skew).Truncate(time.Second))
	default:
		newer = p.Created.After(x.Newest) // a pod created in the same second may be a sibling
	}
	named := x.Workload == nil || x.Workload.Kind != "StatefulSet" || p.Ref.Name == x.Intent.Pod.Name
	return newer && named && !p.Leaving && p.Ref.UID != x.uid()
}

// overBy returns the end of a move, or nil if it goes on. The caller holds mu.
func (s *session) overBy(x *inFlight, now time.Time) *ended {
	w := s.moves.workloads[x.at.workload]
	if x.replacement != "" {
		if p, known := s.cfg.View.Pod(x.replacement); !known || p.Leaving {
			delete(w.replacements, x.replacement)
			x.replacement = ""
		}
	}
	s.await(x)
	var by cluster.Pod
	if x.replacement != "" {
		by, _ = s.cfg.View.Pod(x.replacement)
	}
	if by.Node != "" {
		s.releaseReservation(x)
	}
	pod, _ := s.cfg.View.Pod(x.uid())
	e, over := settled(x, s.traits(x), pod, by, s.cfg.View.Tally(x.at.workload), now)
	if !over {
		return nil
	}
	return &e
}

// settle ends a move in flight, with or without a replacement: it frees the limits that the move counts against, and
// publishes the end. The caller holds mu.
func (s *session) settle(x *inFlight, e ended, now time.Time) {
	s.moves.remove(x)
	s.releaseReservation(x)
	s.entries.stepped(x, now)
	s.clusterDue = true // one pending replacement less, or one that is no longer followed
	s.releaseFor(x.at)
	s.recordLanding(x, e, now)
	x.Settled, x.Replacement, x.Pending = true, x.replacement, e.pending(now.Sub(x.leftAt()))
	s.publishEnd(x, e)
	if e := s.entries.front(x.uid()); e != nil {
		s.enqueue(e)
	}
}

// movedOff reports to the workload breaker that a pod was moved off its node. The caller holds mu.
func (s *session) movedOff(x *inFlight, now time.Time) {
	if s.traits(x).StaysAway() {
		k := limit.BreakerKey{Workload: x.at.workload, Strategy: x.Intent.Strategy, Node: x.at.node}
		s.loop.Moved(k, x.Workload, x.seen, now)
		s.storeLoop(k)
	}
}

// recordLanding reports to the workload breaker where the replacement of a pod runs. The caller holds mu.
func (s *session) recordLanding(x *inFlight, e ended, now time.Time) {
	node := e.settlement.Node
	if node == "" || x.at.workload == "" || !s.traits(x).StaysAway() {
		return
	}
	k := limit.BreakerKey{Workload: x.at.workload, Strategy: x.Intent.Strategy, Node: node}
	before, _ := s.loop.Entry(k)
	if node != x.at.node && s.cfg.View.Seen(x.replacement) <= before.Seen {
		return // the replacement was scheduled before the first pod had to leave, so this is no return
	}
	opened := s.loop.Landed(k, x.at.node, x.Workload, now)
	if b, _ := s.loop.Entry(k); opened {
		s.metrics.loops.WithLabelValues(k.Strategy).Inc()
		name := string(x.at.workload)
		if x.Workload != nil {
			name = x.Workload.String()
		}
		s.cfg.Log.Warn("circuit breaker of a workload open", "workload", name, "node", node, "strategy", k.Strategy,
			"returns", b.Returns, "until", b.Until)
		s.events.warn(x.record, loopEvent, fmt.Sprintf(
			"moved off node %s by %s and back on it, %d times: not moved off it again until %s",
			node, k.Strategy, b.Returns, clock(b.Until)))
	}
	s.storeLoop(k)
}

// isPlaced reports whether a move was refused for lack of a good node, and has a replacement already. The first change was made
// then, and the replacement itself may have taken the last room.
func (s *session) isPlaced(x *inFlight, r *move.Refusal) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return (r.Reason == schemas.ReasonNodeFit || r.Reason == schemas.ReasonInVain) && s.hasReplacement(x)
}

// isPending reports whether the replacement of a move that is no longer followed is still not ready.
func (s *session) isPending(x *inFlight) bool {
	if uid := x.Replacement; uid != "" {
		p, known := s.cfg.View.Pod(uid)
		return known && !p.Ready && !p.Ended && !p.Leaving
	}
	pod, _ := s.cfg.View.Pod(x.uid())
	tally := s.cfg.View.Tally(x.at.workload)
	return pod.Leaving || tally.Ready < tally.Wanted
}

// ended is the end of a move.
type ended struct {
	reason     schemas.ReasonCode
	message    string
	settlement schemas.Settlement
}

// pending reports whether a move ended although its replacement is not ready, that long after its pod left.
func (e ended) pending(waited time.Duration) bool {
	return e.reason == schemas.ReasonReplacementPending || e.reason == schemas.ReasonNotReplaced && waited >= followFor
}

// settled reports whether a move is over at the time now, and how. pod is the moved pod, or the zero value if it is
// gone; replacement is the zero value if there is none.
func settled(x *inFlight, of policy.Traits, pod, replacement cluster.Pod, tally cluster.Tally, now time.Time) (ended, bool) {
	var e ended
	since, waited := now.Sub(x.Moved), now.Sub(x.leftAt())
	if replacement.Ref.UID == "" {
		e.reason, e.message = unreplaced(x, pod, tally, waited)
	} else {
		e.reason, e.message = replaced(x, of, replacement, since, waited)
		e.settlement.Replacement, e.settlement.Node = &replacement.Ref, replacement.Node
	}
	if e.reason == "" {
		return ended{}, false
	}
	e.settlement.Seconds = since.Seconds()
	return e, true
}

// replaced returns the end of a move with a replacement. Empty means that it is not over. since counts from the
// acceptance of the move, waited from the time when its pod left.
func replaced(x *inFlight, of policy.Traits, by cluster.Pod, since, waited time.Duration) (schemas.ReasonCode, string) {
	arrived := fmt.Sprintf("%s runs on %s, after %v", by.Ref, by.Node, since.Round(time.Millisecond))
	switch {
	case (by.Ready || by.Ended) && by.Node == x.Intent.Node && !of.RenewsPods:
		return schemas.ReasonCameBack, arrived
	case by.Ready || by.Ended:
		return schemas.ReasonReplaced, arrived
	case waited >= followFor:
		return schemas.ReasonReplacementPending, by.Ref.String() + " is not ready: " + by.Why
	}
	return "", ""
}

// unreplaced returns the end of a move without a replacement. Empty means that it is not over. waited counts from
// the time when its pod left.
func unreplaced(x *inFlight, pod cluster.Pod, tally cluster.Tally, waited time.Duration) (schemas.ReasonCode, string) {
	switch gone := pod.Ref.UID == "" || pod.Ended; {
	case gone && x.at.workload == "":
		return schemas.ReasonNotReplaced, "the pod is gone and has no controller to replace it"
	case gone && tally.Ready >= tally.Wanted && waited >= replacedWithin:
		return schemas.ReasonNotReplaced,
			fmt.Sprintf("no pod replaced it; %d of %d pods are ready", tally.Ready, tally.Wanted)
	case gone && waited >= followFor:
		return schemas.ReasonNotReplaced, "no replacement was made"
	case waited >= followFor:
		return schemas.ReasonReplacementPending, "the pod is still being deleted"
	}
	return "", ""
}

// verdict returns the verdict that ends a move.
func (x *inFlight) verdict(e ended) schemas.Verdict {
	v := x.Intent.Verdict(schemas.Settled, e.reason, e.message)
	v.Method, v.Instead, v.Workload, v.Settlement = x.Method, x.Instead, x.Workload, &e.settlement
	return v
}
