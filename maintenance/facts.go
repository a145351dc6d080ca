package maintenance

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// facts gathers what the decision about a maintenance rests on. false: there is no such maintenance.
func (s *session) facts(name string, now time.Time) (plan.Facts, bool) {
	m := s.index.get(name)
	if m == nil {
		return plan.Facts{}, false
	}
	g := gathering{
		session: s, m: m, stages: stagesOf(m), queries: map[string]bool{},
		facts: plan.Facts{Now: now, Maintenance: *m, Nodes: []plan.NodeFacts{}},
	}
	open, next, err := plan.Open(m.Spec.Window, m.CreationTimestamp.Time, now)
	if err == nil { // an invalid schedule is refused by the plan, which reads it too
		g.facts.InWindow, g.facts.NextWindow = open, next
	}
	for _, n := range g.nodes() {
		g.facts.Nodes = append(g.facts.Nodes, g.node(n))
	}
	g.facts.Others = g.others()
	g.addRules()
	s.gates.want(name, g.queries)
	return g.facts, true
}

// gathering is one call of facts.
type gathering struct {
	*session
	m       *v1alpha1.NodeMaintenance
	stages  map[string]v1alpha1.NodeStage // as they are stored
	queries map[string]bool               // whose answers the maintenance waits for
	facts   plan.Facts
}

func stagesOf(m *v1alpha1.NodeMaintenance) map[string]v1alpha1.NodeStage {
	stages := map[string]v1alpha1.NodeStage{}
	for _, n := range m.Status.Nodes {
		stages[n.Name] = n.Stage
	}
	return stages
}

// nodes counts all nodes, and returns those of the maintenance by name. Of too many selected nodes, it returns only as many as show
// that they are too many.
func (g *gathering) nodes() []*corev1.Node {
	all := g.cfg.View.AllNodes(labels.Everything())
	slices.SortFunc(all, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	selects := plan.Selector(g.m.Spec.Nodes)
	var list []*corev1.Node
	selected := 0
	for _, n := range all {
		g.facts.Cluster.Nodes++
		if plan.ControlPlane(n) {
			g.facts.Cluster.ControlPlane++
			if plan.InService(n) {
				g.facts.Cluster.ControlPlaneReady++
			}
		}
		_, stored := g.stages[n.Name]
		if is := selects(n); is {
			selected++
			stored = stored || selected <= plan.MostNodes+1
		}
		if stored || plan.Bears(g.m, n, schemas.MarkOn(n)) {
			list = append(list, n)
		}
	}
	return list
}

func (g *gathering) node(n *corev1.Node) plan.NodeFacts {
	stage := g.stages[n.Name]
	node := plan.NodeFacts{
		Node: *n, Meant: plan.Selects(g.m.Spec.Nodes, n), ControlPlane: plan.ControlPlane(n), Mark: schemas.MarkOn(n),
		Locks: locks(n, g.policy.Load().Signals),
	}
	node.Gates = g.gatesOf(n, stage, node.Meant)
	if !plan.WorkedOn(stage) {
		return node
	}
	pods := g.cfg.View.PodsOnNode(n.Name)
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, p := range pods {
		if schemas.Ended(p) {
			continue
		}
		is := g.pods.of(p.UID)
		node.Pods = append(node.Pods, plan.PodFacts{
			ScopedPod: schemas.ScopedPod{Pod: *p, Protected: g.policy.Load().Maintenance.Protects(p, g.facts.Now)},
			Held:      is.held, Moving: is.moving,
		})
	}
	return node
}

// addRules adds the labels of the namespaces of all pods, and the drain rules that can be about them.
func (g *gathering) addRules() {
	namespaces := map[string]map[string]string{}
	for _, n := range g.facts.Nodes {
		for _, p := range n.Pods {
			if ns := g.cfg.View.Namespace(p.Pod.Namespace); ns != nil {
				namespaces[p.Pod.Namespace] = ns.Labels
			} else {
				namespaces[p.Pod.Namespace] = nil
			}
		}
	}
	if len(namespaces) > 0 {
		g.facts.Namespaces, g.facts.Rules = namespaces, g.index.rulesOf(slices.Sorted(maps.Keys(namespaces)))
	}
}

// others are the other maintenances that concern some of the nodes, and those that hold a node of the control plane if one of the
// nodes is of it.
func (g *gathering) others() (list []plan.Other) {
	controls := slices.ContainsFunc(g.facts.Nodes, func(n plan.NodeFacts) bool { return n.ControlPlane })
	for _, m := range g.index.list() {
		if m.Name == g.m.Name {
			continue
		}
		o := plan.Other{
			Name: m.Name, Stage: m.Spec.Stage, Since: m.CreationTimestamp.UTC(), Refused: refused(m), Nodes: map[string]v1alpha1.NodeStage{},
		}
		if m.DeletionTimestamp != nil {
			o.Stage = v1alpha1.Complete
		}
		stages, selects := stagesOf(m), plan.Selector(m.Spec.Nodes)
		for i := range g.facts.Nodes {
			n := &g.facts.Nodes[i].Node
			if stage, stored := stages[n.Name]; stored || selects(n) {
				o.Nodes[n.Name] = stage
			}
		}
		if controls {
			o.ControlPlane = g.holding(stages)
		}
		if len(o.Nodes)+len(o.ControlPlane) > 0 {
			list = append(list, o)
		}
	}
	return list
}

// holding are the nodes of the control plane that a maintenance with these stages holds. nil: none.
func (g *gathering) holding(stages map[string]v1alpha1.NodeStage) map[string]v1alpha1.NodeStage {
	var list map[string]v1alpha1.NodeStage
	for name, stage := range stages {
		if n := g.cfg.View.Node(name); n == nil || !plan.ControlPlane(n) || !plan.Holds(stage) {
			continue
		}
		if list == nil {
			list = map[string]v1alpha1.NodeStage{}
		}
		list[name] = stage
	}
	return list
}

// refused says whether a maintenance is not accepted, by its status.
func refused(m *v1alpha1.NodeMaintenance) bool {
	return meta.IsStatusConditionFalse(m.Status.Conditions, v1alpha1.Accepted)
}

// nodeLock is evidence that another tool works on a node.
type nodeLock struct {
	tool  string
	where policy.SignalPlace
	key   string // of a taint it may be a prefix, which ends in a slash
}

// nodeLocks hold whatever the policy says: two tools that drain, restart, or replace one node at a time disturb each other.
func nodeLocks() []nodeLock {
	return []nodeLock{
		{"kured", policy.SignalAnnotation, "weave.works/kured-reboot-in-progress"},
		{"medik8s", policy.SignalTaint, "medik8s.io/"}, // .../drain, .../remediation, and those of its fencing
		{"Karpenter", policy.SignalTaint, "karpenter.sh/disrupted"},
		{"Karpenter", policy.SignalTaint, "karpenter.sh/unregistered"},
		{"Cluster API", policy.SignalTaint, "node.cluster.x-k8s.io/uninitialized"},
		{"Cluster API", policy.SignalTaint, "node.cluster.x-k8s.io/outdated-revision"}, // it is about to be replaced
	}
}

// on is what a node shows of the lock. Empty: nothing.
func (l nodeLock) on(n *corev1.Node) string {
	if l.where == policy.SignalAnnotation {
		if _, set := n.Annotations[l.key]; set {
			return "the annotation " + l.key
		}
		return ""
	}
	for i := range n.Spec.Taints {
		key := n.Spec.Taints[i].Key
		if key == l.key || strings.HasSuffix(l.key, "/") && strings.HasPrefix(key, l.key) {
			return "the taint " + key
		}
	}
	return ""
}

// locks are the locks of other tools on a node; without any, those that the policy's table of opt-outs shows. Conditions that
// maintenances set themselves are none.
func locks(n *corev1.Node, signals policy.Signals) []plan.NodeLock {
	var list []plan.NodeLock
	for _, l := range nodeLocks() {
		if sign := l.on(n); sign != "" {
			list = append(list, plan.NodeLock{Tool: l.tool, Sign: sign})
		}
	}
	if len(list) > 0 {
		return list
	}
	if sign := signals.IgnoresNode(withoutOwnConditions(n)); sign != "" {
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
