package watcher

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/watcher/scope"
)

// usageDebounce is the extra debounce of the scope of all nodes. Each pod that comes or goes causes an evaluation, and
// none is urgent.
const usageDebounce = time.Second

// trigger is the cause of an evaluation and its earliest time.
type trigger struct {
	cause schemas.Cause
	event schemas.Event // the event of the cause, without data; zero if there is none
	at    time.Time     // the earliest time of the evaluation
}

// newTrigger returns a trigger that is due after the debounce.
func (s *session) newTrigger(cause schemas.Cause) trigger {
	now := s.w.now()
	cause.Time = now.UTC()
	return trigger{cause: cause, at: now.Add(s.w.config.Debounce)}
}

// Observe publishes the deltas of one change if a strategy or the policy subscribes to them, and enqueues each key
// whose answer can change. groups are the groups that the change affects; they include groups of strategies that
// subscribe to no delta.
func (s *session) Observe(deltas []schemas.Delta, groups scope.GroupKeys, object schemas.ObjectRef) {
	enqueued := map[*scope.Strategy]bool{}
	for _, d := range deltas {
		if !s.policy.Publishes(d) {
			continue
		}
		t, err := s.publishDelta(d)
		if err != nil {
			s.w.log.Error("cannot encode a delta", "kind", d.Kind, "object", d.Object, "error", err)
			continue
		}
		if object.Kind == "Node" && d.Kind != schemas.NodeLoad { // the scheduler ignores measured load
			s.capacity.changed(t)
		}
		for _, st := range s.policy.WokenBy(d) {
			enqueued[st] = true
			s.wake(st, d, t, groups[st])
		}
	}
	for st, keys := range groups {
		if !enqueued[st] && (!st.Opaque || object.Kind != "Node") { // an opaque strategy names the changes of nodes that affect it
			s.enqueue(st, s.newTrigger(schemas.Cause{Kind: schemas.CauseFact, Object: &object}), keys...)
		}
	}
}

// wake enqueues the keys of a strategy that a delta affects. groups are the groups that its change affects.
func (s *session) wake(st *scope.Strategy, d schemas.Delta, t trigger, groups []string) {
	node := d.Node
	if d.Object.Kind == "Node" {
		node = d.Object.Name
	}
	switch {
	case st.Grouped() && (len(groups) > 0 || !st.Opaque || d.Object.Kind == "Node"):
		s.enqueue(st, t, groups...)
	case node == "": // no scope contains a pod without a node
	case st.Scope == schemas.NodeKind:
		s.queue.add(st.Key(node), t)
	case d.Object.Kind == "Node":
		s.enqueuePods(st, t, s.w.cluster.PodsOnNode(node)...)
	case st.Scope == schemas.PodKind && d.Kind != schemas.PodScheduled: // an earlier answer may be stale
		s.queue.add(st.Key(d.Object.Namespace+"/"+d.Object.Name), t)
	default: // each delta of a pod affects the groups of an opaque strategy
		if p := scope.BoundPod(s.w.cluster, d.Object.Namespace+"/"+d.Object.Name); p != nil && p.UID == d.Object.UID {
			s.enqueuePods(st, t, p)
		}
	}
}

// publishDelta puts a delta into the outbox, and returns the trigger of the keys that it affects.
func (s *session) publishDelta(d schemas.Delta) (trigger, error) {
	e, err := schemas.NewEvent(s.w.config.Source, d, s.w.now(), schemas.Event{})
	if err != nil {
		return trigger{}, err
	}
	s.w.metrics.deltas.WithLabelValues(string(d.Kind)).Inc()
	s.outbox.add(e)
	t := s.newTrigger(schemas.Cause{Kind: schemas.CauseKind(d.Kind), Object: &d.Object, Event: e.ID})
	e.Data = nil // the queue needs only the envelope
	t.event = e
	return t, nil
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

// enqueueNode enqueues the key of a node, or the keys of its pods that the strategy could move now or later.
func (s *session) enqueueNode(st *scope.Strategy, node string, t trigger) {
	switch st.Scope {
	case schemas.NodeKind:
		s.queue.add(st.Key(node), t)
	case schemas.PodKind:
		s.enqueuePods(st, t, s.w.cluster.PodsOnNode(node)...)
	}
}

// enqueuePods enqueues the scopes that contain the pods. The scope of a single pod is due when the strategy could move
// that pod, if ever.
func (s *session) enqueuePods(st *scope.Strategy, t trigger, pods ...*corev1.Pod) {
	nodes := map[string]bool{"": true} // one cause for all pods of a node
	for _, p := range pods {
		switch {
		case st.Grouped():
			s.enqueue(st, t, s.scopes.KeysOf(st, p)...)
		case st.Scope == schemas.PodKind && p.Spec.NodeName != "":
			at, ever := st.DueTime(p)
			due := t
			if at.After(t.at) {
				due = trigger{at: at, cause: schemas.Cause{Kind: schemas.CauseDue, Time: at.UTC()}}
			}
			if ever {
				s.queue.add(st.Key(p.Namespace+"/"+p.Name), due)
			}
		case st.Scope == schemas.NodeKind && !nodes[p.Spec.NodeName]:
			nodes[p.Spec.NodeName] = true
			s.queue.add(st.Key(p.Spec.NodeName), t)
		}
	}
}

// dequeue removes the keys of a pod that is gone. A key that is due by now stays, because a newer pod of the same name may
// need it.
func (s *session) dequeue(p *corev1.Pod) {
	now := s.newTrigger(schemas.Cause{}).at
	for _, st := range s.policy.Strategies {
		if st.Scope == schemas.PodKind {
			s.queue.remove(st.Key(p.Namespace+"/"+p.Name), now)
		}
	}
}

// enqueueAll enqueues all groups of the strategies, and the keys of the selected nodes and of the pods on them.
func (s *session) enqueueAll(strategies []*scope.Strategy, t trigger, nodes labels.Selector) {
	for _, st := range strategies {
		if st.Grouped() {
			s.enqueue(st, t, s.scopes.Keys(st)...)
			continue
		}
		for _, n := range s.w.cluster.AllNodes(nodes) {
			s.enqueueNode(st, n.Name, t)
		}
	}
}

// evaluateAll enqueues every key with pods that could move. A group that lost its last such pod was enqueued then.
func (s *session) evaluateAll() {
	s.enqueueAll(s.policy.Strategies, s.newTrigger(schemas.Cause{Kind: schemas.CauseResync}), s.policy.Nodes)
	s.requests.EnqueueAll()
}

// evaluateAfterPolicyChange also enqueues the nodes that only the previous policy selected, and the pods that were due
// under it, because their answers may be stale.
func (s *session) evaluateAfterPolicyChange() {
	t := s.newTrigger(schemas.Cause{Kind: schemas.CauseResync})
	s.enqueueAll(s.policy.Strategies, t, labels.Everything())
	for _, old := range s.previous.Strategies {
		st := s.policy.Find(old.Key(""))
		if st == nil || st.Scope != schemas.PodKind {
			continue
		}
		for _, p := range s.w.cluster.AllPods() {
			if old.Due(p, s.w.now()) {
				s.queue.add(st.Key(p.Namespace+"/"+p.Name), t)
			}
		}
	}
}
