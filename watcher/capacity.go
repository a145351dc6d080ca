package watcher

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/watcher/scope"
)

// In a busy cluster capacity changes all the time, and each check builds scopes: checks are checkPause apart, and take at most one part
// in checkShare of the time of one core.
const (
	checkPause = time.Second
	checkShare = 20
)

// fitDependents are the keys whose scopes depend on where pods fit: they have pods that only the lack of capacity
// protects, or say where else pods fit. Its methods may be called from many goroutines.
type fitDependents struct {
	mu      sync.Mutex
	keys    map[scope.Key]fitAnswer
	version int           // how often capacity changed
	why     trigger       // the first change since the last check, or the last change if no key depended on it
	unread  bool          // why is set
	check   chan struct{} // capacity 1: a check is worth it
}

// fitAnswer is what a scope said about where pods fit.
type fitAnswer struct {
	lackCapacity []string
	hash         uint64
}

func newFitDependents() *fitDependents {
	return &fitDependents{keys: map[scope.Key]fitAnswer{}, check: make(chan struct{}, 1)}
}

// current is the version of the capacity that a scope is built with.
func (f *fitDependents) current() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.version
}

// depend notes what a scope said with a version of the capacity. If that is not current any more, a check follows.
func (f *fitDependents) depend(key scope.Key, r scope.Result, version int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(r.LackCapacity) == 0 && r.FitHash == 0 {
		delete(f.keys, key)
		return
	}
	f.keys[key] = fitAnswer{r.LackCapacity, r.FitHash}
	if f.version != version {
		signal(f.check)
	}
}

// changed notes that capacity changed.
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

// take returns all keys and why they are checked.
func (f *fitDependents) take() (map[scope.Key]fitAnswer, trigger) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unread = false
	return maps.Clone(f.keys), f.why
}

// capacityChanged notes a change of an object that decides where pods fit.
func (s *session) capacityChanged(kind string, o metav1.Object) {
	s.capacity.changed(s.newTrigger(schemas.Cause{Kind: schemas.CauseRoom, Object: refTo(kind, o)}))
}

// followCapacity checks the dependents when capacity changed, until ctx ends.
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

// checkDelay is the pause after a check that took so long.
func checkDelay(took time.Duration) time.Duration { return max(checkPause, checkShare*took) }

// checkFit builds the dependent scopes, and enqueues the keys whose scopes say something else now: a pod that lacked
// capacity fits, or another place does.
func (s *session) checkFit() {
	keys, why := s.capacity.take()
	now := s.w.now()
	why.at = now.Add(s.w.config.Settle)
	for key, before := range keys {
		version := s.capacity.current()
		r, err := s.scopes.Build(key, nil, now)
		if err != nil || r.Scope == nil {
			r = scope.Result{}
		}
		s.capacity.depend(key, r, version)
		fits := slices.ContainsFunc(before.lackCapacity, func(pod string) bool {
			return !slices.Contains(r.LackCapacity, pod) && scope.BoundPod(s.w.cluster, pod) != nil
		})
		if fits || r.FitHash != 0 && r.FitHash != before.hash {
			s.queue.add(key, why)
		}
	}
}

// usesCapacity says whether a pod uses the capacity of a node.
func usesCapacity(p *corev1.Pod) bool { return p != nil && p.Spec.NodeName != "" && !schemas.Ended(p) }

// placementDiffers says whether a change of a pod can change where other pods fit.
func placementDiffers(old, new *corev1.Pod) bool {
	return old.UID != new.UID || !maps.Equal(old.Labels, new.Labels) ||
		(old.DeletionTimestamp == nil) != (new.DeletionTimestamp == nil) || !reflect.DeepEqual(old.Spec, new.Spec)
}

// reservationTimeout is how long capacity is reserved for a replacement: one that found no node in this time waits for something else.
const reservationTimeout = 30 * time.Second

// reservations are the moved pods for whose replacements capacity is reserved, by controller, oldest move first. So of several pods that
// fit into one gap, one at a time counts on it. The zero value is empty.
type reservations struct {
	mu    sync.Mutex
	moved map[types.UID][]types.UID
}

func (r *reservations) add(controller, pod types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.moved == nil {
		r.moved = map[types.UID][]types.UID{}
	}
	r.moved[controller] = append(r.moved[controller], pod)
}

// remove removes a pod, or for an empty UID the oldest one, and returns it; empty: there is none.
func (r *reservations) remove(controller, pod types.UID) types.UID {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.moved[controller]
	i := slices.IndexFunc(list, func(uid types.UID) bool { return pod == "" || uid == pod })
	if i < 0 {
		return ""
	}
	pod = list[i]
	if r.moved[controller] = slices.Delete(list, i, i+1); len(list) == 1 {
		delete(r.moved, controller)
	}
	return pod
}

// reserve reserves capacity for the replacement of a moved pod, on the node that it prefers, also for a dry run. It does nothing if no
// strategy needs to know where pods fit, or if the pod is already gone: its replacement may have a node.
func (s *session) reserve(v schemas.Verdict) {
	p := s.w.cluster.PodByUID(v.Intent.Pod.UID)
	if p == nil || p.Spec.NodeName == "" || !s.policy.NeedsCapacity() {
		return
	}
	controller := metav1.GetControllerOfNoCopy(p)
	if controller == nil || !s.w.cluster.Promise(p) {
		return
	}
	s.reserved.add(controller.UID, p.UID)
	time.AfterFunc(reservationTimeout, func() { s.release(controller.UID, p.UID, p) })
}

// releaseFor releases what was reserved for a pod that got a node.
func (s *session) releaseFor(p *corev1.Pod) {
	if controller := metav1.GetControllerOfNoCopy(p); controller != nil {
		s.release(controller.UID, "", p)
	}
}

// release releases a reservation, if it is still there. cause is the pod that changed.
func (s *session) release(controller, moved types.UID, cause *corev1.Pod) {
	if moved = s.reserved.remove(controller, moved); moved != "" {
		s.w.cluster.Release(moved)
		s.capacityChanged("Pod", cause)
	}
}
