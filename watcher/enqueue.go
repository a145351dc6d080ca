package watcher

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/watcher/scope"
)

// usageDebounce is the additional debounce of the scope of all nodes: each pod that comes or goes is a cause, and none is urgent.
const usageDebounce = time.Second

// trigger is why and when keys are evaluated.
type trigger struct {
	cause schemas.Cause
	event schemas.Event // of the cause, without data; zero: there is none
	at    time.Time     // at the earliest
}

// newTrigger is a trigger now, after the debounce.
func (s *session) newTrigger(cause schemas.Cause) trigger {
	now := s.w.now()
	cause.Time = now.UTC()
	return trigger{cause: cause, at: now.Add(s.w.config.Settle)}
}

// affectedKeys enqueues the keys of one strategy whose answer a delta can change. groups are the groups that the change affects.
func (s *session) affectedKeys(st *scope.Strategy, d schemas.Delta, groups scope.GroupKeys, t trigger) {
	name := d.Object.Namespace + "/" + d.Object.Name
	switch {
	case st.Grouped():
		keys := groups[st]
		if len(keys) == 0 && st.Opaque && d.Object.Kind == "Pod" { // every delta of a pod affects its groups
			if p := scope.BoundPod(s.w.cluster, name); p != nil && p.UID == d.Object.UID {
				keys = s.scopes.KeysOf(st, p)
			}
		}
		s.enqueue(st, t, keys...)
	case d.Object.Kind == "Node" && st.Scope == schemas.NodeKind:
		s.enqueue(st, t, d.Object.Name)
	case d.Object.Kind == "Node":
		s.enqueueNode(st, d.Object.Name, t)
	case d.Node == "": // no scope holds a pod without a node
	case st.Scope == schemas.NodeKind:
		s.enqueue(st, t, d.Node)
	case st.Scope != schemas.PodKind:
	case d.Kind != schemas.PodScheduled:
		s.enqueue(st, t, name)
	default: // there is no earlier answer to withdraw
		if p := scope.BoundPod(s.w.cluster, name); p != nil {
			s.enqueueWhenDue(st, p, t)
		}
	}
}

// enqueue enqueues keys of one strategy.
func (s *session) enqueue(st *scope.Strategy, t trigger, names ...string) {
	if st.Scope == schemas.UsageKind {
		t.at = t.at.Add(usageDebounce)
	}
	for _, name := range names {
		s.queue.add(st.Key(name), t)
	}
}

// enqueueNode enqueues the key of a node, or the keys of the pods on it that the strategy could move now or later.
func (s *session) enqueueNode(st *scope.Strategy, node string, t trigger) {
	switch st.Scope {
	case schemas.NodeKind:
		s.enqueue(st, t, node)
	case schemas.PodKind:
		for _, p := range s.w.cluster.PodsOnNode(node) {
			s.enqueueWhenDue(st, p, t)
		}
	}
}

// enqueueWhenDue enqueues the key of a pod for the time when the strategy could move it, if there is one.
func (s *session) enqueueWhenDue(st *scope.Strategy, p *corev1.Pod, t trigger) {
	at, ever := st.DueTime(p)
	if !ever {
		return
	}
	if at.After(t.at) {
		t = trigger{at: at, cause: schemas.Cause{Kind: schemas.CauseDue, Time: at.UTC()}}
	}
	s.enqueue(st, t, p.Namespace+"/"+p.Name)
}

// enqueueAll enqueues all keys of one strategy.
func (s *session) enqueueAll(st *scope.Strategy, t trigger) {
	if st.Grouped() {
		s.enqueue(st, t, s.scopes.Keys(st)...)
		return
	}
	for _, node := range s.nodeNames(s.policy.Nodes) {
		s.enqueueNode(st, node, t)
	}
}
