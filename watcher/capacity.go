package watcher

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/watcher/scope"
)

// Capacity changes all the time in a busy cluster, and each check builds scopes. Checks are therefore at least
// checkPause apart and use at most 1/checkShare of one core.
const (
	checkPause = time.Second
	checkShare = 20
)

// fitDependents tracks the keys whose scopes depend on free capacity: some of their pods are protected only because no
// other node has room, or the scope names the nodes that have room. It is safe for concurrent use.
type fitDependents struct {
	mu      sync.Mutex
	keys    map[scope.Key]fitAnswer
	version int           // how often capacity changed
	why     trigger       // the first change since the last check, or the last change if no key depended on it
	unread  bool          // whether why is set
	check   chan struct{} // capacity 1; holds an element if a check is worthwhile
}

// fitAnswer is the part of a scope that depends on free capacity.
type fitAnswer struct {
	lackCapacity []string
	hash         uint64
	fits         []scope.Fit
}

func newFitDependents() *fitDependents {
	return &fitDependents{keys: map[scope.Key]fitAnswer{}, check: make(chan struct{}, 1)}
}

// current returns the version of the capacity to build a scope with.
func (f *fitDependents) current() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.version
}

// depend records the fit answer of a scope that was built with a version of the capacity. If the version is outdated, a
// check follows.
func (f *fitDependents) depend(key scope.Key, r scope.Result, version int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(r.LackCapacity) == 0 && r.FitHash == 0 && len(r.Fits) == 0 {
		delete(f.keys, key)
		return
	}
	f.keys[key] = fitAnswer{r.LackCapacity, r.FitHash, r.Fits}
	if f.version != version {
		signal(f.check)
	}
}

// lacks records that the actuator deferred a pod of a scope because its replacement fits nowhere.
func (f *fitDependents) lacks(key scope.Key, pod string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	answer := f.keys[key]
	if !slices.Contains(answer.lackCapacity, pod) {
		answer.lackCapacity = append(slices.Clip(answer.lackCapacity), pod)
		f.keys[key] = answer
	}
}

// changed records a change of capacity.
func (f *fitDependents) changed(why trigger) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version++
	if !f.unread {
		f.why = why
	}
	if len(f.keys) > 0 {
		f.unread = true
		signal(f.check)
	}
}

// take returns all dependent keys and the trigger of their check.
func (f *fitDependents) take() (map[scope.Key]fitAnswer, trigger) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unread = false
	return maps.Clone(f.keys), f.why
}

// capacityChanged handles a change of an object that affects where pods fit.
func (s *session) capacityChanged(kind string, o metav1.Object) {
	s.capacity.changed(s.newTrigger(schemas.Cause{Kind: schemas.CauseRoom, Object: refTo(kind, o)}))
}

// followCapacity checks the dependent keys after each change of capacity, until ctx ends.
func (s *session) followCapacity(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.capacity.check:
		}
		began := time.Now()
		s.checkFit()
		if !sleep(ctx, checkDelay(time.Since(began))) {
			return
		}
	}
}

// checkDelay returns the pause after a check of the given duration.
func checkDelay(took time.Duration) time.Duration { return max(checkPause, checkShare*took) }

// checkFit builds the dependent scopes and enqueues the keys whose fit answer has changed, because a node gained or
// lost room for a pod.
func (s *session) checkFit() {
	keys, why := s.capacity.take()
	now := s.w.now()
	why.at = now.Add(s.w.config.Debounce)
	for key, before := range keys {
		if len(before.lackCapacity) == 0 && before.hash == 0 && s.scopes.StillFit(key, before.fits) {
			continue // much cheaper than a build
		}
		version := s.capacity.current()
		r, err := s.scopes.Build(key, nil, now)
		if err != nil || r.Scope == nil {
			r = scope.Result{}
		}
		fits, lost := false, len(before.fits) > 0 && slices.ContainsFunc(r.LackCapacity, func(pod string) bool {
			return !slices.Contains(before.lackCapacity, pod)
		})
		for _, pod := range before.lackCapacity {
			p := scope.BoundPod(s.w.cluster, pod)
			if p == nil || slices.Contains(r.LackCapacity, pod) {
				continue
			}
			if elsewhere, _, _ := s.w.cluster.Elsewhere(p, policy.Targets{Signals: s.policy.Signals}); elsewhere {
				fits = true
			} else {
				r.LackCapacity = append(r.LackCapacity, pod) // the actuator knows more moves than the scope
			}
		}
		s.capacity.depend(key, r, version)
		if fits || lost || r.FitHash != before.hash {
			s.queue.add(key, why)
		}
	}
}

// usesCapacity reports whether a pod uses the capacity of a node.
func usesCapacity(p *corev1.Pod) bool { return p != nil && p.Spec.NodeName != "" && !schemas.Ended(p) }

// reservationTimeout limits a reservation in a process that does not follow the move. A replacement that has found no
// node by then is waiting for something else.
const reservationTimeout = 30 * time.Second

// reserve reserves capacity for the replacement of a moved pod, including in a dry run. It does nothing if no strategy
// depends on capacity, or if the actuator in this process has reserved it.
func (s *session) reserve(v schemas.Verdict) {
	pod := v.Intent.Pod
	if s.policy.NeedsCapacity() && s.w.cluster.ReserveMoved(pod.UID, s.policy.Scheduler) {
		time.AfterFunc(reservationTimeout, func() { s.release(pod) })
	}
}

// release ends the reservation for the replacement of a pod when its move is over.
func (s *session) release(pod schemas.PodRef) {
	if s.policy.NeedsCapacity() {
		s.w.cluster.Release(pod.UID)
		s.capacity.changed(s.newTrigger(schemas.Cause{Kind: schemas.CauseRoom, Object: new(pod.Object())}))
	}
}
