package watcher

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/watcher/scope"
)

// Offline builds the scopes of a [Watcher] from objects that the caller sets, without a cluster or a bus, and with the
// caller's clock. It is not safe for concurrent use. Use [NewOffline] to make one.
type Offline struct {
	cluster *cluster.Cache
	policy  *scope.CompiledPolicy
	scopes  *scope.Builder
	loads   givenLoads
}

// NewOffline returns an Offline for a policy, without objects.
func NewOffline(p policy.Policy) (*Offline, error) {
	compiled, err := scope.Compile(p)
	if err != nil {
		return nil, err
	}
	c, err := cluster.NewOffline(Kinds()...)
	if err != nil {
		return nil, err
	}
	o := &Offline{
		cluster: c, policy: compiled, scopes: scope.NewBuilder(c, compiled),
		loads: givenLoads{nodes: map[string]corev1.ResourceList{}, pods: map[types.NamespacedName]corev1.ResourceList{}},
	}
	o.scopes.Loads = o.loads
	cluster.AddHandler(c, func(old, new *corev1.Node, _ bool) { o.scopes.NodeChanged(old, new) })
	cluster.AddHandler(c, func(old, new *corev1.Pod, _ bool) { o.scopes.PodChanged(old, new, time.Time{}) }) // nothing cools down
	cluster.AddHandler(c, func(old, new *corev1.Namespace, _ bool) { o.scopes.NamespaceChanged(cmp.Or(new, old).Name) })
	return o, nil
}

// Cluster returns the cache of the objects. Only the methods of Offline may change it.
func (o *Offline) Cluster() *cluster.Cache { return o.cluster }

// SetMinorVersion sets the minor version of the scheduler, see [cluster.Cache.SetMinorVersion].
func (o *Offline) SetMinorVersion(minor int) { o.cluster.SetMinorVersion(minor) }

// Set adds or replaces an object. It fails for kinds that a [Watcher] does not watch. It removes fields that no
// decision depends on from the object.
func (o *Offline) Set(object any) error { return o.cluster.Set(object) }

// Remove removes an object if it exists.
func (o *Offline) Remove(object any) error { return o.cluster.Remove(object) }

// Payloads returns all scopes of one strategy of a profile at the time now, sorted by key, whether or not anything has
// changed: one for every node, for every pod that is due, or for every group with a movable pod. It fails for a
// strategy that the policy does not have. The scopes share memory with the objects: the caller must not change them,
// and they are valid until the next change.
func (o *Offline) Payloads(profile, strategy string, now time.Time) ([]schemas.Payload, error) {
	st := o.policy.Find(scope.Key{Profile: profile, Strategy: strategy})
	if st == nil {
		return nil, fmt.Errorf("the policy has no strategy %s in profile %s", strategy, profile)
	}
	causes := []schemas.Cause{{Kind: schemas.CauseResync, Time: now.UTC()}}
	var payloads []schemas.Payload
	for _, name := range o.names(st, now) {
		r, err := o.scopes.Build(st.Key(name), causes, now)
		if err != nil {
			return nil, fmt.Errorf("scope %s of %s: %w", name, strategy, err)
		}
		if r.Scope != nil && !r.Empty {
			payloads = append(payloads, r.Scope)
		}
	}
	return payloads, nil
}

// names returns the names of all scopes of a strategy, sorted.
func (o *Offline) names(st *scope.Strategy, now time.Time) (names []string) {
	switch {
	case st.Grouped():
		names = o.scopes.Keys(st)
	case st.Scope == schemas.NodeKind:
		for _, n := range o.cluster.AllNodes(labels.Everything()) {
			names = append(names, n.Name)
		}
	default:
		for _, p := range o.cluster.AllPods() {
			if st.Due(p, now) {
				names = append(names, p.Namespace+"/"+p.Name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// Protects returns everything that protects a pod at the time now: rules of the profile, and the state of its node. It
// is empty if the pod was not set. It fails for a profile that the policy does not have.
func (o *Offline) Protects(profile, namespace, name string, now time.Time) ([]schemas.Protection, error) {
	rules, found := o.policy.Profile(profile)
	if !found {
		return nil, fmt.Errorf("the policy has no profile %s", profile)
	}
	p := scope.BoundPod(o.cluster, namespace+"/"+name)
	if p == nil {
		return nil, nil
	}
	protections := rules.Evictor.Protects(p, now, o.cluster)
	if node := o.cluster.Node(p.Spec.NodeName); node != nil {
		if why := o.scopes.Unmovable(node); why != "" {
			protections = append(protections, schemas.Protection{Rule: policy.NodeNotUsableRule, Detail: why})
		}
	}
	return protections, nil
}

// givenLoads are loads that the caller sets. They apply to every source and do not expire.
type givenLoads struct {
	nodes map[string]corev1.ResourceList
	pods  map[types.NamespacedName]corev1.ResourceList
}

func (g givenLoads) FirstRoundDone(policy.Load) bool { return true }

func (g givenLoads) Node(_ policy.Load, name string) corev1.ResourceList {
	return g.nodes[name].DeepCopy()
}

func (g givenLoads) Pod(_ policy.Load, namespace, name string) corev1.ResourceList {
	return g.pods[types.NamespacedName{Namespace: namespace, Name: name}].DeepCopy()
}

// SetNodeLoad sets the load of a node; nil means unknown. Strategies that measure by KubernetesMetrics use cpu and
// memory. Strategies that measure by Prometheus use [schemas.LoadMetric], in percent, for any query. The node may be
// set later.
func (o *Offline) SetNodeLoad(name string, used corev1.ResourceList) {
	o.loads.nodes[name] = used.DeepCopy()
}

// SetPodLoad sets the cpu and memory load of a pod; nil means unknown.
func (o *Offline) SetPodLoad(namespace, name string, used corev1.ResourceList) {
	o.loads.pods[types.NamespacedName{Namespace: namespace, Name: name}] = used.DeepCopy()
}
