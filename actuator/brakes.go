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
func (t *term) leaves(x *moving, now time.Time) {
	if !loops(t.traits(x)) {
		return
	}
	k := limit.BreakerKey{Workload: x.at.workload, Strategy: x.Open.Strategy, Node: x.at.node}
	t.loop.Moved(k, now)
	t.left[k] = x.seen
	t.rememberLoop(k, x.Workload)
}

// landed notes where the replacement of a pod runs, and says so when the loop breaker opens. The caller holds mu.
func (t *term) landed(x *moving, e ended, now time.Time) {
	node := e.settlement.Node
	if node == "" || x.at.workload == "" || !loops(t.traits(x)) {
		return
	}
	k := limit.BreakerKey{Workload: x.at.workload, Strategy: x.Open.Strategy, Node: node}
	if node != x.at.node && t.cfg.View.Seen(x.replacement) <= t.left[k] {
		return // it was on its way there before the first pod had to leave: no return, though it may have to leave too
	}
	opened := t.loop.Landed(k.Workload, k.Strategy, x.at.node, node, now)
	if r, ok := t.loop.Record(k); ok && opened {
		until := t.loop.Holds(k, now)
		t.metrics.loops.WithLabelValues(k.Strategy).Inc()
		t.swept = time.Time{} // the gauge changes
		t.cfg.Log.Warn("loop breaker open", "workload", nameOf(x), "node", node, "strategy", k.Strategy,
			"returns", r.Returns, "until", until)
		t.events.note(x.record, loopEvent, fmt.Sprintf(
			"moved off node %s by %s and back on it, %d times: it is left alone there until %s",
			node, k.Strategy, r.Returns, clock(until)))
	}
	t.rememberLoop(k, x.Workload)
}

func nameOf(x *moving) string {
	if x.Workload != nil {
		return x.Workload.String()
	}
	return string(x.at.workload)
}

// rememberLoop queues what the ledger is to know of the loop breaker of a workload of that name, nil where it is not known.
// A node that no pod has come back to yet is not worth a write for each move: without it, a return in a circle goes
// uncounted once.
func (t *term) rememberLoop(k limit.BreakerKey, name *schemas.ObjectRef) {
	if name != nil {
		t.names[k.Workload] = *name
	}
	if r, ok := t.loop.Record(k); ok && r.Returns > 0 {
		t.change(t.loopEntry(limit.BreakerEntry{BreakerKey: k, BreakerRecord: r, Until: t.loop.Holds(k, t.cfg.Now())}))
	}
}

// sweepEvery is how often what is over is forgotten.
const sweepEvery = 10 * time.Second

// sweep forgets the loop breakers that are over. The caller holds mu.
func (t *term) sweep(now time.Time) {
	if now.Before(t.swept.Add(sweepEvery)) {
		return
	}
	t.swept = now
	t.departures.forget(now)
	maps.DeleteFunc(t.spaces, func(_ string, b *limit.Bucket) bool { return b.Idle(now) })
	for _, old := range t.loop.Forget(now) {
		delete(t.left, old)
		t.change(entryChange{key: loopKey(old)})
	}
	named := map[types.UID]schemas.ObjectRef{}
	for _, e := range t.loop.All() {
		if name, ok := t.names[e.Workload]; ok {
			named[e.Workload] = name
		}
	}
	t.names = named
	t.metrics.loopsOpen.Set(float64(t.loopsOpen()))
}

// loopEntry is what the ledger is to know of a loop breaker.
func (t *term) loopEntry(e limit.BreakerEntry) entryChange {
	r := loopRecord{BreakerEntry: e}
	if name, ok := t.names[e.Workload]; ok {
		r.Name = &name
	}
	return entryChange{key: loopKey(e.BreakerKey), value: r}
}

// forgetLoops deletes from the ledger what is not remembered of these keys: the loop breaker is switched off. The caller
// holds mu.
func (t *term) forgetLoops(keys ...limit.BreakerKey) {
	for _, k := range keys {
		if _, ok := t.loop.Record(k); !ok {
			t.change(entryChange{key: loopKey(k)})
		}
	}
}

func (t *term) loopsOpen() int {
	now, open := t.cfg.Now(), 0
	for _, e := range t.loop.All() {
		if e.Until.After(now) {
			open++
		}
	}
	return open
}

// clearLoops forgets the loop breakers of a workload, or of all of them, because somebody asked for it under that key of the
// ledger, which is deleted after them.
func (t *term) clearLoops(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clear(key)
}

// clear is clearLoops for a caller that holds mu.
func (t *term) clear(key string) {
	uid := types.UID(strings.TrimPrefix(key, keyClear))
	cleared := 0
	for _, e := range t.loop.All() {
		if uid == everyWorkload || e.Workload == uid {
			t.change(entryChange{key: loopKey(e.BreakerKey)})
			cleared++
		}
	}
	t.loop.Clear(func(k limit.BreakerKey) bool { return uid == everyWorkload || k.Workload == uid })
	t.change(entryChange{key: key})
	t.cfg.Log.Info("loop breakers cleared", "workload", uid, "breakers", cleared)
	t.metrics.loopsOpen.Set(float64(t.loopsOpen()))
}

// everyWorkload stands for a UID where all loop breakers are to be cleared.
const everyWorkload = "all"

// brake asks the storm brake when something may have changed for it. The caller holds mu.
func (t *term) brake(now time.Time) {
	if !t.stormy && (t.calm.IsZero() || now.Before(t.calm)) {
		return
	}
	t.stormy = false
	s := limit.Situation{Now: now, Nodes: t.cfg.View.Nodes()}
	for _, x := range t.moves.all {
		if !x.Moved.IsZero() && x.State == nil {
			s.Pending = append(s.Pending, x.Moved)
		}
	}
	for _, x := range t.pending {
		s.Pending = append(s.Pending, x.Moved)
	}
	open, changed := t.storm.Look(s)
	t.open, t.calm = open, t.storm.Next(s)
	if !changed {
		return
	}
	t.metrics.storm.Reset()
	t.rememberStorm(now)
	for _, c := range open {
		t.metrics.storm.WithLabelValues(string(c.Reason)).Set(1)
		t.cfg.Log.Warn("storm brake open, nothing is moved", "reason", c.Reason, "why", c.Message)
		t.events.announce(corev1.EventTypeWarning, stormEvent, "nothing is moved: "+c.Message)
	}
	if len(open) == 0 {
		t.cfg.Log.Info("storm brake closed")
		t.events.announce(corev1.EventTypeNormal, stormEvent, "over: pods are moved again")
	}
	t.table.releaseAll()
}

// rememberStorm queues what the ledger is to know of the storm brake. A condition that still holds keeps its beginning.
func (t *term) rememberStorm(now time.Time) {
	since := map[schemas.ReasonCode]time.Time{}
	var r stormRecord
	for _, c := range t.open {
		if since[c.Reason] = now; !t.since[c.Reason].IsZero() {
			since[c.Reason] = t.since[c.Reason]
		}
		r.Conditions = append(r.Conditions, StormCondition{c.Reason, c.Message, since[c.Reason].UTC()})
	}
	t.since = since
	e := entryChange{key: keyStorm}
	if len(r.Conditions) > 0 {
		e.value = r
	}
	t.change(e)
}

// followLedger hears who wants loop breakers cleared, until ctx ends.
func (t *term) followLedger(ctx context.Context) {
	if err := t.ledger.Follow(ctx, keyClear, t.clearLoops); err != nil && ctx.Err() == nil {
		t.cfg.Log.Error("the ledger cannot be followed; loop breakers cannot be cleared", "error", err)
	}
}
