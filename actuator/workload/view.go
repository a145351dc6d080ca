package workload

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// View is the actuator's view of the cluster. Make one with [New]. Its methods may be called from many goroutines. What
// they return belongs to the caller. They answer at once, before [View.Synced] by what is known so far.
type View struct {
	client  kubernetes.Interface
	changed func(Change)
	now     func() time.Time
	synced  chan struct{}

	mu    sync.RWMutex
	pods  index
	nodes nodes

	failing sync.Mutex
	missing map[string]missing // by the kind
}

// missing is a kind that was not listed yet, when one of those has failed.
type missing struct {
	listed cache.DoneChecker
	last   error
}

// New makes a View that knows nothing until Run. client needs the right to list and watch Pods, Nodes, ReplicaSets,
// Deployments, StatefulSets, ReplicationControllers and PodDisruptionBudgets in all namespaces.
//
// changed is told every change, those of the first list included, after the View knows it; nil: nobody is. It is called
// from several goroutines at once, and returns at once, since the View learns nothing more before. It may ask the View,
// which can know of later changes by then.
func New(client kubernetes.Interface, changed func(Change)) *View {
	if changed == nil {
		changed = func(Change) {}
	}
	return &View{
		client: client, changed: changed, now: time.Now, synced: make(chan struct{}), pods: newIndex(), nodes: nodes{},
		missing: map[string]missing{},
	}
}

// Run follows the cluster until ctx ends, and then returns nil when nothing of it runs any more. Afterwards the View
// knows what it knew last. An error means that it could not begin. It is called once. While the API server cannot be
// asked, or refuses, it goes on trying.
func (v *View) Run(ctx context.Context) error {
	all := v.followed()
	checkers := make([]cache.DoneChecker, len(all))
	for i, f := range all {
		if err := f.informer.SetTransform(f.transform); err != nil {
			return fmt.Errorf("prune what is kept of %s: %w", f.what, err)
		}
		registration, err := f.informer.AddEventHandler(f.handler)
		if err != nil {
			return fmt.Errorf("follow %s: %w", f.what, err)
		}
		checkers[i] = registration.HasSyncedChecker()
		if err := f.informer.SetWatchErrorHandlerWithContext(v.failed(f.what, checkers[i])); err != nil {
			return fmt.Errorf("hear what fails about %s: %w", f.what, err)
		}
	}
	var running sync.WaitGroup
	for _, f := range all {
		running.Go(func() { f.informer.RunWithContext(ctx) })
	}
	if cache.WaitFor(ctx, "", checkers...) {
		close(v.synced)
	}
	running.Wait()
	return nil
}

// Synced is closed when everything is known for the first time, and then stays closed.
func (v *View) Synced() <-chan struct{} { return v.synced }

// Ready says what keeps the View from knowing everything for the first time, such as each right that is missing; nil when
// nothing does any more.
func (v *View) Ready() error {
	select {
	case <-v.synced:
		return nil
	default:
	}
	v.failing.Lock()
	defer v.failing.Unlock()
	var failures []error
	for _, what := range slices.Sorted(maps.Keys(v.missing)) {
		select {
		case <-v.missing[what].listed.Done():
		default:
			failures = append(failures, v.missing[what].last)
		}
	}
	if len(failures) == 0 {
		return errors.New("actuator: the cluster is not known yet")
	}
	return fmt.Errorf("actuator: the cluster is not known yet: %w", errors.Join(failures...))
}

// failed remembers that what could not be listed or watched, and logs it as ever.
func (v *View) failed(what string, listed cache.DoneChecker) cache.WatchErrorHandlerWithContext {
	return func(ctx context.Context, r *cache.Reflector, err error) {
		v.failing.Lock()
		v.missing[what] = missing{listed, err}
		v.failing.Unlock()
		cache.DefaultWatchErrorHandler(ctx, r, err)
	}
}

// Pod is the pod with that UID, and whether it is known. It takes the same time for any number of pods.
func (v *View) Pod(uid types.UID) (Pod, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.pods.pod(uid)
}

// Pods lists the pods of a workload, those too that are leaving or have ended, oldest first, by creation and then by
// name. nil: it has none.
func (v *View) Pods(workload types.UID) []Pod {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.pods.podsOf(workload)
}

// Tally says how a workload is. The zero value for one that is not known, and for a ReplicaSet of a Deployment, which
// is no workload of its own.
func (v *View) Tally(workload types.UID) Tally {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.pods.tally(workload)
}

// Nodes lists all nodes, sorted by name.
func (v *View) Nodes() []Node {
	v.mu.RLock()
	defer v.mu.RUnlock()
	list := make([]Node, 0, len(v.nodes))
	for _, name := range slices.Sorted(maps.Keys(v.nodes)) {
		list = append(list, v.nodes[name].Node)
	}
	return list
}

// Node is the node of that name, and whether it is known.
func (v *View) Node(name string) (Node, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	n, known := v.nodes[name]
	return n.Node, known
}

// Seen counts the pods in the order in which they became known, from 1: of two pods, the one with the higher number came
// later, whatever the clocks say. 0: the pod is not known.
func (v *View) Seen(uid types.UID) uint64 {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if p := v.pods.pods[uid]; p != nil {
		return p.seen
	}
	return 0
}

// Version is the resource version of a pod as it is known. Empty: the pod is not known.
func (v *View) Version(uid types.UID) string {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if p := v.pods.pods[uid]; p != nil {
		return p.version
	}
	return ""
}

// Latest is the number that [View.Seen] gave last. 0: no pod became known yet.
func (v *View) Latest() uint64 {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.pods.seen
}

// learn applies a change to the pods and what is around them, and then tells of it.
func (v *View) learn(apply func(*index) touched) {
	v.mu.Lock()
	workloads := apply(&v.pods)
	v.mu.Unlock()
	for _, uid := range workloads {
		v.changed(Change{Workload: uid})
	}
}

// learnNode applies a change of a node, and then tells of it.
func (v *View) learnNode(old, new *keptNode, initial bool) {
	v.mu.Lock()
	name := v.nodes.learn(old, new, initial, v.now())
	v.mu.Unlock()
	if name != "" {
		v.changed(Change{Node: name})
	}
}
