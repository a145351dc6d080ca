package watcher

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/watcher/load"
)

// Offline makes scopes by the rules of a [Watcher] from objects that it is given: without a cluster, without a bus, and
// by a clock of the caller. It is not safe for concurrent use. [NewOffline] makes one.
type Offline struct {
	w     *Watcher
	l     *lead
	now   time.Time
	loads *givenLoads
}

// NewOffline makes one for a policy, without objects. One ready node is enough for it to decide: what happens to the pods
// of a single node is a fair question, though no watcher of a real cluster would act on it.
func NewOffline(p policy.Policy) (*Offline, error) {
	o := &Offline{}
	w, err := newWatcher(Config{Policy: p, Source: "/offline", Now: func() time.Time { return o.now }})
	if err != nil {
		return nil, err
	}
	w.config.Settle = 0
	w.source = func(policy.Load, policy.Metrics) (load.Source, error) { return nil, nil }
	w.usable.enough = 1
	if w.cluster, err = cluster.NewOffline(Kinds()...); err != nil {
		return nil, err
	}
	w.follow()
	o.w = w
	o.l = newLead(w, w.plan.Load(), newOutbox(nil, w.log, w.metrics))
	o.l.offline = true
	o.loads = newGivenLoads()
	o.l.scopes.loads = o.loads
	w.lead.Store(o.l)
	return o, nil
}

// Set adds or replaces an object. It fails for a kind that no decision rests on; what counts is what a [Watcher] watches.
// The object may be changed: what no decision rests on is dropped from it.
func (o *Offline) Set(object any, now time.Time) error {
	o.now = now
	return o.w.cluster.Set(object)
}

// Remove takes an object away. One that is not there is no error.
func (o *Offline) Remove(object any, now time.Time) error {
	o.now = now
	return o.w.cluster.Remove(object)
}

// Changed are the scopes that the changes since the last call make necessary at the time now, and those that the time
// itself does, in the order in which they became due.
func (o *Offline) Changed(now time.Time) []schemas.Event {
	o.now = now
	if o.loads.changed {
		o.loads.changed = false
		for _, from := range o.l.scopes.plan.measures() {
			o.l.sampled(from)
		}
	}
	var events []schemas.Event
	for {
		due := o.l.queue.due(now.Add(usageSettle), math.MaxInt)
		for _, p := range due {
			if e, ok := o.l.Reconcile(p, now); ok {
				events = append(events, e)
			}
		}
		select {
		case <-o.l.waiting.changed:
			o.l.round()
		default:
			return events
		}
	}
}

// NeedTwoNodes makes it decide as the watcher of a real cluster does: while the policy looks at fewer than two ready nodes,
// nothing moves. It is called before the first object is set.
func (o *Offline) NeedTwoNodes() { o.w.usable.enough = 2 }

// Scopes are all scopes of one strategy of a profile at the time now, whether or not anything changed, in the order of
// their keys: of every node, of every pod that is due, and of every group in which something could be moved. It fails for
// a strategy that the policy does not have.
func (o *Offline) Scopes(profile, strategy string, now time.Time) ([]schemas.Event, error) {
	payloads, err := o.Payloads(profile, strategy, now)
	if err != nil {
		return nil, err
	}
	var events []schemas.Event
	for _, p := range payloads {
		event, err := schemas.NewEvent(o.w.config.Source, p, now, schemas.Event{})
		if err != nil {
			return nil, fmt.Errorf("scope %s of %s: %w", p.About(), strategy, err)
		}
		events = append(events, event)
	}
	return events, nil
}

// Payloads are what [Offline.Scopes] puts into events, for whoever decides in the same process. They share memory with the
// objects that were set: nobody may change them, and they hold until the next change.
func (o *Offline) Payloads(profile, strategy string, now time.Time) ([]schemas.Payload, error) {
	o.now = now
	e, found := o.l.scopes.plan.find(evaluation{profile: profile, strategy: strategy})
	if !found {
		return nil, fmt.Errorf("the policy has no strategy %s in profile %s", strategy, profile)
	}
	keys, err := o.keys(e, now)
	if err != nil {
		return nil, err
	}
	cause := schemas.Cause{Kind: schemas.CauseResync, Time: now.UTC()}
	var payloads []schemas.Payload
	for _, key := range keys {
		b, err := o.l.scopes.Build(&pending{evaluation: e.evaluation(key), causes: []schemas.Cause{cause}}, now)
		if err != nil {
			return nil, fmt.Errorf("scope %s of %s: %w", key, strategy, err)
		}
		if b.scope != nil && !b.empty {
			payloads = append(payloads, b.scope)
		}
	}
	return payloads, nil
}

// Protects lists what forbids to move a pod at the time now: the rules of the profile that apply to it, and the node that it
// runs on. It is the pod that was set under this name; of none there is nothing to say. It fails for a profile that the
// policy does not have.
func (o *Offline) Protects(profile, namespace, name string, now time.Time) ([]schemas.Protection, error) {
	o.now = now
	rules, found := o.w.config.Policy.Profile(profile)
	if !found {
		return nil, fmt.Errorf("the policy has no profile %s", profile)
	}
	p := boundPod(o.w.cluster, namespace+"/"+name)
	if p == nil {
		return nil, nil
	}
	protections := rules.Evictor.Protects(p, now, o.w.cluster)
	node := o.w.cluster.Node(p.Spec.NodeName)
	if node == nil { // of a pod with a node that is not there, the rules are all
		return protections, nil
	}
	if why := o.l.scopes.unmovable(node); why != "" {
		protections = append(protections, schemas.Protection{Rule: notUsable, Detail: why})
	}
	return protections, nil
}

// keys are those of all scopes of a strategy, sorted.
func (o *Offline) keys(e enabled, now time.Time) ([]string, error) {
	var keys []string
	switch {
	case e.grouped():
		keys = o.l.groups.keys(e)
	case e.strategy.Scope == schemas.NodeKind:
		keys = nodeNames(o.w.cluster, labels.Everything())
	default:
		for _, p := range o.w.cluster.AllPods() {
			if at, ever := e.due(p); ever && !at.After(now) && p.Spec.NodeName != "" {
				keys = append(keys, p.Namespace+"/"+p.Name)
			}
		}
	}
	slices.SortFunc(keys, strings.Compare)
	return keys, nil
}
