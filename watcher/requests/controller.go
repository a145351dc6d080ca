// Package requests answers requests of users and programs to move pods, to evaluate strategies, and to cancel a request.
//
//	bus ──message──▶ Handle ──accept, reject──▶ receipt           (intake.go, authorize.go, target.go, limit.go)
//	                   │
//	                   └─key─▶ queue ──▶ Reconcile ──▶ receipt    (reconcile.go)
//	                             ▲
//	verdict, pod gone, deadline ─┘      Build: the scope with the remaining pods
//
// A key is SENDER/NAME. Reconcile looks at the pods of one request. When each of them is gone or final, or the deadline has
// passed, it withdraws the scope, publishes the finished receipt, and drops the request from the bus. The request and its
// accepted receipt are on the bus, so the next leader continues with them. The maintenance role answers requests for nodes.
package requests

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/request"
	"github.com/rehome-dev/rehome/schemas"
)

// Bus delivers requests.
type Bus interface {
	request.Bus
	// FollowRequests calls handle for every open request, oldest first, and then for each new one, one at a time, until ctx ends.
	// stored is when the bus stored the request. The event has only Channel and Sequence until read is called, which loads and
	// decodes it. Requests are delivered again after an error or a lost connection. A message that is not an event has no type.
	FollowRequests(
		ctx context.Context, handle func(ctx context.Context, e schemas.Event, stored time.Time, read func() schemas.Event) error,
	) error
	// HasRequest reports whether a request is still open. The event needs only Channel and Sequence.
	HasRequest(ctx context.Context, e schemas.Event) (bool, error)
}

// Config configures a [Controller]. session.newRequests of the watcher sets all functions. They use the queue and the scopes of
// the leader session.
type Config struct {
	Bus     Bus // nil disables requests
	Publish func(context.Context, []schemas.Event) error
	Policy  policy.Policy
	Cluster *cluster.Cache
	// Protections returns the rules of a profile that protect a pod, except the overridden ones.
	Protections func(profile string, p *corev1.Pod, override []string) []schemas.Protection
	// Enqueue adds the scope of a request to the queue of the session, whose Reconcile then calls [Controller.Build].
	Enqueue func(profile, key string, cause schemas.Cause, e schemas.Event)
	// Evaluate enqueues all scopes of the matching strategies and returns the number of these strategies. Empty names match all.
	Evaluate func(profile, strategy string, cause schemas.Cause, e schemas.Event) int
	// Count counts a receipt, or a request that was rejected without one.
	Count func(sender string, state schemas.ReceiptState)
	// Source is the CloudEvents source. Expires is how long a scope is valid.
	Source  string
	Expires time.Duration
	Now     func() time.Time
	Log     *slog.Logger
}

// Controller answers requests during one leader session. Use [New] to make one.
type Controller struct {
	cfg     Config
	answers request.Answers
	began   time.Time
	queue   workqueue.TypedRateLimitingInterface[string]
	drops   workqueue.TypedRateLimitingInterface[message]
	// senders and maintained belong to Handle. maintained has the sequences of the latest requests for nodes, by key.
	senders    map[string]*limits
	maintained *cache.LRUExpireCache

	mu       sync.Mutex
	requests map[string]*entry
	pods     map[types.UID][]string // keys of the requests of each pod
	dropping map[uint64]bool        // sequences in drops
}

// message identifies a request on the bus.
type message struct {
	channel  string
	sequence uint64
}

// entry is one accepted request.
type entry struct {
	event    schemas.Event // without data
	request  schemas.Request
	accepted schemas.Receipt
	pods     []*pod
	end      schemas.ReceiptReason // empty while the request is open
	message  string                // details of the end
	// published: the last scope had pods. finished: the finished receipt is published, and the empty scope is not built yet.
	published, finished bool
}

// pod is one pod of a request.
type pod struct {
	schemas.RemainingPod
	gone  bool
	final bool // protected or failed: no further attempts
	moves bool // a move is in flight
	// steps: that move has more steps. The scope keeps listing the pod, because the actuator cancels a multi-step move of a pod
	// that is no longer listed.
	steps bool
}

// workers is the number of rejected requests that are dropped in parallel.
const workers = 8

// New returns a controller. Call [Controller.Run] to start it.
func New(cfg Config) *Controller {
	c := &Controller{
		cfg: cfg, began: cfg.Now(),
		senders: map[string]*limits{}, maintained: cache.NewLRUExpireCache(mostMaintained),
		requests: map[string]*entry{}, pods: map[types.UID][]string{}, dropping: map[uint64]bool{},
	}
	c.answers = request.Answers{
		Bus: cfg.Bus, Source: cfg.Source, Now: cfg.Now, Log: cfg.Log, Count: c.count,
		Publish: func(ctx context.Context, receipt schemas.Event) error {
			return cfg.Publish(ctx, []schemas.Event{receipt})
		},
	}
	return c
}

func newQueue[K comparable]() workqueue.TypedRateLimitingInterface[K] {
	return workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[K](100*time.Millisecond, 5*time.Second))
}

// Run answers requests until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	c.queue, c.drops = newQueue[string](), newQueue[message]()
	context.AfterFunc(ctx, c.queue.ShutDown)
	context.AfterFunc(ctx, c.drops.ShutDown)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { process(ctx, c.queue, c.Reconcile, c.cfg.Log) })
	if c.cfg.Bus == nil {
		return
	}
	for range workers {
		wg.Go(func() { process(ctx, c.drops, c.drop, c.cfg.Log) })
	}
	if err := c.cfg.Bus.FollowRequests(ctx, c.Handle); err != nil && ctx.Err() == nil {
		c.cfg.Log.Error("cannot follow requests", "error", err)
	}
}

func process[K comparable](
	ctx context.Context, q workqueue.TypedRateLimitingInterface[K], reconcile func(context.Context, K) error, log *slog.Logger,
) {
	for {
		key, shutdown := q.Get()
		if shutdown {
			return
		}
		if err := reconcile(ctx, key); err == nil {
			q.Forget(key)
		} else if ctx.Err() == nil {
			if q.NumRequeues(key) == 0 {
				log.Warn("cannot answer a request, retrying", "request", key, "error", err)
			}
			q.AddRateLimited(key)
		}
		q.Done(key)
	}
}

// EnqueueAll enqueues the scopes of all open requests.
func (c *Controller) EnqueueAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, r := range c.requests {
		c.enqueue(key, r, schemas.Cause{Kind: schemas.CauseResync})
	}
}

func (c *Controller) enqueue(key string, r *entry, cause schemas.Cause) {
	cause.Time = c.cfg.Now().UTC()
	c.cfg.Enqueue(r.accepted.Profile, key, cause, r.event)
}

// start begins to move the pods of an accepted request.
func (c *Controller) start(key string, e schemas.Event, request schemas.Request, accepted schemas.Receipt) {
	e.Data = nil
	r := &entry{event: e, request: request, accepted: accepted}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range accepted.Pods {
		x := &pod{RemainingPod: schemas.RemainingPod{Pod: p.Pod, Node: p.Node}}
		if len(p.Protected) > 0 && !terminating(p.Protected) {
			x.refuse(p.Protected)
		}
		r.pods = append(r.pods, x)
		c.pods[p.Pod.UID] = append(c.pods[p.Pod.UID], key)
	}
	c.requests[key] = r
	now := c.cfg.Now()
	switch {
	case !slices.ContainsFunc(r.pods, func(p *pod) bool { return !p.final }):
		r.end = schemas.ReceiptNothingToDo
	case now.Before(accepted.Deadline):
		c.enqueue(key, r, schemas.Cause{Kind: schemas.CauseRequest, Event: e.ID})
	}
	c.queue.Add(key)
}

// PodGone records that a pod was deleted.
func (c *Controller) PodGone(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range c.pods[uid] {
		c.queue.Add(key)
	}
}

// boundPod returns the pod if it exists and has a node, else nil.
func (c *Controller) boundPod(ref schemas.PodRef) *corev1.Pod {
	p := c.cfg.Cluster.Pod(ref.Namespace, ref.Name)
	if p == nil || p.Spec.NodeName == "" || ref.UID != "" && p.UID != ref.UID {
		return nil
	}
	return p
}

// plural formats a number of things.
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
