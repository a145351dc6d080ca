package maintenance

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rehome-dev/rehome/maintenance/apply"
	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// Reconcile takes a maintenance one step further: it withdraws pods that stay, writes the status, then changes nodes,
// then publishes the pods to move. after is the time until the next call without a change, or zero.
func (s *session) Reconcile(ctx context.Context, name string) (after time.Duration, err error) {
	now := s.now()
	if err := s.load(ctx, name); err != nil {
		return 0, err
	}
	m := s.objects.get(name)
	if m == nil {
		return 0, s.end(ctx, name, now)
	}
	facts, queries := s.facts(m, now)
	if s.gates.refresh(ctx, queries) { // that takes time, so read the cluster again
		now = s.now()
		if m = s.objects.get(name); m == nil {
			return 0, s.end(ctx, name, now)
		}
		facts, _ = s.facts(m, now)
	}
	intents, decision := plan.Decide(facts)
	if err := s.withdraw(ctx, name, intents, decision.Moving, now); err != nil {
		return 0, err
	}
	withheld, err := s.withhold(ctx, name, &decision, now)
	if err != nil {
		return 0, err
	}
	r := apply.Result{Before: m}
	if !apply.Applied(m, decision) { // each change of a node reconciles completed maintenances too
		r, err = s.apply.Do(ctx, decision)
	}
	if errors.Is(err, apply.ErrNotLeading) {
		return 0, err // the next leader reports the result
	}
	s.noteRefusals(name, r, now)
	s.report(decision, r, err)
	if !stored(r, err) {
		return 0, err // a newer version of the maintenance enqueues it again
	}
	if announceErr := s.announce(ctx, decision, r); announceErr != nil {
		return 0, errors.Join(err, announceErr)
	}
	err = errors.Join(err, s.publish(ctx, name, movable(intents, r), decision.Moving, now))
	switch {
	case withheld:
		return settleInterval, err
	case decision.Finalizer && (m.Spec.Stage != v1alpha1.Idle || m.DeletionTimestamp != nil):
		return pollInterval, err // for windows, deadlines, gates, and retries
	}
	return 0, err
}

// end withdraws the pods of a removed maintenance, and forgets it.
func (s *session) end(ctx context.Context, name string, now time.Time) error {
	if err := s.withdraw(ctx, name, nil, nil, now); err != nil {
		return err
	}
	s.drains.forget(name)
	return nil
}

// stored reports whether the status of the decision is known to be stored.
func stored(r apply.Result, err error) bool {
	return r.Before != nil && r.Dropped == "" && (r.Wrote || err == nil || len(r.Nodes) > 0)
}

const (
	// refusalFor is how long the refusal to cordon a node counts.
	refusalFor = 10 * time.Minute
	// refusedSince is how long the API server must refuse to set the conditions of a node until the refusal counts: while it
	// starts, it refuses what it allows later.
	refusedSince = 15 * time.Second
)

// noteRefusals records the nodes that the API server refused to cordon, or whose conditions it refused to set. After other
// failures a node may be cordoned.
func (s *session) noteRefusals(name string, r apply.Result, now time.Time) {
	x := s.drains.of(name)
	refused := x.refused
	for _, n := range r.Nodes {
		if _, known := x.conditionsRefused[n.Name]; !n.ConditionsRefused {
			delete(x.conditionsRefused, n.Name)
		} else if !known {
			x.conditionsRefused[n.Name] = now
		}
		var status apierrors.APIStatus
		busy := apierrors.IsConflict(n.Err) || apierrors.IsTooManyRequests(n.Err)
		switch {
		case n.Action != schemas.NodeCordon:
		case n.Outcome == apply.Failed && !busy && errors.As(n.Err, &status) && status.Status().Code/100 == 4:
			refused[n.Name] = now
		case n.Outcome != apply.Failed:
			delete(refused, n.Name)
		}
	}
}

func (s *session) cordonRefused(name, node string, now time.Time) bool {
	at, refused := s.drains.of(name).refused[node]
	return refused && now.Sub(at) < refusalFor
}

func (s *session) conditionsRefused(m, node string, now time.Time) bool {
	first, refused := s.drains.of(m).conditionsRefused[node]
	return refused && now.Sub(first) >= refusedSince
}

// movable drops the intents for nodes that could not be cordoned or given back. Missing conditions block no pod,
// because they only inform users and other programs.
func movable(intents []schemas.Intent, r apply.Result) []schemas.Intent {
	failed := map[string]bool{}
	for _, n := range r.Nodes {
		if n.Outcome == apply.Failed && n.Action != schemas.NodeMark {
			failed[n.Name] = true
		}
	}
	return slices.DeleteFunc(intents, func(i schemas.Intent) bool { return failed[i.Node] })
}

// facts reads everything that the decision about a maintenance depends on, with the last answers to the queries of its
// gates. queries are the queries that matter now, with true for nodes in progress.
func (s *session) facts(m *v1alpha1.NodeMaintenance, now time.Time) (f plan.Facts, queries map[string]bool) {
	f = plan.Facts{
		Now: now, Maintenance: *m, Nodes: []plan.NodeFacts{}, Cluster: plan.ClusterFacts{ControlPlane: map[string]bool{}},
		Namespaces: map[string]map[string]string{},
	}
	open, next, err := plan.Open(m.Spec.Window, m.CreationTimestamp.Time, now)
	if err == nil { // the plan rejects an invalid schedule
		f.InWindow, f.NextWindow = open, next
	}
	queries = map[string]bool{}
	stages, selects, selected := plan.Stages(m.Status), plan.Selector(m.Spec.Nodes), 0
	all := s.cfg.View.AllNodes(labels.Everything())
	slices.SortFunc(all, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	for _, n := range all {
		f.Cluster.Nodes++
		if plan.ControlPlane(n) {
			f.Cluster.ControlPlane[n.Name] = true
			if plan.InService(n) {
				f.Cluster.ControlPlaneReady++
			}
		}
		stage, listed := stages[n.Name]
		meant, mark := selects(n), schemas.MarkOn(n)
		if meant {
			selected++
			listed = listed || selected <= plan.MostNodes+1 // enough to see that there are too many
		}
		if !listed && !plan.OnNode(m, n, mark) {
			continue
		}
		node := plan.NodeFacts{
			Node: *n, Selected: meant, Mark: mark, Locks: locks(n, s.policy.Load().Signals),
			CordonRefused: s.cordonRefused(m.Name, n.Name, now), ConditionsRefused: s.conditionsRefused(m.Name, n.Name, now),
		}
		inProgress := plan.InProgress(stage)
		for _, gate := range m.Spec.Gates {
			node.Gates = append(node.Gates, s.gate(gate, n, gatesMatter(m, stage, meant && f.InWindow), inProgress, queries))
		}
		if inProgress {
			node.Pods = s.podFacts(n.Name, f)
		}
		f.Nodes = append(f.Nodes, node)
	}
	for _, other := range s.objects.list() {
		if other.Name != m.Name {
			f.Others = append(f.Others, *other)
		}
	}
	f.Rules = s.objects.rulesOf(f.Namespaces)
	return f, queries
}

// podFacts returns the pods on a node that have not ended. It adds the labels of their namespaces to the facts.
func (s *session) podFacts(node string, f plan.Facts) (list []plan.PodFacts) {
	pods := s.cfg.View.PodsOnNode(node)
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, p := range pods {
		if schemas.Ended(p) {
			continue
		}
		f.Namespaces[p.Namespace] = nil
		if ns := s.cfg.View.Namespace(p.Namespace); ns != nil {
			f.Namespaces[p.Namespace] = ns.Labels
		}
		facts := plan.PodFacts{ScopedPod: schemas.ScopedPod{
			Pod: *p, Protected: s.policy.Load().Maintenance.Protects(p, f.Now),
		}}
		facts.LastVerdict, facts.Moving = s.drains.lastVerdict(f.Maintenance.Name, p.UID)
		list = append(list, facts)
	}
	return list
}

// nodeLocks returns the annotations and taints of other tools that drain, restart, or replace nodes. They apply under
// any policy. A key that ends in a slash is a prefix.
func nodeLocks() []struct{ tool, annotation, taint string } {
	return []struct{ tool, annotation, taint string }{
		{"kured", "weave.works/kured-reboot-in-progress", ""},
		{"medik8s", "", "medik8s.io/"}, // .../drain, .../remediation, and the fencing taints
		{"Karpenter", "", "karpenter.sh/disrupted"},
		{"Karpenter", "", "karpenter.sh/unregistered"},
		{"Cluster API", "", "node.cluster.x-k8s.io/uninitialized"},
		{"Cluster API", "", "node.cluster.x-k8s.io/outdated-revision"},
	}
}

// locks returns the locks of other tools on a node or, if there are none, the opt-out that the policy finds on it.
func locks(n *corev1.Node, signals policy.Signals) (list []plan.NodeLock) {
	for _, l := range nodeLocks() {
		if _, set := n.Annotations[l.annotation]; set {
			list = append(list, plan.NodeLock{Tool: l.tool, Sign: "the annotation " + l.annotation})
		}
		for _, taint := range n.Spec.Taints {
			if l.taint != "" && (taint.Key == l.taint || strings.HasSuffix(l.taint, "/") && strings.HasPrefix(taint.Key, l.taint)) {
				list = append(list, plan.NodeLock{Tool: l.tool, Sign: "the taint " + taint.Key})
				break
			}
		}
	}
	if sign := signals.IgnoresNode(withoutOwnConditions(n)); sign != "" && len(list) == 0 {
		list = append(list, plan.NodeLock{Tool: "another tool", Sign: sign})
	}
	return list
}

// withoutOwnConditions returns the node without the conditions that maintenances set.
func withoutOwnConditions(n *corev1.Node) *corev1.Node {
	own := func(c corev1.NodeCondition) bool { return plan.SetByMaintenance(c, "") }
	if !slices.ContainsFunc(n.Status.Conditions, own) {
		return n
	}
	others := *n
	others.Status.Conditions = slices.DeleteFunc(slices.Clone(n.Status.Conditions), own)
	return &others
}
