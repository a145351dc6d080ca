package actuator

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator/limit"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// loopRecord is what the ledger has of a loop breaker. Until is there for those who read the ledger: what holds is found
// out anew by the policy.
type loopRecord LoopBreaker

// loopKey is the ledger's key of a loop breaker. The workload comes first, for whoever clears its breakers.
func loopKey(k limit.BreakerKey) string {
	rest := base64.RawURLEncoding.EncodeToString([]byte(k.Strategy + "\x00" + k.Node))
	return keyLoop + string(k.Workload) + "." + rest
}

// leaves notes that a pod was moved off its node. The caller holds mu.
func (s *session) leaves(x *inFlight, now time.Time) {
	if !loops(s.traits(x)) {
		return
	}
	k := limit.BreakerKey{Workload: x.at.workload, Strategy: x.Open.Strategy, Node: x.at.node}
	s.loop.Moved(k, now)
	s.left[k] = x.seen
	s.rememberLoop(k, x.Workload)
}

// landed notes where the replacement of a pod runs, and says so when the loop breaker opens. The caller holds mu.
func (s *session) landed(x *inFlight, e ended, now time.Time) {
	node := e.settlement.Node
	if node == "" || x.at.workload == "" || !loops(s.traits(x)) {
		return
	}
	k := limit.BreakerKey{Workload: x.at.workload, Strategy: x.Open.Strategy, Node: node}
	if node != x.at.node && s.cfg.View.Seen(x.replacement) <= s.left[k] {
		return // it was on its way there before the first pod had to leave: no return, though it may have to leave too
	}
	opened := s.loop.Landed(k.Workload, k.Strategy, x.at.node, node, now)
	if r, ok := s.loop.Record(k); ok && opened {
		until := s.loop.Holds(k, now)
		s.metrics.loops.WithLabelValues(k.Strategy).Inc()
		s.swept = time.Time{} // the gauge changes
		s.cfg.Log.Warn("loop breaker open", "workload", nameOf(x), "node", node, "strategy", k.Strategy,
			"returns", r.Returns, "until", until)
		s.events.note(x.record, loopEvent, fmt.Sprintf(
			"moved off node %s by %s and back on it, %d times: it is left alone there until %s",
			node, k.Strategy, r.Returns, clock(until)))
	}
	s.rememberLoop(k, x.Workload)
}

func nameOf(x *inFlight) string {
	if x.Workload != nil {
		return x.Workload.String()
	}
	return string(x.at.workload)
}

// rememberLoop queues what the ledger is to know of the loop breaker of a workload of that name, nil where it is not known.
// A node that no pod has come back to yet is not worth a write for each move: without it, a return in a circle goes
// uncounted once.
func (s *session) rememberLoop(k limit.BreakerKey, name *schemas.ObjectRef) {
	if name != nil {
		s.names[k.Workload] = *name
	}
	if r, ok := s.loop.Record(k); ok && r.Returns > 0 {
		s.change(s.loopEntry(limit.BreakerEntry{BreakerKey: k, BreakerRecord: r, Until: s.loop.Holds(k, s.cfg.Now())}))
		s.metrics.loopsOpen.Set(float64(s.loopsOpen()))
	}
}

// sweepEvery is how often what is over is forgotten.
const sweepEvery = 10 * time.Second

// sweep forgets the loop breakers that are over. The caller holds mu.
func (s *session) sweep(now time.Time) {
	if now.Before(s.swept.Add(sweepEvery)) {
		return
	}
	s.swept = now
	s.departures.forget(now)
	maps.DeleteFunc(s.spaces, func(_ string, b *limit.Bucket) bool { return b.Idle(now) })
	for _, old := range s.loop.Forget(now) {
		delete(s.left, old)
		s.change(ledgerChange{key: loopKey(old)})
	}
	named := map[types.UID]schemas.ObjectRef{}
	for _, e := range s.loop.All() {
		if name, ok := s.names[e.Workload]; ok {
			named[e.Workload] = name
		}
	}
	s.names = named
	s.metrics.loopsOpen.Set(float64(s.loopsOpen()))
}

// loopEntry is what the ledger is to know of a loop breaker.
func (s *session) loopEntry(e limit.BreakerEntry) ledgerChange {
	r := loopRecord{BreakerEntry: e}
	if name, ok := s.names[e.Workload]; ok {
		r.Name = &name
	}
	return ledgerChange{key: loopKey(e.BreakerKey), value: r}
}

// forgetLoops deletes from the ledger what is not remembered of these keys: the loop breaker is switched off. The caller
// holds mu.
func (s *session) forgetLoops(keys ...limit.BreakerKey) {
	for _, k := range keys {
		if _, ok := s.loop.Record(k); !ok {
			s.change(ledgerChange{key: loopKey(k)})
		}
	}
}

func (s *session) loopsOpen() int {
	now, open := s.cfg.Now(), 0
	for _, e := range s.loop.All() {
		if e.Until.After(now) {
			open++
		}
	}
	return open
}

// clearLoops forgets the loop breakers of a workload, or of all of them, because somebody asked for it under that key of the
// ledger, which is deleted after them.
func (s *session) clearLoops(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear(key)
}

// clear is clearLoops for a caller that holds mu.
func (s *session) clear(key string) {
	uid := types.UID(strings.TrimPrefix(key, keyClear))
	cleared := 0
	for _, e := range s.loop.All() {
		if uid == everyWorkload || e.Workload == uid {
			s.change(ledgerChange{key: loopKey(e.BreakerKey)})
			cleared++
		}
	}
	s.loop.Clear(func(k limit.BreakerKey) bool { return uid == everyWorkload || k.Workload == uid })
	s.change(ledgerChange{key: key})
	s.cfg.Log.Info("loop breakers cleared", "workload", uid, "breakers", cleared)
	s.metrics.loopsOpen.Set(float64(s.loopsOpen()))
}

// everyWorkload stands for a UID where all loop breakers are to be cleared.
const everyWorkload = "all"

// refresh asks the cluster breaker when something may have changed for it. The caller holds mu.
func (s *session) refresh(now time.Time) {
	if s.breakerDue.IsZero() || now.Before(s.breakerDue) {
		return
	}
	is := limit.Situation{Now: now, Nodes: s.cfg.View.Nodes()}
	for _, x := range s.moves.all {
		if !x.Moved.IsZero() && x.State == nil {
			is.Pending = append(is.Pending, x.Moved)
		}
	}
	for _, x := range s.pending {
		is.Pending = append(is.Pending, x.Moved)
	}
	open, changed := s.cluster.Look(is)
	s.open, s.breakerDue = open, s.cluster.Next(is)
	if !changed {
		return
	}
	s.metrics.storm.Reset()
	s.rememberStorm(now)
	for _, c := range open {
		s.metrics.storm.WithLabelValues(string(c.Reason)).Set(1)
		s.cfg.Log.Warn("circuit breaker open, nothing is moved", "reason", c.Reason, "why", c.Message)
		s.events.announce(corev1.EventTypeWarning, stormEvent, "nothing is moved: "+c.Message)
	}
	if len(open) == 0 {
		s.cfg.Log.Info("circuit breaker closed")
		s.events.announce(corev1.EventTypeNormal, stormEvent, "over: pods are moved again")
	}
	s.releaseAll()
	s.freed()
}

// rememberStorm queues what the ledger is to know of the storm brake. A condition that still holds keeps its beginning.
func (s *session) rememberStorm(now time.Time) {
	since := map[schemas.ReasonCode]time.Time{}
	var r stormRecord
	for _, c := range s.open {
		if since[c.Reason] = now; !s.since[c.Reason].IsZero() {
			since[c.Reason] = s.since[c.Reason]
		}
		r.Conditions = append(r.Conditions, StormCondition{c.Reason, c.Message, since[c.Reason].UTC()})
	}
	s.since = since
	e := ledgerChange{key: keyStorm}
	if len(r.Conditions) > 0 {
		e.value = r
	}
	s.change(e)
}

// followLedger hears who wants loop breakers cleared, until ctx ends.
func (s *session) followLedger(ctx context.Context) {
	if err := s.ledger.Follow(ctx, keyClear, s.clearLoops); err != nil && ctx.Err() == nil {
		s.cfg.Log.Error("the ledger cannot be followed; loop breakers cannot be cleared", "error", err)
	}
}

// loops says whether a pod that comes back to the node which it had to leave is moved in vain.
func loops(t policy.Traits) bool { return !t.RenewsPods && !t.MayReturn }
