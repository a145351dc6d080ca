package maintenance

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// facts reads everything that the decision about a maintenance depends on.
func (s *session) facts(m *v1alpha1.NodeMaintenance, now time.Time) plan.Facts {
	f := plan.Facts{
		Now: now, Maintenance: *m, Nodes: []plan.NodeFacts{}, Cluster: plan.ClusterFacts{ControlPlane: map[string]bool{}},
		Namespaces: map[string]map[string]string{},
	}
	open, next, err := plan.Open(m.Spec.Window, m.CreationTimestamp.Time, now)
	if err == nil { // the plan refuses an invalid schedule
		f.InWindow, f.NextWindow = open, next
	}
	queries := map[string]bool{}
	stages, selects, selected := stagesOf(m), plan.Selector(m.Spec.Nodes), 0
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
			listed = listed || selected <= plan.MostNodes+1 // enough to see that they are too many
		}
		if !listed && !plan.Bears(m, n, mark) {
			continue
		}
		node := plan.NodeFacts{Node: *n, Meant: meant, Mark: mark, Locks: locks(n, s.policy.Load().Signals)}
		for _, gate := range m.Spec.Gates {
			node.Gates = append(node.Gates, s.gate(gate, n, gatesMatter(m, stage, meant && f.InWindow), queries))
		}
		if plan.WorkedOn(stage) {
			node.Pods = s.podFacts(n.Name, f)
		}
		f.Nodes = append(f.Nodes, node)
	}
	for _, other := range s.objects.list() {
		if other.Name != m.Name {
			f.Others = append(f.Others, *other)
		}
	}
	f.Rules = s.objects.rulesOf(slices.Sorted(maps.Keys(f.Namespaces)))
	s.gates.want(m.Name, queries)
	return f
}

// podFacts are the pods on a node that have not ended. It adds the labels of their namespaces to the facts.
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
		is := s.pods.of(p.UID)
		list = append(list, plan.PodFacts{
			ScopedPod: schemas.ScopedPod{Pod: *p, Protected: s.policy.Load().Maintenance.Protects(p, f.Now)},
			Held:      is.held, Moving: is.moving,
		})
	}
	return list
}

func stagesOf(m *v1alpha1.NodeMaintenance) map[string]v1alpha1.NodeStage {
	stages := map[string]v1alpha1.NodeStage{}
	for _, n := range m.Status.Nodes {
		stages[n.Name] = n.Stage
	}
	return stages
}

// nodeLocks are the annotations and taints of other tools that drain, restart, or replace nodes. They count with any policy. A key
// that ends in a slash is a prefix.
func nodeLocks() []struct{ tool, annotation, taint string } {
	return []struct{ tool, annotation, taint string }{
		{"kured", "weave.works/kured-reboot-in-progress", ""},
		{"medik8s", "", "medik8s.io/"}, // .../drain, .../remediation, and those of its fencing
		{"Karpenter", "", "karpenter.sh/disrupted"},
		{"Karpenter", "", "karpenter.sh/unregistered"},
		{"Cluster API", "", "node.cluster.x-k8s.io/uninitialized"},
		{"Cluster API", "", "node.cluster.x-k8s.io/outdated-revision"},
	}
}

// locks are the locks of other tools on a node; without any, the opt-out that the policy finds on it.
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

// withoutOwnConditions is the node without the conditions that maintenances set.
func withoutOwnConditions(n *corev1.Node) *corev1.Node {
	own := func(c corev1.NodeCondition) bool { return plan.Said(c, "") }
	if !slices.ContainsFunc(n.Status.Conditions, own) {
		return n
	}
	others := *n
	others.Status.Conditions = slices.DeleteFunc(slices.Clone(n.Status.Conditions), own)
	return &others
}
