package watcher

import (
	"maps"
	"time"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/watcher/scope"
)

// Groups differ in size by orders of magnitude, and a large group can change many times a second. After a slow build, a
// group is throttled so that its builds use at most 1/buildShare of the time, but no longer than longestThrottle: a build
// can also be slow because the whole machine stalled.
const (
	noticeable      = time.Millisecond
	buildShare      = 20
	longestThrottle = 10 * time.Second
)

// longestBatch is how long [session.Reconcile] starts new builds. Keys that become due meanwhile wait for its end.
const longestBatch = 50 * time.Millisecond

// minSweep is the smallest number of answers that [session.sweep] checks.
const minSweep = 1024

// throttle returns how long a group waits after a build.
func throttle(took time.Duration) time.Duration {
	if took < noticeable {
		return 0
	}
	return min(buildShare*took, longestThrottle)
}

// Reconcile builds the scopes of due keys from the caches, and returns the events to publish. It requeues groups that
// cool down and, after longestBatch, the rest of the keys. It includes scopes that cannot have an answer only if
// they withdraw an earlier one.
func (s *session) Reconcile(due []*workItem, now time.Time) (events []schemas.Event) {
	s.sweep()
	start := time.Now()
	for i, item := range due {
		if time.Since(start) > longestBatch {
			s.queue.requeue(due[i:], now)
			break
		}
		key := item.key
		if earliest := s.earliestBuild(key); earliest.After(now) {
			s.queue.requeue([]*workItem{item}, earliest)
			continue
		}
		began, version := time.Now(), s.capacity.current()
		r, err := s.scopes.Build(key, item.causes, now)
		s.capacity.depend(key, r, version)
		delete(s.throttled, key)
		if wait := throttle(time.Since(began)); wait > 0 {
			s.throttled[key] = s.w.now().Add(wait)
		}
		if r.Scope != nil || err != nil {
			s.w.metrics.scopes.WithLabelValues(key.Strategy, key.Profile).Inc()
		}
		if !r.Again.IsZero() {
			s.queue.add(key, trigger{at: r.Again, cause: schemas.Cause{Kind: schemas.CauseDue, Time: r.Again.UTC()}})
		}
		var e schemas.Event
		if err == nil && s.publishes(key, r) {
			e, err = schemas.NewEvent(s.w.config.Source, r.Scope, now, item.first)
		}
		switch {
		case err != nil:
			s.w.log.Error("cannot build a scope", "strategy", key.Strategy, "scope", key.Name, "error", err)
		case e.ID != "":
			e.Expires = now.Add(s.w.config.Resync).UTC()
			item.built = e
			events = append(events, e)
		}
	}
	return events
}

// publishes reports whether to publish a scope: it can have an answer, or it withdraws one.
func (s *session) publishes(key scope.Key, r scope.Result) bool {
	if r.Scope == nil { // if the object returns, its answer must be withdrawn
		return false
	}
	withdraws := s.answered[key] || s.unsure
	delete(s.answered, key)
	if !r.Empty {
		s.answered[key] = true
	}
	return !r.Empty || withdraws
}

// sweep forgets the answers about pods and nodes that are gone, whenever the number of answers has doubled. The actuator
// moves a pod only by its UID, so they are void. Scopes of requests are always published.
func (s *session) sweep() {
	if len(s.answered) < s.sweepAt {
		return
	}
	maps.DeleteFunc(s.answered, func(key scope.Key, _ bool) bool {
		switch key.Kind {
		case schemas.PodKind:
			return scope.BoundPod(s.w.cluster, key.Name) == nil
		case schemas.NodeKind:
			return s.w.cluster.Node(key.Name) == nil && len(s.w.cluster.PodsOnNode(key.Name)) == 0
		}
		return key.Kind == schemas.RequestKind
	})
	s.sweepAt = max(minSweep, 2*len(s.answered))
}

// earliestBuild returns the time at which the cooldown and the throttle of a group allow the next build.
func (s *session) earliestBuild(key scope.Key) time.Time {
	st := s.policy.Find(key)
	if st == nil || !st.Grouped() {
		return time.Time{}
	}
	if st.Measured() && !s.scopes.Loads.FirstRoundDone(st.Gauged.Load()) {
		return s.w.now().Add(usageDebounce)
	}
	earliest := s.scopes.EarliestBuild(st, key.Name)
	if s.throttled[key].After(earliest) {
		return s.throttled[key]
	}
	return earliest
}
