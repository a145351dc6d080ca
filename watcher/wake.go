package watcher

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/schemas"
)

// usageSettle is how much longer the evaluation of what all nodes use waits after its first cause. Every pod that comes or
// goes is a cause, and no single one is urgent.
const usageSettle = time.Second

// wake is why and when something is to be evaluated.
type wake struct {
	cause schemas.Cause
	event schemas.Event // of the cause, without data; zero for a cause without an event
	delta *delta        // whose event that is; nil: it is no delta
	at    time.Time     // at the earliest
}

// wake makes the evaluations of one strategy pending that d makes necessary. groups are those that the change concerns.
func (l *lead) wake(s enabled, d schemas.Delta, groups touched, w wake) {
	switch {
	case s.grouped():
		for _, key := range l.concerned(s, d, groups) {
			l.add(s, key, w)
		}
	case d.Object.Kind == "Node":
		l.wakeNode(s, d.Object.Name, w)
	case d.Node == "":
		// not bound yet: nobody looks at it
	case s.strategy.Scope == schemas.NodeKind:
		l.add(s, d.Node, w)
	case s.strategy.Scope == schemas.PodKind:
		l.wakePod(s, d, w)
	}
}

// concerned are the groups that a delta is about: those that the change concerns. Of a strategy of which nothing is known
// they are also those of a pod that changed in a way by which they are the same.
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

// wakeNode makes all evaluations of one strategy pending that concern a node: its own, or those of the pods on it that
// are to move now or later.
func (l *lead) wakeNode(s enabled, node string, w wake) {
	if s.grouped() {
		return // it looks at no single node
	}
	if s.strategy.Scope == schemas.NodeKind {
		l.add(s, node, w)
		return
	}
	for _, p := range l.w.cluster.PodsOnNode(node) {
		l.wakeWhenDue(s, p, w)
	}
}

// wakePod makes the evaluation of one pod pending. A pod that was just bound is only looked at when it is due: there is
// no earlier answer that could have to be withdrawn.
func (l *lead) wakePod(s enabled, d schemas.Delta, w wake) {
	key := d.Object.Namespace + "/" + d.Object.Name
	if d.Kind != schemas.PodScheduled {
		l.add(s, key, w)
		return
	}
	if p := boundPod(l.w.cluster, key); p != nil {
		l.wakeWhenDue(s, p, w)
	}
}

func (l *lead) wakeWhenDue(s enabled, p *corev1.Pod, w wake) {
	at, ever := s.due(p)
	if !ever {
		return
	}
	if at.After(w.at) {
		w = wake{at: at, cause: schemas.Cause{Kind: schemas.CauseDue, Time: at.UTC()}}
	}
	l.add(s, p.Namespace+"/"+p.Name, w)
}

func (l *lead) add(s enabled, key string, w wake) {
	if s.strategy.Scope == schemas.UsageKind {
		w.at = w.at.Add(usageSettle)
	}
	l.queue.add(s.evaluation(key), w.at, w.cause, w.event, w.delta)
}

// changed publishes the deltas of one change and makes the evaluations pending that they make necessary, and those of the
// groups that the change concerns without any delta that tells of it.
func (l *lead) changed(deltas []schemas.Delta, groups touched, object schemas.ObjectRef) {
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
