package actuator

import (
	"context"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/actuator/workload"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// followEvery is how often every move in flight is looked at, whatever changes: it bounds how long one whose time is over
// goes unnoticed.
const followEvery = 5 * time.Second

// Changed tells the actuator what changed in its view. It may be called from any goroutine, and returns at once.
func (a *Actuator) Changed(c workload.Change) {
	t := a.term.Load()
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.Node != "" {
		t.stormy = true
		t.awaken()
		return
	}
	_, moves := t.moves.workloads[c.Workload]
	_, holds := t.table.held[holder{"workload", string(c.Workload)}]
	if moves || holds {
		t.dirty[c.Workload] = true
		t.awaken()
	}
}

// follow looks at the moves in flight whose workload changed, now and then at all of them, and returns what their methods
// have to do. The caller holds mu.
func (t *term) follow(now time.Time) (steps []task) {
	if len(t.dirty) == 0 && now.Before(t.followed.Add(followEvery)) {
		return nil
	}
	if !now.Before(t.followed.Add(followEvery)) {
		t.followed = now
		maps.DeleteFunc(t.pending, func(_ types.UID, x *moving) bool { return !t.isPending(x) })
		t.stormy = t.stormy || len(t.pending) > 0
		maps.DeleteFunc(t.replacements, func(_ types.UID, at time.Time) bool { return now.Sub(at) > 2*followFor })
		t.moves.forgetPauses(t.limits.Pause, now)
		for w := range t.moves.workloads {
			t.dirty[w] = true
		}
		for _, x := range t.moves.all {
			if x.at.workload == "" {
				steps = append(steps, t.followOne(x, nil, now)...)
			}
		}
	}
	for w := range t.dirty {
		delete(t.dirty, w)
		t.table.release(holder{"workload", string(w)})
		steps = append(steps, t.followWorkload(w, now)...)
	}
	return steps
}

func (t *term) followWorkload(w types.UID, now time.Time) (steps []task) {
	list := t.moves.of(w)
	if len(list) == 0 {
		return nil
	}
	pods := t.cfg.View.Pods(w)
	taken := map[types.UID]bool{}
	for _, p := range pods {
		if _, ended := t.replacements[p.Ref.UID]; ended {
			taken[p.Ref.UID] = true
		}
	}
	for _, x := range list {
		if x.replacement != "" {
			taken[x.replacement] = true
		}
	}
	for _, x := range list {
		steps = append(steps, t.followOne(x, func() workload.Pod {
			p, ok := replacementOf(x, pods, t.cfg.View.Seen, taken)
			if !ok {
				return workload.Pod{}
			}
			x.replacement, taken[p.Ref.UID] = p.Ref.UID, true
			return p
		}, now)...)
	}
	return steps
}

// followOne ends a move that is over, or takes its method on. replacement finds its replacement; nil: it has none.
func (t *term) followOne(x *moving, replacement func() workload.Pod, now time.Time) []task {
	if x.State != nil {
		return t.stepOf(x)
	}
	if x.over == nil && !x.Moved.IsZero() {
		x.over = t.overBy(x, replacement, now)
	}
	if x.over != nil && x.told {
		t.arrive(x, *x.over, now)
	}
	return nil
}

// overBy is how a move has ended. nil: it has not.
func (t *term) overBy(x *moving, replacement func() workload.Pod, now time.Time) *ended {
	var found workload.Pod
	if replacement != nil {
		found = replacement()
	}
	pod, _ := t.cfg.View.Pod(x.Open.Intent.Pod.UID)
	e, over := settled(x, t.traits(x), pod, found, t.cfg.View.Tally(x.at.workload), now)
	if !over {
		return nil
	}
	return &e
}

// arrive ends a move in flight: it makes room for others, and says how it ended.
func (t *term) arrive(x *moving, e ended, now time.Time) {
	t.moves.remove(x)
	t.stormy = true // a replacement less is pending, or the same one for longer than it is followed
	if x.replacement != "" {
		t.replacements[x.replacement], x.Replacement = now, x.replacement
	}
	t.metrics.moving.Set(float64(len(t.moves.all)))
	t.releaseFor(x.at)
	t.landed(x, e, now)
	x.Settled = true
	if x.Pending = e.pending(); x.Pending {
		t.pending[x.Open.Intent.Pod.UID] = x
	}
	t.remember(x, now)
	t.queue.settled = append(t.queue.settled, followed{x.record, x.verdict(e)})
	t.signalQueue()
}

// isPending says whether the replacement of a move that is not followed any more is still to become ready.
func (t *term) isPending(x *moving) bool {
	if uid := x.Replacement; uid != "" {
		p, known := t.cfg.View.Pod(uid)
		x.Pending = known && !p.Ready && !p.Ended && !p.Leaving
	} else {
		_, known := t.cfg.View.Pod(x.Open.Intent.Pod.UID)
		tally := t.cfg.View.Tally(x.at.workload)
		x.Pending = known || tally.Ready < tally.Wanted
	}
	t.stormy = t.stormy || !x.Pending
	return x.Pending
}

// followed is a move with the verdict that ends it.
type followed struct {
	record  record
	verdict schemas.Verdict
}

// releaseFor lets those try again that a move held which is over.
func (t *term) releaseFor(at mark) {
	t.table.release(everything())
	t.table.release(holder{"node", at.node})
	t.table.release(holder{"namespace", at.namespace})
	if at.workload != "" {
		t.table.release(holder{"workload", string(at.workload)})
	}
	t.awaken()
}

// stepOf is the next step of a method, unless it is at work.
func (t *term) stepOf(x *moving) []task {
	m := t.method(x.Method)
	if x.stepping || !x.told || m == nil {
		return nil
	}
	x.stepping = true
	state := x.State
	return []task{func(ctx context.Context) {
		p, err := m.Step(ctx, state, t.cfg.Now())
		t.stepped(ctx, x, p, err)
	}}
}

// stepped takes note of what a step came to.
func (t *term) stepped(ctx context.Context, x *moving, p move.Progress, err error) {
	now := t.cfg.Now()
	stays := t.staysInstead(x)
	released := err == nil && p.Stage == move.Released && !stays && t.evictInstead(ctx, x)
	t.mu.Lock()
	defer t.mu.Unlock()
	x.stepping = false
	if err != nil {
		t.cfg.Log.Warn("move cannot be followed, trying again", "pod", x.Open.Intent.Pod.String(), "method", x.Method, "error", err)
		return
	}
	if p.State != nil {
		x.State = p.State
	}
	switch {
	case p.Stage == move.Done, released:
		x.State = nil
		t.dirty[x.at.workload] = true
	case p.Stage == move.Undone:
		t.arrive(x, takenBack(x, p, now), now)
		return
	case p.Stage == move.Released && (stays || now.Sub(x.Moved) >= followFor):
		t.arrive(x, takenBack(x, p, now), now)
		return
	}
	t.remember(x, now)
	t.awaken()
}

func takenBack(x *moving, p move.Progress, now time.Time) ended {
	message := p.Message
	if p.Refusal != nil {
		message = p.Refusal.Message
	}
	return ended{schemas.ReasonTakenBack, message, schemas.Settlement{Seconds: now.Sub(x.Moved).Seconds()}}
}

// staysInstead says whether a pod that does not go by its method after all goes by no other, as the policy has it.
func (t *term) staysInstead(x *moving) bool {
	restarts := x.Method == schemas.MethodRestart || x.Method == schemas.MethodSurge
	return restarts && t.policy.Load().Restart.Otherwise == policy.OtherwiseSkip
}

// evictInstead evicts a pod that somebody else was asked to move and did not, and says whether it is going.
func (t *term) evictInstead(ctx context.Context, x *moving) bool {
	pod, err := t.look(ctx, x.Open.Intent.Pod, latest)
	if err != nil {
		return false
	}
	s := t.situation(x.Open, pod)
	s.Now = x.Open.Intent.Expires.Add(-1) // it was in time when somebody was asked
	if o, objects := ask(Gates(), s); objects {
		return o.Reason == schemas.ReasonPodGone || o.Reason == schemas.ReasonPodTerminating
	}
	p, err := t.evictions.Start(ctx, s.Pod, s.Now, func(context.Context, move.Record) error { return nil })
	return err == nil && p.Stage == move.Done
}
