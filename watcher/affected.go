package watcher

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/schemas"
)

// usageSettle is how much longer the evaluation of what all nodes use waits after its first cause. Every pod that comes or
// goes is a cause, and no single one is urgent.
const usageSettle = time.Second

// wake says why and when a key is evaluated.
type wake struct {
	cause schemas.Cause
	event schemas.Event // of the cause, without data; zero for a cause without an event
	at    time.Time     // at the earliest
}

// affected is a key that a change affects, and why and when it is evaluated.
type affected struct {
	key string
	wake
}

// enqueue enqueues keys of one strategy.
func (l *lead) enqueue(s enabled, keys []affected) {
	for _, k := range keys {
		l.add(s, k.key, k.wake)
	}
}

// affectedKeys lists the keys of one strategy whose answer d can change. groups are the keys of the groups that the change
// affects.
func (l *lead) affectedKeys(s enabled, d schemas.Delta, groups touched, w wake) []affected {
	switch {
	case s.grouped():
		var keys []affected
		for _, key := range l.concerned(s, d, groups) {
			keys = append(keys, affected{key, w})
		}
		return keys
	case d.Object.Kind == "Node":
		return l.keysOnNode(s, d.Object.Name, w)
	case d.Node == "":
		return nil // not bound yet: no scope holds it
	case s.strategy.Scope == schemas.NodeKind:
		return []affected{{d.Node, w}}
	case s.strategy.Scope != schemas.PodKind:
		return nil
	}
	key := d.Object.Namespace + "/" + d.Object.Name
	if d.Kind != schemas.PodScheduled {
		return []affected{{key, w}}
	}
	if p := boundPod(l.w.cluster, key); p != nil { // there is no earlier answer that could have to be withdrawn
		return whenDue(nil, s, p, w)
	}
	return nil
}

// concerned lists the keys of the groups that a delta affects. For an opaque strategy every delta of a pod affects the groups of
// the pod.
func (l *lead) concerned(s enabled, d schemas.Delta, groups touched) []string {
	if len(groups[s.at]) > 0 || !s.opaque || d.Object.Kind != "Pod" {
		return groups[s.at]
	}
	key := d.Object.Namespace + "/" + d.Object.Name
	p := boundPod(l.w.cluster, key)
	if p == nil || p.UID != d.Object.UID {
		return nil
	}
	return l.groups.of(s, p)[s.at]
}

// keysOnNode lists the keys of one strategy for a node: the node's own key, or the keys of the pods on it that the strategy could
// move now or later.
func (l *lead) keysOnNode(s enabled, node string, w wake) []affected {
	if s.grouped() {
		return nil // it looks at no single node
	}
	if s.strategy.Scope == schemas.NodeKind {
		return []affected{{node, w}}
	}
	var keys []affected
	for _, p := range l.w.cluster.PodsOnNode(node) {
		keys = whenDue(keys, s, p, w)
	}
	return keys
}

// whenDue appends the key of a pod, if the strategy could ever move the pod without a further change of it.
func whenDue(keys []affected, s enabled, p *corev1.Pod, w wake) []affected {
	at, ever := s.due(p)
	if !ever {
		return keys
	}
	if at.After(w.at) {
		w = wake{at: at, cause: schemas.Cause{Kind: schemas.CauseDue, Time: at.UTC()}}
	}
	return append(keys, affected{p.Namespace + "/" + p.Name, w})
}

func (l *lead) add(s enabled, key string, w wake) {
	if s.strategy.Scope == schemas.UsageKind {
		w.at = w.at.Add(usageSettle)
	}
	l.queue.add(s.evaluation(key), w.at, w.cause, w.event)
}

// Observe takes the deltas of one change and enqueues the keys that they affect. It also enqueues the keys of groups that the
// change affects without a delta.
func (l *lead) Observe(deltas []schemas.Delta, groups touched, object schemas.ObjectRef) {
	told := map[int]bool{}
	for _, d := range deltas {
		l.observed(d, groups)
		for _, s := range l.scopes.plan.woken(d) {
			told[s.at] = true
		}
	}
	now := l.w.now()
	w := wake{at: now.Add(l.w.config.Settle), cause: schemas.Cause{Kind: schemas.CauseFact, Object: &object, Time: now.UTC()}}
	for at, keys := range groups {
		s := l.scopes.plan.all[at]
		if told[at] || s.opaque && object.Kind == "Node" { // which changes of nodes concern it, its wakes say
			continue
		}
		for _, key := range keys {
			l.add(s, key, w)
		}
	}
}

// newest is the state of an object after a change, or the last one of an object that is gone.
func newest[T any](old, new *T) *T {
	if new == nil {
		return old
	}
	return new
}

func nodeOf(old, new *corev1.Node) schemas.ObjectRef {
	n := newest(old, new)
	return schemas.ObjectRef{Kind: "Node", Name: n.Name, UID: n.UID}
}

func podOf(old, new *corev1.Pod) schemas.ObjectRef {
	p := newest(old, new)
	return schemas.ObjectRef{Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID}
}
