// Package maintenance is the role that maintains nodes: it cordons them, has their pods moved, and gives them back, as
// NodeMaintenances, requests, and drain triggers request.
//
//	informers, kinds (objects.go), table ──▶ nodeChanged, podChanged, maintenanceChanged … (watch.go)
//	verdicts ──▶ session.verdict (verdicts.go)                     │
//	                                                               ▼ name
//	                                                           workqueue (controller.go)
//	                                                               │
//	requests ──▶ requests.reconcile (requests.go) ──────▶ table    ▼
//	drain triggers ──▶ triggers.reconcile (triggers.go) ▶ table   session.Reconcile (reconcile.go)
//	                                                               ├─ facts       reads everything a decision depends on
//	                                                               ├─ refresh     gates.go: queries of gates that are due
//	                                                               ├─ plan.Decide package plan, pure
//	                                                               ├─ withdraw    drains.go: pods that stay
//	                                                               ├─ apply.Do    package apply: status, finalizer, nodes
//	                                                               ├─ report      report.go: log, metrics, Kubernetes Events
//	                                                               ├─ announce    event.go: the event about the status
//	                                                               └─ publish     drains.go: pods to move
//
// Reconcile reads the current state and takes one step; calling it twice is harmless. It writes the status first, then
// the finalizer, then the nodes, and then publishes the pods for the actuator. A process without a valid lease writes
// nothing to the API server and publishes no intents.
//
// The role publishes one intents message for each maintenance, with the strategy Maintenance, and replaces it when the
// pods to move change. The actuator cancels the intents and the moves in flight that a newer message does not list. Before
// the role gives a node back, it waits for the verdict or the expiry of each intent for a pod on it, and until the actuator
// has read that the moves off it must end, at most ten minutes. It renews intents without a verdict every five minutes. After
// a verdict that began no move, it lists the pod again when the object that blocked it changes, or after a growing delay.
//
// The object contains the status, the node the mark, and the message the pods to move. A new leader reads all three.
// Memory contains only the last verdicts on pods, the last events, and the attempts of each intent; losing it costs one
// retry.
//
// The watcher and this role both follow the requests, and each answers its own actions. This role answers requests with
// the action maintain and their cancellation; receipt.go decides when one is complete.
package maintenance

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/kubeevents"
	"github.com/rehome-dev/rehome/maintenance/apply"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/request"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// Bus is the part of the bus that the role uses.
type Bus interface {
	request.Bus
	// Publish stores an event. An error that wraps [schemas.ErrInvalid] is permanent.
	Publish(ctx context.Context, e schemas.Event) (sequence uint64, err error)
	// Answer replaces the intents message of its key, unless the stored one is newer.
	Answer(ctx context.Context, e schemas.Event, a schemas.Intents) error
	// Intents reads the stored intents message of a channel. It returns the zero Event if there is none.
	Intents(ctx context.Context, channel string) (schemas.Event, error)
	// IntentsSequence returns the sequence number of the last stored intents message. A later message has a higher one.
	IntentsSequence(ctx context.Context) (uint64, error)
	// FollowVerdicts calls handle for every verdict since a time, and each new one, in order, until ctx ends.
	FollowVerdicts(ctx context.Context, since time.Time, handle func(schemas.Event)) error
	// FollowRequests calls handle for every open request, and each new one, until ctx ends.
	FollowRequests(
		ctx context.Context, handle func(ctx context.Context, e schemas.Event, stored time.Time, read func() schemas.Event) error,
	) error
	// HasRequest reports whether a request is still open.
	HasRequest(ctx context.Context, e schemas.Event) (bool, error)
}

// Table stores the maintenances for requests and drain triggers. Its errors are API server errors.
type Table interface {
	apply.Table
	// Follow calls changed for every maintenance, then synced, and then changed for each change, one at a time, until
	// ctx ends. is is nil for a removed maintenance.
	Follow(ctx context.Context, changed func(name string, is *v1alpha1.NodeMaintenance), synced func()) error
}

// Prometheus answers the queries of gates.
type Prometheus interface {
	// Values returns the values of all samples of the answer. It is called concurrently.
	Values(ctx context.Context, query string) ([]float64, error)
	Close()
}

// Config configures a [Controller].
type Config struct {
	// Client needs the rights to get and patch nodes. If permitted, it also patches nodes/status and creates events.
	Client kubernetes.Interface
	// Dynamic watches NodeMaintenances, DrainRules, and ClusterDrainRules, and Kinds patches NodeMaintenances and their status.
	Dynamic dynamic.Interface
	Kinds   rest.Interface
	View    *cluster.Cache // with [Kinds]
	Bus     Bus
	Table   Table
	Policy  policy.Policy
	// Prometheus returns a client for the server of a policy, or nil if the policy names none.
	Prometheus func(policy.Metrics) (Prometheus, error)
	// LeaseValid reports whether this process still holds its lease, by its own clock. It is called right before each
	// write to the API server and each publication of intents. nil means always.
	LeaseValid func() bool
	// Source is the CloudEvents source of the role's events.
	Source string
	// DryRun changes nothing in the cluster or in the table.
	DryRun  bool
	Now     func() time.Time      // nil means [time.Now]
	Log     *slog.Logger          // nil disables the log
	Metrics prometheus.Registerer // nil disables metrics
}

const (
	// workers is the number of keys reconciled in parallel.
	workers = 4
	// resync is the interval of full reconciles.
	resync = time.Minute
	// pollInterval is how often an active maintenance is reconciled without a change.
	pollInterval = 10 * time.Second
	// overlap is how far before its start a session reads verdicts, and how long after it a session looks for receipts of
	// earlier ones, because clocks differ.
	overlap = 5 * time.Second
	// firstBackoff and maxBackoff are the delays between failed attempts of one key.
	firstBackoff, maxBackoff = 100 * time.Millisecond, 10 * time.Second
)

// Controller is the maintenance role. Use [New] to make one.
type Controller struct {
	cfg     Config
	log     *slog.Logger
	now     func() time.Time
	policy  atomic.Pointer[policy.Policy]
	objects objects
	kinds   *kinds
	apply   *apply.Steps
	metrics metrics
	events  *kubeevents.Recorder // of the last Lead; nil before it and in a dry run: then no Events are written
	// tableSynced reports that objects contains every maintenance of the table.
	tableSynced atomic.Bool
	session     atomic.Pointer[session] // nil if this process does not lead
	replaced    chan struct{}           // capacity 1; signals a new policy
}

// session is the state of one leader session with one policy. The workqueue never reconciles a key twice at the same time.
type session struct {
	*Controller
	queue    workqueue.TypedRateLimitingInterface[key]
	drains   *drains
	gates    *gates
	requests *requests
	triggers *triggers
}

// key is the key of one reconcile.
type key struct {
	kind keyKind
	name string
}

type keyKind string

const (
	maintenanceKey keyKind = "maintenance" // the name of a maintenance
	triggerKey     keyKind = "trigger"     // the name of a node that may have a drain trigger
	requestKey     keyKind = "request"     // SENDER/NAME of a request
)

// New returns a controller, with handlers in the view. It reads nothing before [Controller.Run].
func New(cfg Config) *Controller {
	if cfg.Now == nil {
		cfg.Now = time.Now //nolint:forbidigo // the default of the clock that the caller can replace
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	c := &Controller{cfg: cfg, log: cfg.Log, now: cfg.Now, objects: newObjects(), replaced: make(chan struct{}, 1)}
	c.policy.Store(&cfg.Policy)
	c.metrics = newMetrics(cfg.Metrics, nodeCollector{func() []*v1alpha1.NodeMaintenance {
		if c.session.Load() == nil {
			return nil
		}
		return c.objects.list()
	}})
	c.kinds = newKinds(c)
	if cfg.View != nil {
		c.addHandlers(cfg.View)
	}
	c.apply = apply.New(apply.Config{
		Client: cfg.Client, Kinds: cfg.Kinds, Table: cfg.Table, LeaseValid: cfg.LeaseValid, DryRun: cfg.DryRun, Log: cfg.Log,
	})
	return c
}

// SetPolicy sets the policy.
func (c *Controller) SetPolicy(p policy.Policy) {
	c.policy.Store(&p)
	select {
	case c.replaced <- struct{}{}:
	default:
	}
}

// Run watches the kinds of maintenances and follows the table until ctx ends. It returns nil.
func (c *Controller) Run(ctx context.Context) error {
	if !c.cfg.View.WaitForSync(ctx) {
		return nil
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { c.kinds.run(ctx) })
	err := c.cfg.Table.Follow(ctx, c.tableChanged, func() {
		c.tableSynced.Store(true)
		c.enqueueAll()
	})
	if err != nil && ctx.Err() == nil {
		c.log.Error("cannot follow the maintenances on the bus", "error", err)
	}
	<-ctx.Done()
	return nil
}

// Ready returns the reason why the role does not work, or nil.
func (c *Controller) Ready() error {
	if err := c.kinds.ready(); err != nil {
		return err
	}
	if !c.tableSynced.Load() {
		return errors.New("maintenance: the maintenances of the bus are not known yet")
	}
	return nil
}

// Lead reconciles until ctx ends. [Controller.Run] must be running. It returns nil.
func (c *Controller) Lead(ctx context.Context) error {
	if !c.cfg.View.WaitForSync(ctx) {
		return nil
	}
	if !c.cfg.DryRun && c.cfg.Client != nil {
		events, stop := kubeevents.Start(c.cfg.Client, c.log)
		defer stop()
		c.events = events
	}
	var last *session
	for ctx.Err() == nil {
		select {
		case <-c.replaced: // this session has the newest policy
		default:
		}
		last = c.newSession(last)
		c.lead(ctx, last)
	}
	return nil
}

// lead runs one session, until ctx ends or the policy changes.
func (c *Controller) lead(ctx context.Context, s *session) {
	defer s.gates.close()
	c.session.Store(s)
	defer c.session.Store(nil)
	c.enqueueAll()
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel() // before the wait: the followers end only with their context
	defer s.queue.ShutDown()
	wg.Go(func() {
		if err := c.cfg.Bus.FollowVerdicts(ctx, c.now().Add(-overlap), s.verdict); err != nil && ctx.Err() == nil {
			c.log.Error("cannot follow verdicts", "error", err)
		}
	})
	wg.Go(func() {
		if err := c.cfg.Bus.FollowRequests(ctx, s.requests.add); err != nil && ctx.Err() == nil {
			c.log.Error("cannot follow requests", "error", err)
		}
	})
	for range workers {
		wg.Go(func() {
			for s.next(ctx) {
			}
		})
	}
	ticker := time.NewTicker(resync)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.replaced:
			return
		case <-ticker.C:
			c.enqueueAll()
		}
	}
}

// newSession returns a session. It takes over the pods and the publications of the previous session, which had another
// policy.
func (c *Controller) newSession(last *session) *session {
	s := &session{Controller: c, queue: workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[key](firstBackoff, maxBackoff)),
		drains: newDrains(),
	}
	if last != nil {
		s.drains = last.drains
	}
	var server Prometheus
	var err error
	if c.cfg.Prometheus != nil {
		if server, err = c.cfg.Prometheus(c.policy.Load().Metrics); err != nil {
			c.log.Error("cannot send the queries of gates", "error", err)
			server = nil
		}
	}
	s.gates = newGates(server, err, c.now)
	s.requests = newRequests(s)
	s.triggers = &triggers{session: s, absent: map[string]time.Time{}}
	return s
}

func (s *session) enqueue(kind keyKind, names ...string) {
	for _, name := range names {
		s.queue.Add(key{kind, name})
	}
}

// enqueueAll enqueues every maintenance, every node that may have a drain trigger, and every open request.
func (c *Controller) enqueueAll() {
	if s := c.session.Load(); s != nil {
		s.enqueue(maintenanceKey, c.objects.names()...)
		s.triggers.enqueueAll()
		s.requests.enqueueAll()
	}
}

// next reconciles the next key. It returns false when the queue is shut down.
func (s *session) next(ctx context.Context) bool {
	k, down := s.queue.Get()
	if down {
		return false
	}
	defer s.queue.Done(k)
	if s.Ready() != nil {
		s.queue.AddAfter(k, maxBackoff) // enqueueAll runs earlier, when everything is known
		return true
	}
	var after time.Duration
	var err error
	switch k.kind {
	case maintenanceKey:
		after, err = s.Reconcile(ctx, k.name)
	case triggerKey:
		err = s.triggers.reconcile(ctx, k.name)
	case requestKey:
		after, err = s.requests.reconcile(ctx, k.name)
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		if s.queue.NumRequeues(k) == 0 {
			s.log.Warn("reconcile failed; retrying", "kind", k.kind, "name", k.name, "error", err)
		}
		s.queue.AddRateLimited(k)
	default:
		s.queue.Forget(k)
		if after > 0 {
			s.queue.AddAfter(k, after)
		}
	}
	return true
}
