package watcher

import (
	"maps"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/watcher/load"
)

// maintenanceProfile stands where the name of a profile stands. Maintenances are of no profile: whoever may make one is
// answered, whatever profiles the policy has.
const maintenanceProfile = "default"

// verdictSettle is how long an evaluation waits after the first verdict that says something new, so that those on the pods of a
// node are seen together.
const verdictSettle = time.Second

// maintaining evaluates maintenances while a watcher leads. Its methods may be called from many goroutines. Make one with
// newMaintaining.
type maintaining struct {
	l     *lead
	in    *maintained
	tried verdicts
	gates *gates
}

func newMaintaining(l *lead) *maintaining {
	m := &maintaining{l: l, in: &l.w.maintained}
	m.gates = newGates(l.w.asker(l.scopes.plan.metrics), l.w.now, func(names []string) {
		now := l.w.now()
		m.wake(names, wake{cause: schemas.Cause{Kind: schemas.CauseDue, Time: now.UTC()}, at: now.Add(l.w.config.Settle)})
	})
	return m
}

// asker is who answers the queries of gates. nil: the policy has no Prometheus, or it cannot be asked.
func (w *Watcher) asker(metrics policy.Metrics) asker {
	source, err := w.source(policy.Load{Source: policy.LoadPrometheus}, metrics)
	if err != nil {
		w.log.Error("the queries of gates cannot be asked", "error", err)
	}
	server, is := source.(*load.Prometheus)
	if !is {
		return nil
	}
	return server
}

// wake makes the evaluations of maintenances pending, once all that there is of them is known.
func (m *maintaining) wake(names []string, w wake) {
	if !m.in.known.Load() {
		return
	}
	for _, name := range names {
		m.l.queue.add(maintenanceEvaluation(name), w.at, w.cause, w.event)
	}
}

func maintenanceEvaluation(name string) evaluation {
	return evaluation{
		profile: maintenanceProfile, strategy: schemas.MaintenanceStrategy, kind: schemas.MaintenanceKind, key: name,
	}
}

// wakeAll makes the evaluations of all maintenances pending.
func (m *maintaining) wakeAll() {
	now := m.l.w.now()
	m.wake(m.in.names(), wake{
		cause: schemas.Cause{Kind: schemas.CauseResync, Time: now.UTC()}, at: now.Add(m.l.w.config.Settle),
	})
}

// nowKnown is called when all maintenances and rules that are there may be known, and when some may not be any more: the kinds
// can be installed at any time.
func (w *Watcher) nowKnown() {
	w.knowing.Lock()
	known := w.knowsMaintenances() == nil
	w.maintained.known.Store(known)
	w.knowing.Unlock()
	if l := w.lead.Load(); l != nil && known {
		l.maintaining.wakeAll()
		l.signs.lookAtAll()
	}
}

// maintenanceChanged is called by the informer of NodeMaintenances and by the table. Also a change that says nothing new
// counts: an answer that rests on what was before it is dropped.
func (w *Watcher) maintenanceChanged(old, new *v1alpha1.NodeMaintenance, _ bool) {
	if old == nil && new == nil {
		return // it cannot be read
	}
	others := w.maintained.maintenance(old, new)
	l := w.lead.Load()
	if l == nil || old != nil && new != nil && old.ResourceVersion == new.ResourceVersion {
		return
	}
	if new == nil {
		l.maintaining.gates.want(old.Name, nil)
	} else {
		others = append(others, new.Name)
	}
	l.maintaining.wake(others, l.fact("NodeMaintenance", newest(old, new)))
	l.requests.maintenanceChanged(newest(old, new).Name)
	if node, is := schemas.InTable(newest(old, new).Name); is {
		l.signs.look(node)
	}
}

// ruleChanged is called by the informer of DrainRules. It concerns the maintenances that work on a node with a pod of that
// namespace.
func (w *Watcher) ruleChanged(old, new *v1alpha1.DrainRule, _ bool) {
	if old == nil && new == nil {
		return
	}
	r := newest(old, new)
	w.maintained.rule(ruleFact(r), new != nil)
	l := w.lead.Load()
	if l == nil || old != nil && new != nil && reflect.DeepEqual(old.Spec, new.Spec) {
		return
	}
	l.maintaining.namespaceChanged(r.Namespace, l.fact("DrainRule", r))
}

// clusterRuleChanged is called by the informer of ClusterDrainRules. It concerns the maintenances that work on a node.
func (w *Watcher) clusterRuleChanged(old, new *v1alpha1.ClusterDrainRule, _ bool) {
	if old == nil && new == nil {
		return
	}
	r := newest(old, new)
	w.maintained.rule(clusterRuleFact(r), new != nil)
	l := w.lead.Load()
	if l == nil || old != nil && new != nil && reflect.DeepEqual(old.Spec, new.Spec) {
		return
	}
	l.maintaining.wake(l.maintaining.in.atWork(), l.fact("ClusterDrainRule", r))
}

// namespaceChanged wakes the maintenances that work on a node with a pod of the namespace.
func (m *maintaining) namespaceChanged(namespace string, w wake) {
	if len(m.in.atWork()) == 0 {
		return
	}
	nodes := map[string]bool{}
	for _, p := range m.l.w.cluster.PodsInNamespace(namespace) {
		nodes[p.Spec.NodeName] = true
	}
	m.wake(m.in.workingOn(keysOf(nodes)...), w)
}

// nodeChanged wakes the maintenances that a change of a node concerns, and those that are about it when the marks of other
// tools have changed.
func (m *maintaining) nodeChanged(old, new *corev1.Node, concerned []string) {
	if len(concerned) == 0 && old != nil && new != nil {
		about, p := m.in.aboutNode(new.Name), m.l.scopes.plan
		if len(about) > 0 && !reflect.DeepEqual(p.locks(old), p.locks(new)) {
			concerned = about
		}
	}
	if len(concerned) > 0 {
		m.wake(concerned, m.l.fact("Node", newest(old, new)))
	}
}

// podChanged wakes the maintenances that work on the node of a pod, and forgets what was said about one that is gone.
func (m *maintaining) podChanged(old, new *corev1.Pod) {
	if old != nil && (new == nil || new.UID != old.UID) {
		m.tried.forget(old.UID)
	}
	var nodes []string
	for _, p := range []*corev1.Pod{old, new} {
		if p != nil && p.Spec.NodeName != "" {
			nodes = append(nodes, p.Spec.NodeName)
		}
	}
	names := m.in.workingOn(nodes...)
	if len(names) == 0 || old != nil && new != nil && unchangedForMaintenance(old, new) {
		return
	}
	m.wake(names, m.l.fact("Pod", newest(old, new)))
}

// unchangedForMaintenance says whether nothing of a pod has changed that a maintenance looks at.
func unchangedForMaintenance(a, b *corev1.Pod) bool {
	return a.UID == b.UID && a.Spec.NodeName == b.Spec.NodeName && schemas.Ended(a) == schemas.Ended(b) &&
		a.DeletionTimestamp.Equal(b.DeletionTimestamp) && slices.Equal(a.Finalizers, b.Finalizers) &&
		maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) &&
		reflect.DeepEqual(a.OwnerReferences, b.OwnerReferences)
}

// verdict takes note of what became of a pod on a node that is worked on, and says whether its maintenance is to try again
// after a delay although the verdict ends the intent: nothing else may come that leads there.
func (m *maintaining) verdict(v schemas.Verdict, e schemas.Event) (again bool) {
	ref, now := v.Intent.Pod, m.l.w.now()
	p := boundPod(m.l.w.cluster, ref.String())
	if p == nil || p.UID != ref.UID {
		return false
	}
	names := m.in.workingOn(p.Spec.NodeName)
	if len(names) == 0 {
		return false
	}
	if m.tried.note(v, now) {
		e.Data = nil
		m.wake(names, wake{event: e, at: now.Add(verdictSettle), cause: schemas.Cause{
			Kind: schemas.CauseRetry, Event: e.ID, Time: now.UTC(),
			Object: &schemas.ObjectRef{Kind: "Pod", Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID},
		}})
	}
	if p := boundPod(m.l.w.cluster, ref.String()); p == nil || p.UID != ref.UID { // it went meanwhile
		m.tried.forget(ref.UID)
		return false
	}
	if v.Strategy != schemas.MaintenanceStrategy || v.Outcome != schemas.Rejected && v.Outcome != schemas.Failed {
		return false
	}
	switch v.Reason {
	case schemas.ReasonPodGone, schemas.ReasonPodTerminating, schemas.ReasonPodMoved, schemas.ReasonPodEnded:
		return false
	}
	return true
}
