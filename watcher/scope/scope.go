// Package scope builds scopes: everything that a strategy needs to decide about one node, pod, or group of pods.
//
//	cache ──old, new──▶ Builder.NodeChanged, PodChanged ──▶ index of each strategy ──▶ GroupKeys    (groups.go)
//	key   ───────────▶ Builder.Build ──▶ index: copy the group ──▶ protections, fit ──▶ Result      (scope.go, fit.go)
//
// Each kind of scope has a file: node.go, pod.go, workload.go, spread.go, domain.go, usage.go. The last four contain an
// index, which implements the interface index, and the builder of its scopes; the builder for spread.go is in
// places.go. Each change updates the indexes, so the cost of a change depends on the size of its group and not of the
// cluster. [Builder.Rebuild] rebuilds all indexes from the cache.
package scope

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// Key names one scope.
type Key struct {
	Profile, Strategy string
	Kind              schemas.ScopeKind
	Name              string
}

// KeyOf returns the key of a scope.
func KeyOf(h schemas.ScopeHead) Key { return Key{h.Profile, h.Strategy, h.Kind, h.Key} }

// Grouped reports whether the scope is a group of pods, which can take long to build.
func (k Key) Grouped() bool { return isGroup(k.Kind) }

func isGroup(kind schemas.ScopeKind) bool {
	return kind != schemas.NodeKind && kind != schemas.PodKind && kind != schemas.RequestKind
}

// Head returns the head of the scope with the key.
func (k Key) Head() schemas.ScopeHead {
	return schemas.ScopeHead{Kind: k.Kind, Key: k.Name, Profile: k.Profile, Strategy: k.Strategy}
}

// Result is a scope, and the time to build it again.
type Result struct {
	// Scope is nil if there is nothing to evaluate, because the strategy or the object of the scope is gone.
	Scope schemas.Payload
	// Empty means that the scope is known to need no intents. It is published only to withdraw an earlier answer.
	Empty bool
	// Again is the next time when the scope can change without a change of the cluster. Zero means never.
	Again time.Time
	// LackCapacity has the pods, as NAMESPACE/NAME, that are protected only because they fit on no other node.
	LackCapacity []string
	// FitHash is a hash of all fit answers in the scope, or 0 if it has none.
	FitHash uint64
	// Fits has pods that may move because a node has room for their replacements. One pod stands for all that the
	// scheduler treats alike. The answer can change when a replacement no longer fits.
	Fits []Fit
}

// minNodes is the minimum number of usable nodes for moves, as in kubernetes-sigs/descheduler.
const minNodes = 2

// Requests builds the scopes of manual requests.
type Requests interface {
	Build(schemas.ScopeHead) (scope schemas.Payload, again time.Time)
}

// Builder builds scopes under one policy. It is safe for concurrent use. Use [NewBuilder] to make one.
type Builder struct {
	cluster *cluster.Cache
	policy  *CompiledPolicy
	// Requests may be nil. It must be set before the builder is used.
	Requests Requests
	Loads    Loads
	// Moving reports whether the move of a pod is in flight. It may be nil, and must be set before the builder is used.
	Moving func(types.UID) bool

	mu      sync.Mutex
	groups  *groups
	journal []func(*groups) GroupKeys // the changes since a rebuild began; nil if no rebuild runs
	cooled  time.Time                 // no group is built before that
}

// NewBuilder makes a builder with empty indexes.
func NewBuilder(c *cluster.Cache, p *CompiledPolicy) *Builder {
	b := &Builder{cluster: c, policy: p}
	b.groups = newGroups(b)
	return b
}

// build is a scope under construction.
type build struct {
	*Builder
	strategy *Strategy
	head     schemas.ScopeHead
	facts    *sharedFacts
	usable   bool // a pod of the group is on a usable node
	Result
}

// Build builds the scope of a key.
func (b *Builder) Build(key Key, causes []schemas.Cause, now time.Time) (Result, error) {
	s := b.policy.Find(key)
	if s == nil {
		return Result{}, nil
	}
	build := &build{Builder: b, strategy: s, head: key.Head(), facts: &sharedFacts{Cache: b.cluster, fitting: map[string]string{}}}
	build.head.Args, build.head.Now, build.head.Since, build.head.Causes = s.Args, now.UTC(), since(causes, now), causes
	switch {
	case key.Kind == schemas.NodeKind:
		build.node()
	case key.Kind == schemas.PodKind:
		build.pod()
	case key.Kind == schemas.RequestKind && b.Requests == nil:
	case key.Kind == schemas.RequestKind:
		build.Scope, build.Again = b.Requests.Build(build.head)
	case s.Grouped():
		build.group()
	default:
		return Result{}, fmt.Errorf("strategy %s needs a scope of unknown kind %q", key.Strategy, key.Kind)
	}
	build.Fits = build.facts.fits
	return build.Result, nil
}

// since returns the time of the oldest cause, but never a time in the future.
func since(causes []schemas.Cause, now time.Time) time.Time {
	oldest := now
	for _, c := range causes {
		if c.Time.Before(oldest) {
			oldest = c.Time
		}
	}
	return oldest.UTC()
}

// again requests another build at a time in the future.
func (b *build) again(at time.Time) {
	if at.After(b.head.Now) && (b.Again.IsZero() || at.Before(b.Again)) {
		b.Again = at
	}
}

// scoped returns a pod for a scope, with its protections.
func (b *build) scoped(p *corev1.Pod) schemas.ScopedPod {
	evictor := b.strategy.Evictor
	b.again(evictor.Lapses(p, b.head.Now))
	if b.strategy.Grouped() {
		b.again(schemas.GoneBy(p))
		if n := b.cluster.Node(p.Spec.NodeName); n != nil {
			if why := b.policy.Unusable(n); why != "" {
				return schemas.ScopedPod{Pod: *p, Protected: []schemas.Protection{{Rule: policy.NodeNotUsableRule, Detail: why}}}
			}
		}
		b.usable = true
	}
	scoped := schemas.ScopedPod{Pod: *p, Protected: evictor.ProtectsBut(b.overridden(p), p, b.head.Now, b.facts)}
	if LacksCapacity(scoped.Protected) {
		b.LackCapacity = append(b.LackCapacity, p.Namespace+"/"+p.Name)
	}
	if protection, until := disrupted(p, b.head.Now); !until.IsZero() {
		b.again(until)
		scoped.Protected = append(scoped.Protected, protection)
	}
	return scoped
}

// overridden returns the rules that do not apply to a pod in flight. Its replacement may have taken the last room, and the
// actuator cancels a move if the next scope protects the pod.
func (b *Builder) overridden(p *corev1.Pod) []string {
	if !b.isMoving(p) {
		return nil
	}
	return []string{policy.NodeFitRule}
}

func (b *Builder) isMoving(p *corev1.Pod) bool { return b.Moving != nil && b.Moving(p.UID) }

// LacksCapacity reports whether a pod is protected only because it fits on no other node. That rule applies last, if no
// other rule protects the pod.
func LacksCapacity(protections []schemas.Protection) bool {
	return len(protections) == 1 && protections[0].Rule == policy.NodeFitRule
}

const (
	// disruptionTimeout is the time until the control plane clears the condition DisruptionTarget of a pod that was not deleted.
	disruptionTimeout = 2 * time.Minute
	// evictionTimeout is longer than an eviction takes from that condition to the deletion, which are two steps of one call.
	// If the call is interrupted between them, for example because its client was killed, the pod stays.
	evictionTimeout = 15 * time.Second
	// evictionReason is the reason of the condition that an eviction sets.
	evictionReason = "EvictionByEvictionAPI"
)

// disrupted protects a pod that the control plane is about to delete: it sets the condition DisruptionTarget a moment
// before it deletes the pod. until is the end of the protection, or zero. [policy.Evictor.Protects] protects the
// pod once it is terminating.
func disrupted(p *corev1.Pod, now time.Time) (protection schemas.Protection, until time.Time) {
	if p.DeletionTimestamp != nil {
		return protection, until
	}
	for i := range p.Status.Conditions {
		c := &p.Status.Conditions[i]
		if c.Type != corev1.DisruptionTarget || c.Status != corev1.ConditionTrue {
			continue
		}
		timeout := disruptionTimeout
		if c.Reason == evictionReason {
			timeout = evictionTimeout
		}
		if until := c.LastTransitionTime.Add(timeout); until.After(now) {
			return schemas.Protection{Rule: policy.TerminatingPods, Detail: "it is about to be deleted: " + c.Reason}, until
		}
	}
	return protection, until
}

// Unmovable returns the reason why no pod can move off a node, or "".
func (b *Builder) Unmovable(n *corev1.Node) string {
	if b.tooFewNodes() {
		return "there is no second node that could take a pod"
	}
	return b.policy.Unusable(n)
}

func (b *Builder) tooFewNodes() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.groups.usable < minNodes
}

// ProtectionsOfRequest returns the protections of a pod from a request, without the rules that the request overrides.
func (b *Builder) ProtectionsOfRequest(profile string, p *corev1.Pod, override []string, now time.Time) []schemas.Protection {
	rules, found := b.policy.Profile(profile)
	if !found {
		return nil
	}
	protections := rules.Evictor.ProtectsBut(slices.Concat(override, b.overridden(p)), p, now, b.cluster)
	if protection, until := disrupted(p, now); !until.IsZero() {
		protections = append(protections, protection)
	}
	if slices.Contains(override, policy.NodeNotUsableRule) {
		return protections
	}
	why := fmt.Sprintf("there is no node %s", p.Spec.NodeName)
	if node := b.cluster.Node(p.Spec.NodeName); node != nil {
		why = b.Unmovable(node)
	}
	if why != "" {
		protections = append(protections, schemas.Protection{Rule: policy.NodeNotUsableRule, Detail: why})
	}
	return protections
}

// BoundPod returns the pod NAMESPACE/NAME if it has a node, else nil.
func BoundPod(c *cluster.Cache, name string) *corev1.Pod {
	namespace, name, _ := strings.Cut(name, "/")
	if p := c.Pod(namespace, name); p != nil && p.Spec.NodeName != "" {
		return p
	}
	return nil
}

func byName(a, b *corev1.Pod) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}
