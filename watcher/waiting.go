package watcher

import (
	"context"
	"maps"
	"reflect"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// How often it is asked whether what waits for room has got some. A round costs a question for each pod that waits, and
// in a busy cluster room appears all the time: rounds are roundPause apart, and take at most one part in roundShare of
// the time of one core.
const (
	roundPause = time.Second
	roundShare = 20
)

// waiting remembers the evaluations in which a pod is protected only because it fits nowhere else, with those pods, and
// those whose scopes say where else pods fit. Its methods may be called from many goroutines. Make one with [newWaiting].
type waiting struct {
	mu   sync.Mutex
	pods map[evaluation]map[string]bool // by NAMESPACE/NAME
	// seeking are the evaluations whose scopes say where else pods fit, with a hash of what they said.
	seeking map[evaluation]uint64
	// seen counts how often room may have appeared.
	seen int
	// why is what made room first since the last round, or last when nothing waited.
	why     wake
	has     bool          // why is set
	changed chan struct{} // capacity 1: a round is worth it
}

func newWaiting() waiting {
	return waiting{
		pods: map[evaluation]map[string]bool{}, seeking: map[evaluation]uint64{}, changed: make(chan struct{}, 1),
	}
}

// now is a moment to give to add.
func (w *waiting) now() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen
}

// add remembers that the pod waits for room, as it was seen at that moment. If room may have appeared since, a round
// follows.
func (w *waiting) add(ev evaluation, pod string, moment int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pods[ev] == nil {
		w.pods[ev] = map[string]bool{}
	}
	w.pods[ev][pod] = true
	if w.seen != moment {
		w.signal()
	}
}

// seek remembers what a scope said about where else its pods fit, as it was seen at that moment; nothing forgets it. If
// that may have changed since, a round follows.
func (w *waiting) seek(ev evaluation, said uint64, moment int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if said == 0 {
		delete(w.seeking, ev)
		return
	}
	w.seeking[ev] = said
	if w.seen != moment {
		w.signal()
	}
}

// room notes that room may have appeared, or gone.
func (w *waiting) room(why wake) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen++
	if len(w.pods)+len(w.seeking) == 0 || !w.has {
		w.why, w.has = why, true
	}
	if len(w.pods)+len(w.seeking) > 0 {
		w.signal()
	}
}

// signal asks for a round. The caller holds mu.
func (w *waiting) signal() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// takeAll returns all that waits and all that seeks, which then is forgotten, and what made room.
func (w *waiting) takeAll() (pods map[evaluation]map[string]bool, seeking map[evaluation]uint64, why wake) {
	w.mu.Lock()
	defer w.mu.Unlock()
	pods, seeking = w.pods, w.seeking
	w.pods, w.seeking, w.has = map[evaluation]map[string]bool{}, map[evaluation]uint64{}, false
	return pods, seeking, w.why
}

// protects is what forbids to move a pod of a scope. A pod that only waits for room is remembered.
func (s scopes) protects(e enabled, p *corev1.Pod, head schemas.ScopeHead) []schemas.Protection {
	if s.waiting == nil || !e.profile.Evictor.Needs().Room {
		return e.profile.Evictor.Protects(p, head.Now, s.cluster)
	}
	moment := s.waiting.now()
	found := e.profile.Evictor.Protects(p, head.Now, s.cluster)
	if waitsForRoom(found) {
		s.waiting.add(evaluationOf(head), p.Namespace+"/"+p.Name, moment)
	}
	return found
}

func evaluationOf(h schemas.ScopeHead) evaluation {
	return evaluation{profile: h.Profile, strategy: h.Strategy, kind: h.Kind, key: h.Key}
}

// waitsForRoom says whether only the lack of room protects a pod. That rule is asked last, and alone.
func waitsForRoom(found []schemas.Protection) bool {
	return len(found) == 1 && found[0].Rule == policy.NodeFitRule
}

// holds says whether a pod holds room on a node.
func holds(p *corev1.Pod) bool { return p != nil && p.Spec.NodeName != "" && !schemas.Ended(p) }

// roomDiffers says whether other pods can come to fit somewhere by a change of a pod, or fit no longer: it came or went, or
// counts differently where pods keep each other away or spread.
func roomDiffers(old, new *corev1.Pod) bool {
	if !holds(old) || !holds(new) {
		return holds(old) != holds(new)
	}
	return old.UID != new.UID || !maps.Equal(old.Labels, new.Labels) ||
		(old.DeletionTimestamp == nil) != (new.DeletionTimestamp == nil) || !reflect.DeepEqual(old.Spec, new.Spec)
}

// storageRoom notes that a pod may fit because storage changed.
func (l *lead) storageRoom(kind string, o metav1.Object) {
	w := l.fact(kind, o)
	w.cause.Kind = schemas.CauseRoom
	l.waiting.room(w)
}

// followRoom wakes what waits for room when there is some, until ctx ends.
func (l *lead) followRoom(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.waiting.changed:
		}
		began := time.Now()
		l.round()
		if !sleep(ctx, pauseAfter(time.Since(began))) {
			return
		}
	}
}

// pauseAfter is how long to wait after a round that took so long.
func pauseAfter(took time.Duration) time.Duration { return max(roundPause, roundShare*took) }

// round asks once more about every pod that waits for room, and wakes the evaluations of those that need not wait any
// longer. To wake the others would send the same scopes again. So it does for the evaluations whose scopes say where else
// pods fit: those are woken for which that has changed.
func (l *lead) round() {
	all, seeking, why := l.waiting.takeAll()
	now := l.w.now()
	why.at = now.Add(l.w.config.Settle)
	for ev, pods := range all {
		if l.stillWaits(ev, pods, now) {
			continue
		}
		l.queue.add(ev, why.at, why.cause, why.event)
	}
	for ev, said := range seeking {
		moment := l.waiting.now()
		b, err := l.scopes.Build(&pending{evaluation: ev}, now)
		if err != nil || b.seeks == 0 {
			continue // gone; or it is woken by what made it so
		}
		if b.seeks != said {
			l.queue.add(ev, why.at, why.cause, why.event)
		}
		l.waiting.seek(ev, b.seeks, moment)
	}
}

// stillWaits says whether all pods of an evaluation still wait for room, and remembers those it has asked about that do.
func (l *lead) stillWaits(ev evaluation, pods map[string]bool, now time.Time) bool {
	s, found := l.scopes.plan.find(ev)
	if !found {
		return true
	}
	for key := range pods {
		p := boundPod(l.w.cluster, key)
		if p == nil {
			continue // gone, and its evaluations with it
		}
		moment := l.waiting.now()
		if !waitsForRoom(s.profile.Evictor.Protects(p, now, l.w.cluster)) {
			return false // what else waits in it is found when it is evaluated
		}
		l.waiting.add(ev, key, moment)
	}
	return true
}
