// Package scope builds scopes: everything that a strategy needs to decide about one node, pod, or group of pods.
//
//	cache ──old, new──▶ Builder.NodeChanged, PodChanged ──▶ index of each strategy ──▶ GroupKeys    (groups.go)
//	key   ───────────▶ Builder.Build ──▶ index: copy the group ──▶ protections, fit ──▶ Result      (scope.go, fit.go)
//
// There is one file for each kind of scope: node.go, pod.go, workload.go, spread.go, domain.go, usage.go. The last four hold an
// index and its builder together, but the builder of spread.go is in places.go; all implement the interface index. An index is updated with each change, so that a change costs
// what its group costs, and not what the cluster costs. [Builder.Rebuild] makes all indexes from the cache again.
package scope

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

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

// KeyOf is the key of a scope.
func KeyOf(h schemas.ScopeHead) Key { return Key{h.Profile, h.Strategy, h.Kind, h.Key} }

// Head is the beginning of the scope with the key.
func (k Key) Head() schemas.ScopeHead {
	return schemas.ScopeHead{Kind: k.Kind, Key: k.Name, Profile: k.Profile, Strategy: k.Strategy}
}

// Result is a scope, and when to build it again.
type Result struct {
	// Scope is nil if there is nothing to evaluate: the strategy, or what the scope is about, is gone.
	Scope schemas.Payload
	// Empty: the scope has nothing that the strategy could move. It is published only to withdraw an earlier answer.
	Empty bool
	// Again is when time alone can change the scope; zero: never.
	Again time.Time
	// LackCapacity are the pods, as NAMESPACE/NAME, that are protected only because they fit on no other node.
	LackCapacity []string
	// FitHash is a hash of what the scope says about where pods fit; 0: nothing.
	FitHash uint64
	// Fits: a pod may move because its replacement fits on another node. The answer changes when that capacity goes.
	Fits bool
}

// minNodes is how many usable nodes it takes to move pods, as in kubernetes-sigs/descheduler.
const minNodes = 2

// Requests builds the scopes of manual requests.
type Requests interface {
	Build(schemas.ScopeHead) (scope schemas.Payload, again time.Time)
}

// Builder builds scopes under one policy. Its methods may be called from many goroutines. Make one with [NewBuilder].
type Builder struct {
	cluster *cluster.Cache
	policy  *CompiledPolicy
	// Requests may be nil. It is set before the builder is used.
	Requests Requests
	Loads    Loads

	mu      sync.Mutex
	groups  *groups
	journal []func(*groups) GroupKeys // the changes since a rebuild began; nil: no rebuild runs
	settled time.Time                 // before that no group is built
}

// NewBuilder makes a builder with empty indexes.
func NewBuilder(c *cluster.Cache, p *CompiledPolicy) *Builder {
	b := &Builder{cluster: c, policy: p}
	b.groups = newGroups(b)
	return b
}

// build is one scope while it is built.
type build struct {
	*Builder
	strategy *Strategy
	head     schemas.ScopeHead
	facts    sharedFacts
	Result
}

// Build builds the scope of a key.
func (b *Builder) Build(key Key, causes []schemas.Cause, now time.Time) (Result, error) {
	s := b.policy.Find(key)
	if s == nil {
		return Result{}, nil
	}
	build := &build{Builder: b, strategy: s, head: key.Head(), facts: sharedFacts{b.cluster, map[string]string{}}}
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
		return Result{}, fmt.Errorf("strategy %s wants a scope of the unknown kind %q", key.Strategy, key.Kind)
	}
	return build.Result, nil
}

// since is when the oldest cause was observed. A cause in the future is not its own reason.
func since(causes []schemas.Cause, now time.Time) time.Time {
	oldest := now
	for _, c := range causes {
		if c.Time.Before(oldest) {
			oldest = c.Time
		}
	}
	return oldest.UTC()
}

// again asks for another build at a time in the future.
func (b *build) again(at time.Time) {
	if at.After(b.head.Now) && (b.Again.IsZero() || at.Before(b.Again)) {
		b.Again = at
	}
}

// scoped is a pod in a scope, with what protects it.
func (b *build) scoped(p *corev1.Pod) schemas.ScopedPod {
	evictor := b.strategy.Evictor
	b.again(evictor.Lapses(p, b.head.Now))
	if b.strategy.Grouped() {
		b.again(schemas.GoneBy(p))
	}
	scoped := schemas.ScopedPod{Pod: *p, Protected: evictor.Protects(p, b.head.Now, b.facts)}
	if LacksCapacity(scoped.Protected) {
		b.LackCapacity = append(b.LackCapacity, p.Namespace+"/"+p.Name)
	} else if holds, _ := evictor.NodeFit(); holds && len(scoped.Protected) == 0 {
		b.Fits = true
	}
	if protection, until := disrupted(p, b.head.Now); !until.IsZero() {
		b.again(until)
		scoped.Protected = append(scoped.Protected, protection)
	}
	return scoped
}

// LacksCapacity says whether a pod is protected only because it fits on no other node. That rule is applied last, and alone.
func LacksCapacity(protections []schemas.Protection) bool {
	return len(protections) == 1 && protections[0].Rule == policy.NodeFitRule
}

// disruptionTimeout is when the control plane clears the condition DisruptionTarget of a pod that was not deleted.
const disruptionTimeout = 2 * time.Minute

// disrupted protects a pod that the control plane is about to delete: an eviction sets the condition DisruptionTarget, and deletes
// the pod a moment later. until is when the protection ends; zero: there is none. [policy.Evictor.Protects] protects the pod once it
// is being deleted.
func disrupted(p *corev1.Pod, now time.Time) (protection schemas.Protection, until time.Time) {
	if p.DeletionTimestamp != nil {
		return protection, until
	}
	for i := range p.Status.Conditions {
		c := &p.Status.Conditions[i]
		if c.Type != corev1.DisruptionTarget || c.Status != corev1.ConditionTrue {
			continue
		}
		if until := c.LastTransitionTime.Add(disruptionTimeout); until.After(now) {
			return schemas.Protection{Rule: policy.TerminatingPods, Detail: "it is about to be deleted: " + c.Reason}, until
		}
	}
	return protection, until
}

// Unmovable says why no pod can move off a node; empty: pods can.
func (b *Builder) Unmovable(n *corev1.Node) string {
	if b.tooFewNodes() {
		return "there is no second node that could take a pod"
	}
	return b.policy.Unusable(n)
}

func (b *Builder) tooFewNodes() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.groups.nodes) < minNodes
}

// ProtectionsOfRequest lists what protects a pod from a request, without the rules that the request overrides.
func (b *Builder) ProtectionsOfRequest(profile string, p *corev1.Pod, override []string, now time.Time) []schemas.Protection {
	rules, found := b.policy.Policy.Profile(profile)
	if !found {
		return nil
	}
	protections := rules.Evictor.ProtectsBut(override, p, now, b.cluster)
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

// BoundPod is the pod with the name NAMESPACE/NAME, if it has a node; else nil.
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
