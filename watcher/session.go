package watcher

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/watcher/requests"
	"github.com/rehome-dev/rehome/watcher/scope"
)

// batch is the number of scopes that are built and published together. It is large enough to share the cost of a disk
// write, and small enough that scopes of 110 pods each stay far below the memory limit.
const batch = 64

// session is the work of a leader under one policy.
type session struct {
	w        *Watcher
	began    time.Time
	policy   *scope.CompiledPolicy
	previous *scope.CompiledPolicy // the policy of the previous session in this process, or nil
	scopes   *scope.Builder
	queue    *queue
	blocked  *blockedPods
	capacity *fitDependents
	outbox   *outbox
	requests *requests.Controller
	moving   *sync.Map // the intent IDs of the moves that have more steps, by the UID of the pod
	retries  workqueue.TypedRateLimiter[string]
	resyncs  chan struct{} // capacity 1
	// answered are the keys whose last scope could have an answer. Their next scope is published even if it is empty,
	// to withdraw that answer. sweep runs when len(answered) reaches sweepAt. throttled has the earliest build time of
	// keys. Only run uses them.
	answered  map[scope.Key]bool
	sweepAt   int
	throttled map[scope.Key]time.Time
	// unsure means that the answered scopes of the previous leader are unknown, so every scope is published.
	unsure     bool
	thresholds thresholds
}

func newSession(ctx context.Context, w *Watcher, p *activePolicy, o *outbox) *session {
	s := &session{
		w: w, began: w.now(), policy: p.CompiledPolicy, scopes: scope.NewBuilder(w.cluster, p.CompiledPolicy),
		queue: newQueue(ctx, w.now), blocked: newBlockedPods(), capacity: newFitDependents(), outbox: o, moving: new(sync.Map),
		retries: newRetries(), resyncs: make(chan struct{}, 1),
		answered: map[scope.Key]bool{}, throttled: map[scope.Key]time.Time{},
		thresholds: thresholds{over: map[*scope.Strategy]overused{}, loads: map[policy.Load]map[string]percentages{}},
	}
	s.requests = s.newRequests()
	s.scopes.Requests, s.scopes.Loads, s.scopes.Moving = s.requests, p.sampler, s.isMoving
	return s
}

func newRetries() workqueue.TypedRateLimiter[string] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, 5*time.Second)
}

// newRequests returns the controller of manual requests.
func (s *session) newRequests() *requests.Controller {
	c := s.w.config
	return requests.New(requests.Config{
		Bus: c.Requests, Policy: s.policy.Policy, Cluster: s.w.cluster, Source: c.Source, Expires: c.Resync, Now: s.w.now, Log: s.w.log,
		Publish: s.publish,
		Protections: func(profile string, p *corev1.Pod, override []string) []schemas.Protection {
			return s.scopes.ProtectionsOfRequest(profile, p, override, s.w.now())
		},
		Enqueue: func(profile, name string, cause schemas.Cause, e schemas.Event) {
			key := scope.Key{Profile: profile, Strategy: schemas.RequestStrategy, Kind: schemas.RequestKind, Name: name}
			s.queue.add(key, trigger{cause: cause, event: e, at: s.w.now()})
		},
		Evaluate: func(profile, strategy string, cause schemas.Cause, e schemas.Event) (n int) {
			for _, st := range s.policy.Strategies {
				if (strategy == "" || strategy == st.Name) && (profile == "" || profile == st.Profile.Name) {
					n++
					s.enqueueAll([]*scope.Strategy{st}, trigger{cause: cause, event: e, at: s.w.now().Add(c.Debounce)}, s.policy.Nodes)
				}
			}
			return n
		},
		Count: func(sender string, state schemas.ReceiptState) {
			s.w.metrics.requests.WithLabelValues(sender, string(state)).Inc()
		},
	})
}

// run evaluates everything, and then each change, until ctx ends.
func (s *session) run(ctx context.Context) {
	s.scopes.Rebuild(s.w.now())
	follows := s.restoreAnswered(ctx)
	moved := s.readMoves(ctx, follows)
	if follows || moved || s.previous != nil {
		s.scopes.CoolDown(s.w.now()) // pods may have left just before
	}
	if s.previous == nil {
		s.w.log.Info("leading: evaluating everything")
		s.evaluateAll()
	} else {
		s.w.log.Info("policy changed; evaluating everything")
		s.evaluateAfterPolicyChange()
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { s.followVerdicts(ctx) })
	wg.Go(func() { s.followResync(ctx) })
	wg.Go(func() { s.followCapacity(ctx) })
	wg.Go(func() { s.requests.Run(ctx) })
	for due := s.queue.take(batch); due != nil && ctx.Err() == nil; due = s.queue.take(batch) {
		if events := s.Reconcile(due, s.w.now()); len(events) > 0 {
			s.requeueUnpublished(ctx, due, s.publish(ctx, events))
		}
	}
}

// restoreAnswered enqueues the keys whose answers wait at the actuator, from the previous leader or policy. An answer
// may be stale, and only a new scope withdraws it. If the bus cannot list them, the session uses the answers that the
// previous one in this process knew. follows reports that there was a previous leader or policy, or that it is unknown.
func (s *session) restoreAnswered(ctx context.Context) (follows bool) {
	short, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	heads, err := s.w.config.Bus.AnsweredScopes(short)
	t := s.newTrigger(schemas.Cause{Kind: schemas.CauseResync})
	if err != nil {
		s.unsure = true
		if ctx.Err() == nil {
			s.w.log.Warn("cannot list the pending answers; publishing every scope", "error", err)
		}
		for key := range s.answered {
			s.queue.add(key, t)
		}
		return true
	}
	for _, h := range heads {
		key := scope.KeyOf(h)
		if s.policy.Find(key) == nil || h.Kind == schemas.RequestKind || h.Strategy == schemas.MaintenanceStrategy {
			continue // the actuator rejects it, or the request or maintenance is published again
		}
		s.answered[key] = true
		s.queue.add(key, t)
	}
	return len(heads) > 0
}

// followResync rebuilds the indexes from the cache and evaluates everything at each resync, until ctx ends.
func (s *session) followResync(ctx context.Context) {
	ticker := time.NewTicker(s.w.config.Resync)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-s.resyncs:
		}
		s.scopes.Rebuild(s.w.now())
		s.evaluateAll()
	}
}
