package actuator

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator/limit"
	"github.com/rehome-dev/rehome/policy"
)

// loops says whether a pod that returns to the node which it had to leave is moved in vain.
func loops(t policy.Traits) bool { return !t.RenewsPods && !t.MayReturn }

// movedOff tells the workload breaker that a pod was moved off its node. The caller holds mu.
func (s *session) movedOff(x *inFlight, now time.Time) {
	if loops(s.traits(x)) {
		k := limit.BreakerKey{Workload: x.at.workload, Strategy: x.Intent.Strategy, Node: x.at.node}
		s.loop.Moved(k, now)
		s.loop.Describe(k, x.Workload, x.seen)
		s.storeLoop(k)
	}
}

// landed tells the workload breaker where the replacement of a pod runs. The caller holds mu.
func (s *session) landed(x *inFlight, e ended, now time.Time) {
	node := e.settlement.Node
	if node == "" || x.at.workload == "" || !loops(s.traits(x)) {
		return
	}
	k := limit.BreakerKey{Workload: x.at.workload, Strategy: x.Intent.Strategy, Node: node}
	before, _ := s.loop.Entry(k)
	if node != x.at.node && s.cfg.View.Seen(x.replacement) <= before.Seen {
		return // it was on its way there before the first pod had to leave: no return, though it may have to leave too
	}
	opened := s.loop.Landed(k.Workload, k.Strategy, x.at.node, node, now)
	s.loop.Describe(k, x.Workload, before.Seen)
	if b, _ := s.loop.Entry(k); opened {
		s.metrics.loops.WithLabelValues(k.Strategy).Inc()
		name := string(x.at.workload)
		if x.Workload != nil {
			name = x.Workload.String()
		}
		s.cfg.Log.Warn("circuit breaker of a workload open", "workload", name, "node", node, "strategy", k.Strategy,
			"returns", b.Returns, "until", b.Until)
		s.events.warn(x.record, loopEvent, fmt.Sprintf(
			"moved off node %s by %s and back on it, %d times: it is left alone there until %s",
			node, k.Strategy, b.Returns, clock(b.Until)))
	}
	s.storeLoop(k)
}

// storeLoop stores the state of a workload breaker. A node that no pod returned to is not worth a write for each move: without
// it, a return in a circle goes uncounted once.
func (s *session) storeLoop(k limit.BreakerKey) {
	if b, ok := s.loop.Entry(k); ok && b.Returns > 0 {
		s.change(loopKey(k), b)
	}
	s.metrics.loopsOpen.Set(float64(s.loop.Open(s.cfg.Now())))
}

// followLedger closes workload breakers on request until ctx ends.
func (s *session) followLedger(ctx context.Context) {
	err := s.ledger.Follow(ctx, keyClear, func(key string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.clear(key)
	})
	if err != nil && ctx.Err() == nil {
		s.cfg.Log.Error("the ledger cannot be followed; circuit breakers of workloads cannot be closed on request", "error", err)
	}
}

// clear closes the workload breakers that the key of a request names, and deletes the request after them. The caller holds mu.
func (s *session) clear(key string) {
	uid := types.UID(strings.TrimPrefix(key, keyClear))
	workload := uid
	if uid == everyWorkload {
		workload = ""
	}
	cleared := s.loop.Clear(workload)
	for _, k := range cleared {
		s.change(loopKey(k), nil)
	}
	s.change(key, nil)
	s.cfg.Log.Info("circuit breakers of workloads closed on request", "workload", uid, "breakers", len(cleared))
	s.metrics.loopsOpen.Set(float64(s.loop.Open(s.cfg.Now())))
}

// checkCluster asks the cluster breaker if something changed for it. The caller holds mu.
func (s *session) checkCluster(now time.Time) {
	if !s.clusterDue {
		return
	}
	s.clusterDue = false
	situation := limit.Situation{Now: now, Nodes: s.cfg.View.Nodes()}
	for _, x := range s.moves.all {
		if !x.Moved.IsZero() && x.State == nil {
			situation.Pending = append(situation.Pending, x.Moved)
		}
	}
	for _, x := range s.settled {
		if x.Pending {
			situation.Pending = append(situation.Pending, x.Moved)
		}
	}
	open, changed := s.cluster.Look(situation)
	if !changed {
		return
	}
	s.metrics.storm.Reset()
	for _, c := range open {
		s.metrics.storm.WithLabelValues(string(c.Reason)).Set(1)
		s.cfg.Log.Warn("circuit breaker open, nothing is moved", "reason", c.Reason, "why", c.Message)
		s.events.announce(corev1.EventTypeWarning, stormEvent, "nothing is moved: "+c.Message)
	}
	if len(open) == 0 {
		s.change(keyStorm, nil)
		s.cfg.Log.Info("circuit breaker closed")
		s.events.announce(corev1.EventTypeNormal, stormEvent, "over: pods are moved again")
	} else {
		s.change(keyStorm, stormRecord{open})
	}
	s.releaseAll()
	s.freed()
}
