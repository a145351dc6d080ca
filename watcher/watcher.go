package watcher

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/watcher/load"
	"github.com/rehome-dev/rehome/watcher/requests"
)

// Bus is what the watcher needs of the bus.
type Bus interface {
	// PublishAll returns when all events are stored, or says which are not. [delivery.Refused] reads from the error which of
	// them never will be.
	PublishAll(ctx context.Context, events []schemas.Event) error
	// FollowVerdicts hands over every verdict since a time, and each new one, in order, until ctx ends.
	FollowVerdicts(ctx context.Context, since time.Time, handle func(schemas.Event)) error
	// Asked names the scopes that have an answer now, or wait for one: of each head Kind, Key, Profile and Strategy are set.
	Asked(ctx context.Context) ([]schemas.ScopeHead, error)
}

// Config is what a watcher is made of. Client, Bus, Policy and Source are needed. [Watcher.SetPolicy] replaces Policy.
type Config struct {
	// Client measures loads, and finds the kinds of Dynamic.
	Client kubernetes.Interface
	// Cluster holds [Kinds]. It is run by the caller.
	Cluster *cluster.Cache
	Bus     Bus
	Policy  policy.Policy
	// Source is the CloudEvents source of everything that the watcher says.
	Source string
	// Requests are answered by the policy. nil: nobody is.
	Requests requests.Bus
	// Resync is how often everything is evaluated. Zero: 30 minutes.
	Resync time.Duration
	// Settle is how long an evaluation waits after its first cause, so that causes that belong together are seen
	// together. Zero: 10 milliseconds, which takes in the two updates of a cordon and is a tenth of what an eviction
	// costs in the API server.
	Settle time.Duration
	// Now is the clock of decisions. nil: [time.Now].
	Now func() time.Time
	// Log may be nil: nothing is logged.
	Log *slog.Logger
	// Metrics may be nil: nothing is registered.
	Metrics prometheus.Registerer
}

// Watcher watches one cluster. [New] makes one.
type Watcher struct {
	config  Config
	log     *slog.Logger
	metrics *metrics
	plan    atomic.Pointer[plan] // of the newest policy
	cluster *cluster.Cache
	usable  *usableNodes
	now     func() time.Time
	// source is where a load is measured; nil if there is nobody to ask.
	source func(policy.Load, policy.Metrics) (load.Source, error)
	lead   atomic.Pointer[lead]
	// sampler measures the load that the newest policy asks for; remeasure has one element when it was replaced.
	sampler   atomic.Pointer[load.Sampler]
	remeasure chan struct{}
	moves     loadMoves
	leading   atomic.Bool
	// replaced has one element when the policy was replaced since somebody last looked. Its capacity is 1.
	replaced chan struct{}
}

// New makes a watcher. Nothing is read before [Watcher.Run].
func New(c Config) (*Watcher, error) {
	w, err := newWatcher(c)
	if err != nil {
		return nil, err
	}
	w.cluster = c.Cluster
	w.measureFor(w.plan.Load())
	w.follow()
	return w, nil
}

// Kinds are those that the watcher follows.
func Kinds() []cluster.Kind {
	return append(cluster.PlacementKinds(), cluster.PodDisruptionBudgets, cluster.PriorityClasses)
}

// follow has the watcher told of every change of the cluster.
func (w *Watcher) follow() {
	cluster.AddHandler(w.cluster, w.nodeChanged)
	cluster.AddHandler(w.cluster, w.podChanged)
	cluster.AddHandler(w.cluster, w.budgetChanged)
	cluster.AddHandler(w.cluster, w.namespaceChanged)
	cluster.AddHandler(w.cluster, w.claimChanged)
	cluster.AddHandler(w.cluster, w.classChanged)
	cluster.AddHandler(w.cluster, storing[corev1.PersistentVolume](w, "PersistentVolume"))
	cluster.AddHandler(w.cluster, storing[storagev1.StorageClass](w, "StorageClass"))
	cluster.AddHandler(w.cluster, storing[storagev1.CSINode](w, "CSINode"))
	cluster.AddHandler(w.cluster, storing[storagev1.CSIDriver](w, "CSIDriver"))
	cluster.AddHandler(w.cluster, storing[storagev1.CSIStorageCapacity](w, "CSIStorageCapacity"))
	cluster.AddHandler(w.cluster, storing[storagev1.VolumeAttachment](w, "VolumeAttachment"))
}

// storing is the handler of a kind that only decides where a volume can be.
func storing[T any, P interface {
	*T
	metav1.Object
}](w *Watcher, kind string) func(old, new *T, initial bool) {
	return func(old, new *T, initial bool) {
		if l := w.lead.Load(); l != nil && !initial {
			l.storageRoom(kind, P(cmp.Or(new, old)))
		}
	}
}

// boundPod is the pod of that namespace and name that is bound to a node; nil: there is none.
func boundPod(c *cluster.Cache, key string) *corev1.Pod {
	namespace, name, _ := strings.Cut(key, "/")
	if p := c.Pod(namespace, name); p != nil && p.Spec.NodeName != "" {
		return p
	}
	return nil
}

// nodeNames lists the names of all nodes that match.
func nodeNames(c *cluster.Cache, selector labels.Selector) []string {
	nodes := c.AllNodes(selector)
	names := make([]string, len(nodes))
	for i, n := range nodes {
		names[i] = n.Name
	}
	return names
}

// namespaceLabels returns a function that gives the labels of a namespace, nil if it is not known.
func namespaceLabels(c *cluster.Cache) func(string) labels.Set {
	return func(name string) labels.Set {
		of, _ := c.NamespaceLabels(name)
		return of
	}
}

// allows says whether a budget allows a disruption now, as far as its status tells; a budget that is gone does.
func (w *Watcher) allows(name types.NamespacedName) bool {
	b := w.cluster.Budget(name.Namespace, name.Name)
	return b == nil || cluster.Allows(b)
}

// newWatcher makes a watcher without a view of the cluster.
func newWatcher(c Config) (*Watcher, error) {
	if c.Resync == 0 {
		c.Resync = 30 * time.Minute
	}
	if c.Settle == 0 {
		c.Settle = 10 * time.Millisecond
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	plan, err := newPlan(c.Policy)
	if err != nil {
		return nil, err
	}
	w := &Watcher{
		config: c, log: c.Log, now: c.Now, usable: &usableNodes{plan: plan, enough: 2}, replaced: make(chan struct{}, 1),
	}
	w.source, w.remeasure = w.sourceOf, make(chan struct{}, 1)
	w.plan.Store(plan)
	w.metrics = newMetrics(c.Metrics, func() float64 {
		if l := w.lead.Load(); l != nil {
			return float64(l.queue.len())
		}
		return 0
	})
	w.metrics.expect(plan)
	return w, nil
}

// Run measures load until ctx ends. It returns nil.
func (w *Watcher) Run(ctx context.Context) error {
	w.measureLoad(ctx)
	return nil
}

// Lead publishes deltas and scopes until ctx ends, beginning with the scopes of everything. [Watcher.Run] must be
// running. It returns nil, or an error when it is leading already.
func (w *Watcher) Lead(ctx context.Context) error {
	if !w.cluster.WaitForSync(ctx) {
		return nil
	}
	if !w.leading.CompareAndSwap(false, true) {
		return errors.New("the watcher is leading already")
	}
	defer w.leading.Store(false)
	defer w.lead.Store(nil)
	w.leadOn(ctx)
	return nil
}

// Resync makes every evaluation pending, as happens every resync interval, if the watcher leads. It returns at once.
func (w *Watcher) Resync() {
	if l := w.lead.Load(); l != nil {
		l.w.log.Info("evaluating everything")
		l.evaluateAll()
	}
}

// nodeChanged is called by the informer of nodes.
func (w *Watcher) nodeChanged(old, new *corev1.Node, initial bool) {
	crossed := w.usable.changed(old, new)
	l := w.lead.Load()
	if l == nil || initial {
		return
	}
	groups := l.groups.nodeChanged(old, new)
	l.Observe(ObserveNode(old, new), groups, nodeOf(old, new))
	switch {
	case crossed:
		l.evaluateAll()
	case l.scopes.plan.signalled(old, new):
		l.evaluate([]string{new.Name})
	}
}

// podChanged is called by the informer of pods.
func (w *Watcher) podChanged(old, new *corev1.Pod, initial bool) {
	l := w.lead.Load()
	if l == nil || initial {
		return
	}
	groups := l.groups.podChanged(old, new, w.now())
	l.Observe(ObservePod(old, new), groups, podOf(old, new))
	if old != nil && (new == nil || new.UID != old.UID) {
		l.held.forget(old.UID)
		l.requests.PodGone(old.UID)
	}
	l.podFacts(old, new)
}

// budgetChanged is called by the informer of PodDisruptionBudgets.
func (w *Watcher) budgetChanged(old, new *policyv1.PodDisruptionBudget, initial bool) {
	l := w.lead.Load()
	if l == nil || initial {
		return
	}
	b := newest(old, new)
	if new == nil || cluster.Allows(new) {
		l.freed(b)
	}
	l.budgetFacts(old, new)
}
