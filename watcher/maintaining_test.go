package watcher

import (
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/maintenance"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/schematest"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// site is a watcher that leads over a cluster which a test changes.
type site struct {
	*driven
	w    *Watcher
	out  *collected
	keep map[string]*v1alpha1.NodeMaintenance
	version
}

// version counts resource versions.
type version int

func (v *version) next() string {
	*v++
	return strconv.Itoa(int(*v))
}

// newSite has the objects, in which no watcher leads yet.
func newSite(t *testing.T, objects ...metav1.Object) *site {
	t.Helper()
	plan := mustPlan(t, policy.Policy{})
	usable := &usableNodes{plan: plan, enough: 2}
	w := testWatcher(scopes{plan: plan, usable: usable}, nil)
	w.cluster = offline(t)
	w.maintained.known.Store(true)
	s := &site{driven: drive(t, w), w: w, out: &collected{}, keep: map[string]*v1alpha1.NodeMaintenance{}}
	w.config.Bus = s.out
	s.set(objects...)
	return s
}

// put makes a maintenance, or another state of it.
func (s *site) put(all ...*v1alpha1.NodeMaintenance) {
	for _, m := range all {
		m = m.DeepCopy()
		m.ResourceVersion = s.next()
		old := s.keep[m.Name]
		s.keep[m.Name] = m
		s.w.maintenanceChanged(old, m, false)
	}
}

// change changes a maintenance.
func (s *site) change(name string, change func(*v1alpha1.NodeMaintenance)) {
	m := s.keep[name].DeepCopy()
	change(m)
	s.put(m)
}

// leads runs the script while the watcher leads. What is evaluated at the beginning is taken away.
func (s *site) leads(script func()) {
	s.t.Helper()
	ctx, end := context.WithCancel(s.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { s.w.leadOn(ctx) })
	synctest.Wait()
	scopesOf(s.t, s.out)
	script()
	end()
	wg.Wait()
}

// wants compares what was evaluated since it was last asked.
func (s *site) wants(what string, want ...string) {
	s.t.Helper()
	if got := scopesOf(s.t, s.out); !slices.Equal(got, want) {
		s.t.Errorf("%s:\ngot  %q\nwant %q", what, got, want)
	}
}

// scope builds the scope of a maintenance now.
func (s *site) scope(name string) schemas.MaintenanceScope {
	s.t.Helper()
	l := s.w.lead.Load()
	if l == nil {
		l = newLead(s.w, s.w.plan.Load(), newOutbox(s.out, s.w.log, s.w.metrics))
	}
	b, err := l.scopes.Build(&pending{evaluation: maintenanceEvaluation(name)}, s.w.now())
	if err != nil {
		s.t.Fatal(err)
	}
	scope, _ := b.scope.(schemas.MaintenanceScope)
	return scope
}

// says hands over a verdict on a pod.
func (s *site) says(p *corev1.Pod, outcome schemas.Outcome, reason schemas.ReasonCode, change ...func(*schemas.Verdict)) {
	s.t.Helper()
	v := schemas.Verdict{
		Outcome: outcome, Reason: reason, Message: "m", Profile: maintenanceProfile, Strategy: schemas.MaintenanceStrategy,
		Scope:  schemas.ScopeRef{Kind: schemas.MaintenanceKind, Key: "kernel"},
		Intent: schemas.Intent{Pod: schemas.PodRef{Namespace: p.Namespace, Name: p.Name, UID: p.UID}, Node: p.Spec.NodeName},
	}
	for _, c := range change {
		c(&v)
	}
	e, err := schemas.NewEvent("/test/actuator", v, time.Now(), schemas.Event{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.out.tell(e)
}

// kernel is a maintenance of the nodes n1 and n2, of which it drains n1.
func kernel(change ...func(*v1alpha1.NodeMaintenance)) *v1alpha1.NodeMaintenance {
	m := &v1alpha1.NodeMaintenance{
		ObjectMeta: metav1.ObjectMeta{Name: "kernel", UID: "uid-kernel", CreationTimestamp: metav1.Unix(1000, 0)},
		Spec: v1alpha1.NodeMaintenanceSpec{
			Nodes: v1alpha1.NodeSet{Names: []string{"n1", "n2"}}, Stage: v1alpha1.Drain, Reason: "a new kernel",
		},
		Status: stages(v1alpha1.Draining, v1alpha1.Waiting),
	}
	for _, c := range change {
		c(m)
	}
	return m
}

// disks is another maintenance, which means the nodes of zone a.
func disks(change ...func(*v1alpha1.NodeMaintenance)) *v1alpha1.NodeMaintenance {
	m := &v1alpha1.NodeMaintenance{
		ObjectMeta: metav1.ObjectMeta{Name: "disks", UID: "uid-disks", CreationTimestamp: metav1.Unix(2000, 0)},
		Spec: v1alpha1.NodeMaintenanceSpec{
			Nodes: v1alpha1.NodeSet{Selector: selecting("zone", "a")}, Stage: v1alpha1.Cordon, Reason: "new disks",
		},
	}
	for _, c := range change {
		c(m)
	}
	return m
}

// stages is a status with the nodes n1, n2 and so on.
func stages(of ...v1alpha1.NodeStage) v1alpha1.NodeMaintenanceStatus {
	var s v1alpha1.NodeMaintenanceStatus
	for i, stage := range of {
		s.Nodes = append(s.Nodes, v1alpha1.NodeStatus{Name: "n" + strconv.Itoa(i+1), Stage: stage})
	}
	return s
}

// machine is a node of a zone, which is ready.
func machine(name, zone string, change ...func(*corev1.Node)) *corev1.Node {
	n := named(name, func(n *corev1.Node) {
		n.UID, n.Labels = types.UID("uid-"+name), map[string]string{"zone": zone}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	})
	for _, c := range change {
		c(n)
	}
	return n
}

// runs is a pod in a namespace on a node.
func runs(namespace, name, node string, change ...func(*corev1.Pod)) *corev1.Pod {
	return placed(name, node, append([]func(*corev1.Pod){func(p *corev1.Pod) { p.Namespace, p.UID = namespace, types.UID("uid-"+name) }},
		change...)...)
}

func annotatedBy(key, value string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		n.Annotations[key] = value
	}
}

func markedBy(t *testing.T, m schemas.CordonMark) func(*corev1.Node) {
	t.Helper()
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return annotatedBy(schemas.AnnotationMaintenance, string(text))
}

func space(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

// sparing protects the pods of one name.
type sparing string

func (s sparing) Protects(p *corev1.Pod, _ time.Time) []schemas.Protection {
	if p.Name != string(s) {
		return nil
	}
	return []schemas.Protection{{Rule: "PodsWithPVC", Detail: "has a volume"}}
}

func TestTheScopeOfAMaintenanceHasWhatItsNextStepsRestOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		controlPlane := func(n *corev1.Node) { n.Labels["node-role.kubernetes.io/control-plane"] = "" }
		mark := schemas.CordonMark{Name: "kernel", UID: "uid-kernel", CordonedBefore: true, At: now.UTC()}
		before := schemas.CordonMark{Name: "kernel", UID: "an earlier one", At: now.UTC()}
		signed := corev1.NodeCondition{
			Type: corev1.NodeMaintenanceInProgress, Status: corev1.ConditionTrue, Reason: maintenance.AdminRequested,
			Message: "a new kernel" + maintenance.Signature("kernel"),
		}
		n1 := machine("n1", "a", markedBy(t, mark), annotatedBy("example.com/other", "left out"), func(n *corev1.Node) {
			n.Spec.Unschedulable = true
			n.Spec.Taints = []corev1.Taint{{Key: "medik8s.io/drain", Effect: corev1.TaintEffectNoSchedule}}
			n.Status.Capacity = corev1.ResourceList{corev1.ResourcePods: {}}
		})
		n2 := machine("n2", "b", controlPlane, annotatedBy("example.com/storage", "healthy"))
		n3 := machine("n3", "a", controlPlane, func(n *corev1.Node) { n.Spec.Unschedulable = true })
		n4 := machine("n4", "b", func(n *corev1.Node) { n.Status.Conditions = append(n.Status.Conditions, signed) })
		n5 := machine("n5", "b", markedBy(t, before))
		moving, held, spared := runs("web", "b", "n1"), runs("web", "a", "n1"), runs("db", "c", "n1", func(p *corev1.Pod) {
			p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x", "example.com/other": "left out"}
			p.Spec.Containers = []corev1.Container{{Name: "left out"}}
		})
		s := newSite(t, n1, n2, n3, n4, n5, space("web", map[string]string{"team": "shop"}), space("db", nil), moving, held, spared,
			runs("web", "ended", "n1", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), runs("web", "waits", "n2"))
		s.w.plan.Load().maintenance = sparing("c")
		gate := v1alpha1.Gate{Name: "storage", Annotation: &v1alpha1.AnnotationGate{Key: "example.com/storage", Value: "healthy"}}
		opens := metav1.NewTime(now.Add(time.Hour))
		mine := kernel(func(m *v1alpha1.NodeMaintenance) {
			m.Spec.Gates, m.Spec.Window = []v1alpha1.Gate{gate}, &v1alpha1.Window{Start: &opens}
			m.Status.Nodes = append(m.Status.Nodes, v1alpha1.NodeStatus{Name: "n3", Stage: v1alpha1.Returning},
				v1alpha1.NodeStatus{Name: "left", Stage: v1alpha1.Gone})
		})
		s.put(mine, disks(func(m *v1alpha1.NodeMaintenance) { m.Status = stages(v1alpha1.Waiting) }), disks(func(m *v1alpha1.NodeMaintenance) {
			m.Name, m.Spec.Nodes = "elsewhere", v1alpha1.NodeSet{Names: []string{"n5"}}
		}))
		rule := v1alpha1.DrainRuleSpec{Behavior: v1alpha1.SkipPods}
		for _, at := range []string{"web/z", "web/y", "db/x", "other/w"} {
			namespace, name := at[:len(at)-2], at[len(at)-1:]
			s.w.ruleChanged(nil, &v1alpha1.DrainRule{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: rule}, false)
		}
		everywhere := v1alpha1.ClusterDrainRuleSpec{DrainRuleSpec: rule, Namespaces: selecting("team", "shop")}
		s.w.clusterRuleChanged(nil, &v1alpha1.ClusterDrainRule{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: everywhere}, false)

		s.leads(func() {
			s.says(held, schemas.Deferred, schemas.ReasonDisruptionBudget, func(v *schemas.Verdict) {
				v.Blockers = []schemas.ObjectRef{{Kind: "PodDisruptionBudget", Namespace: "web", Name: "a"}}
			})
			s.says(moving, schemas.Evicted, schemas.ReasonEvictionAccepted, func(v *schemas.Verdict) { v.Strategy = "PodLifeTime" })
			ruleFactOf := func(namespace, name string) schemas.DrainRuleFact {
				return schemas.DrainRuleFact{Namespace: namespace, Name: name, Spec: v1alpha1.ClusterDrainRuleSpec{DrainRuleSpec: rule}}
			}
			closed := []schemas.GateFact{{Name: "storage", Message: `the node has no annotation example.com/storage, want "healthy"`}}
			want := schemas.MaintenanceScope{
				ScopeHead: schemas.ScopeHead{
					Kind: schemas.MaintenanceKind, Key: "kernel", Profile: "default", Strategy: schemas.MaintenanceStrategy,
					Now: time.Now().UTC(), Since: time.Now().UTC(),
				},
				Maintenance: *s.keep["kernel"],
				Nodes: []schemas.MaintainedNode{
					{
						Node: slimNode(n1, mine), Meant: true, Mark: &mark, Gates: closed,
						Locks: []schemas.NodeLock{{Tool: "medik8s", Sign: "the taint medik8s.io/drain"}},
						Pods: []schemas.MaintainedPod{
							{ScopedPod: schemas.ScopedPod{Pod: slimPod(spared), Protected: sparing("c").Protects(spared, now)}},
							{ScopedPod: schemas.ScopedPod{Pod: slimPod(held)}, Held: &schemas.PodHeld{
								Outcome: schemas.Deferred, Reason: schemas.ReasonDisruptionBudget, Message: "m", Since: time.Now().UTC(),
								Blockers: []schemas.ObjectRef{{Kind: "PodDisruptionBudget", Namespace: "web", Name: "a"}},
							}},
							{ScopedPod: schemas.ScopedPod{Pod: slimPod(moving)}, Moving: true},
						},
					},
					{
						Node: slimNode(n2, mine), Meant: true, ControlPlane: true,
						Gates: []schemas.GateFact{{Name: "storage", Open: true}},
					},
					{Node: slimNode(n3, mine), ControlPlane: true, Gates: closed},
					{Node: slimNode(n4, mine), Gates: closed},
				},
				Cluster: schemas.ClusterFacts{Nodes: 5, ControlPlane: 2, ControlPlaneReady: 1},
				Others: []schemas.OtherMaintenance{{
					Name: "disks", Stage: v1alpha1.Cordon, Since: time.Unix(2000, 0).UTC(),
					Nodes: map[string]v1alpha1.NodeStage{"n1": v1alpha1.Waiting, "n3": ""},
				}},
				Rules: []schemas.DrainRuleFact{
					ruleFactOf("db", "x"), ruleFactOf("web", "y"), ruleFactOf("web", "z"), {Name: "v", Spec: everywhere},
				},
				Namespaces: map[string]map[string]string{"db": nil, "web": {"team": "shop"}},
				NextWindow: opens.UTC(),
			}
			got := s.scope("kernel")
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got  %s\nwant %s", inJSON(t, got), inJSON(t, want))
			}
			if a, b := got.Nodes[0].Node.Annotations, got.Nodes[0].Node.Status.Capacity; len(a) != 1 || b != nil {
				t.Errorf("the node has more than a maintenance looks at: %v, %v", a, b)
			}
			if p := got.Nodes[0].Pods[0].Pod; len(p.Annotations) != 1 || p.Spec.Containers != nil {
				t.Errorf("the pod has more than a maintenance looks at: %+v", p)
			}
			got.Causes = []schemas.Cause{{Kind: schemas.CauseResync, Time: time.Now().UTC()}}
			e, err := schemas.NewEvent("/test/watcher", got, time.Now(), schemas.Event{})
			if err != nil {
				t.Fatal(err)
			}
			schematest.Check(t, e)
		})
	})
}

func inJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestAMaintenanceIsEvaluatedWhenWhatItsScopeRestsOnChangesAndNotOtherwise(t *testing.T) {
	n1, n2, n3 := machine("n1", "a"), machine("n2", "b"), machine("n3", "c")
	p := runs("web", "p", "n1")
	with := func(n *corev1.Node, change func(*corev1.Node)) *corev1.Node {
		n = n.DeepCopy()
		change(n)
		return n
	}
	withPod := func(change func(*corev1.Pod)) *corev1.Pod {
		p := p.DeepCopy()
		change(p)
		return p
	}
	rule := func(behaviour v1alpha1.Behaviour) *v1alpha1.DrainRule {
		return &v1alpha1.DrainRule{
			ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "r"}, Spec: v1alpha1.DrainRuleSpec{Behavior: behaviour},
		}
	}
	everywhere := &v1alpha1.ClusterDrainRule{ObjectMeta: metav1.ObjectMeta{Name: "r"}}
	const mine = "Maintenance kernel: fact "
	now := metav1.Unix(3000, 0)
	for _, c := range []struct {
		name   string
		change func(*site)
		want   []string
	}{
		{"its spec", func(s *site) {
			s.change("kernel", func(m *v1alpha1.NodeMaintenance) { m.Spec.Reason = "another one" })
		}, []string{mine + "nodemaintenance/kernel"}},
		{"what it wants, which another maintenance sees too", func(s *site) {
			s.change("kernel", func(m *v1alpha1.NodeMaintenance) { m.Spec.Stage = v1alpha1.Complete })
		}, []string{"Maintenance disks: fact nodemaintenance/kernel", mine + "nodemaintenance/kernel"}},
		{
			"its status, which another maintenance sees too",
			func(s *site) {
				s.change("kernel", func(m *v1alpha1.NodeMaintenance) { m.Status.Nodes[0].Stage = v1alpha1.IsDrained })
			},
			[]string{"Maintenance disks: fact nodemaintenance/kernel", mine + "nodemaintenance/kernel"},
		},
		{
			"its status in a way that others do not see",
			func(s *site) { s.change("kernel", func(m *v1alpha1.NodeMaintenance) { m.Status.Summary.PodsLeft = 7 }) },
			[]string{mine + "nodemaintenance/kernel"},
		},
		{
			"the status of a node that others do not mean",
			func(s *site) {
				s.change("kernel", func(m *v1alpha1.NodeMaintenance) { m.Status.Nodes[1].Stage = v1alpha1.Claimed })
			},
			[]string{mine + "nodemaintenance/kernel"},
		},
		{
			"that it is deleted", func(s *site) { s.change("kernel", func(m *v1alpha1.NodeMaintenance) { m.DeletionTimestamp = &now }) },
			[]string{"Maintenance disks: fact nodemaintenance/kernel", mine + "nodemaintenance/kernel"},
		},
		{"that it is gone concerns the others", func(s *site) {
			s.w.maintenanceChanged(s.keep["kernel"], nil, false)
		}, []string{"Maintenance disks: fact nodemaintenance/kernel"}},
		{"the same once more does not", func(s *site) {
			s.w.maintenanceChanged(s.keep["kernel"], s.keep["kernel"], false)
		}, nil},
		{"another one that means a node of it", func(s *site) {
			s.put(disks(func(m *v1alpha1.NodeMaintenance) {
				m.Name, m.Spec.Nodes = "third", v1alpha1.NodeSet{Names: []string{"n2", "n3"}}
			}))
		}, []string{mine + "nodemaintenance/third", "Maintenance third: fact nodemaintenance/third"}},
		{"another one that means no node of it does not", func(s *site) {
			s.put(disks(func(m *v1alpha1.NodeMaintenance) {
				m.Name, m.Spec.Nodes = "third", v1alpha1.NodeSet{Names: []string{"n3"}}
			}))
		}, []string{"Maintenance third: fact nodemaintenance/third"}},

		{"the labels of a node", func(s *site) {
			s.set(with(n2, func(n *corev1.Node) { n.Labels["rack"] = "7" }))
		}, []string{mine + "node/n2"}},
		{"a node that another one does not mean any more", func(s *site) {
			s.set(with(n1, func(n *corev1.Node) { n.Labels["zone"] = "b" }))
		}, []string{"Maintenance disks: fact node/n1", mine + "node/n1"}},
		{"a node that another one means from now on", func(s *site) {
			s.set(with(n2, func(n *corev1.Node) { n.Labels["zone"] = "a" }))
		}, []string{"Maintenance disks: fact node/n2", mine + "node/n2"}},
		{"its taints", func(s *site) { s.set(with(n2, taintedBy("a"))) }, []string{mine + "node/n2"}},
		{"that it is cordoned", func(s *site) {
			s.set(with(n2, func(n *corev1.Node) { n.Spec.Unschedulable = true }))
		}, []string{mine + "node/n2"}},
		{"that it is not ready", func(s *site) {
			s.set(with(n2, func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }))
		}, []string{mine + "node/n2"}},
		{"its mark", func(s *site) { s.set(with(n2, annotatedBy(schemas.AnnotationMaintenance, "{}"))) }, []string{mine + "node/n2"}},
		{"that the work on it is done", func(s *site) {
			s.set(with(n2, annotatedBy(schemas.AnnotationMaintained, "kernel")))
		}, []string{mine + "node/n2"}},
		{"an annotation of a gate", func(s *site) { s.set(with(n2, annotatedBy("example.com/gate", "x"))) }, []string{mine + "node/n2"}},
		{"the mark of another tool", func(s *site) { s.set(with(n2, rebooting)) }, []string{mine + "node/n2"}},
		{"any other annotation does not", func(s *site) { s.set(with(n2, annotatedBy("example.com/other", "x"))) }, nil},
		{"what a node can hold does not", func(s *site) {
			s.set(with(n2, func(n *corev1.Node) { n.Status.Capacity = corev1.ResourceList{corev1.ResourcePods: {}} }))
		}, nil},
		{"a node that it does not mean does not", func(s *site) { s.set(with(n3, taintedBy("a"))) }, nil},
		{"a node of the control plane that is not ready concerns all", func(s *site) {
			s.set(with(n3, func(n *corev1.Node) { n.Labels["node-role.kubernetes.io/control-plane"] = "" }))
		}, []string{"Maintenance disks: fact node/n3", mine + "node/n3"}},
		{"a node that joins concerns all", func(s *site) { s.set(machine("n4", "d")) }, []string{"Maintenance disks: fact node/n4", mine + "node/n4"}},
		{"a node that leaves concerns all", func(s *site) { s.remove(n3) }, []string{"Maintenance disks: fact node/n3", mine + "node/n3"}},
		{"a node that was made anew under its name concerns all", func(s *site) {
			s.set(with(n2, func(n *corev1.Node) { n.UID = "new" }))
		}, []string{"Maintenance disks: fact node/n2", mine + "node/n2"}},

		{"a pod that comes", func(s *site) { s.set(runs("web", "q", "n1")) }, []string{mine + "pod/web/q"}},
		{"a pod that goes", func(s *site) { s.remove(p) }, []string{mine + "pod/web/p"}},
		{"a pod that starts to terminate", func(s *site) {
			s.set(withPod(func(p *corev1.Pod) { p.DeletionTimestamp = &now }))
		}, []string{mine + "pod/web/p"}},
		{"a pod that ends", func(s *site) {
			s.set(withPod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }))
		}, []string{mine + "pod/web/p"}},
		{"the labels of a pod", func(s *site) {
			s.set(withPod(func(p *corev1.Pod) { p.Labels = map[string]string{v1alpha1.LabelDrain: "skip"} }))
		}, []string{mine + "pod/web/p"}},
		{"the readiness of a pod does not", func(s *site) {
			s.set(withPod(func(p *corev1.Pod) { p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady}} }))
		}, nil},
		{"a pod on a node that is not worked on does not", func(s *site) { s.set(runs("web", "q", "n2")) }, nil},

		{"a rule of a namespace with a pod", func(s *site) { s.w.ruleChanged(nil, rule(v1alpha1.SkipPods), false) }, []string{mine + "drainrule/web/r"}},
		{"the same rule does not", func(s *site) {
			s.w.ruleChanged(rule(v1alpha1.SkipPods), rule(v1alpha1.SkipPods), false)
		}, nil},
		{"another rule", func(s *site) {
			s.w.ruleChanged(rule(v1alpha1.SkipPods), rule(v1alpha1.DrainPods), false)
		}, []string{mine + "drainrule/web/r"}},
		{"a rule that goes", func(s *site) { s.w.ruleChanged(rule(v1alpha1.SkipPods), nil, false) }, []string{mine + "drainrule/web/r"}},
		{"a rule of a namespace without one does not", func(s *site) {
			r := rule(v1alpha1.SkipPods)
			r.Namespace = "db"
			s.w.ruleChanged(nil, r, false)
		}, nil},
		{"a rule of the cluster", func(s *site) { s.w.clusterRuleChanged(nil, everywhere, false) }, []string{mine + "clusterdrainrule/r"}},
		{"an object that cannot be read does not", func(s *site) {
			s.w.clusterRuleChanged(nil, nil, false)
			s.w.ruleChanged(nil, nil, false)
			s.w.maintenanceChanged(nil, nil, false)
		}, nil},
		{"the labels of a namespace with a pod", func(s *site) {
			s.set(space("web", map[string]string{"team": "shop"}))
		}, []string{mine + "namespace/web"}},
		{"those of another do not", func(s *site) { s.set(space("db", map[string]string{"team": "shop"})) }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, n1.DeepCopy(), n2.DeepCopy(), n3.DeepCopy(), p.DeepCopy(), runs("db", "r", "n2"), space("web", nil), space("db", nil))
				s.put(disks(), kernel(func(m *v1alpha1.NodeMaintenance) {
					m.Spec.Gates = []v1alpha1.Gate{{Name: "g", Annotation: &v1alpha1.AnnotationGate{Key: "example.com/gate", Value: "y"}}}
				}))
				s.leads(func() {
					c.change(s)
					s.wants(c.name, c.want...)
					time.Sleep(5 * time.Minute)
					s.wants("without another change")
				})
			})
		})
	}
}

func TestAMaintenanceIsEvaluatedWhenTheTimeComes(t *testing.T) {
	in := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: time.Now().Add(d)} }
	for _, c := range []struct {
		name   string
		change func(*v1alpha1.NodeMaintenance)
		pods   func(*corev1.Pod)
		at     time.Duration
	}{
		{name: "its window opens", at: time.Hour, change: func(m *v1alpha1.NodeMaintenance) {
			m.Spec.Window = &v1alpha1.Window{Start: in(time.Hour)}
		}},
		{name: "its window closes", at: 2 * time.Hour / 3, change: func(m *v1alpha1.NodeMaintenance) {
			m.Spec.Window = &v1alpha1.Window{End: in(2 * time.Hour / 3)}
		}},
		{name: "the deadline of a node passes", at: 20 * time.Minute, change: func(m *v1alpha1.NodeMaintenance) {
			m.Spec.Deadline = &metav1.Duration{Duration: 30 * time.Minute}
			m.Status.Stages = []v1alpha1.StageTime{{Stage: v1alpha1.Drain, Start: *in(-time.Hour)}}
			m.Status.Nodes[0].Start = in(-10 * time.Minute)
		}},
		{
			name: "a pod was to be gone a minute ago", at: maintenance.Grace + 30*time.Second, change: func(*v1alpha1.NodeMaintenance) {},
			pods: func(p *corev1.Pod) { p.DeletionTimestamp = in(30 * time.Second) },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := runs("web", "p", "n1")
				if c.pods != nil {
					c.pods(p)
				}
				s := newSite(t, machine("n1", "a"), machine("n2", "b"), p)
				s.w.config.Resync = 24 * time.Hour
				start := time.Now()
				s.put(kernel(c.change))
				s.leads(func() {
					time.Sleep(c.at - time.Since(start) - 20*time.Millisecond)
					s.wants("a moment before")
					s.wants("then", "Maintenance kernel: due")
				})
			})
		})
	}
}

func TestVerdictsOnThePodsOfAMaintenance(t *testing.T) {
	by := func(name string) func(*schemas.Verdict) {
		return func(v *schemas.Verdict) {
			v.Message, v.Blockers = name, []schemas.ObjectRef{{Kind: "Deployment", Namespace: "web", Name: name}}
		}
	}
	const retry = "Maintenance kernel: retry pod/web/p"
	p := runs("web", "p", "n1")
	over := func(t *testing.T, script func(s *site)) {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, machine("n1", "a"), machine("n2", "b"), p.DeepCopy(), runs("web", "q", "n2"))
			s.put(kernel())
			s.leads(func() { script(s) })
		})
	}
	t.Run("what holds a pod is news once, and the pod is tried again after growing delays", func(t *testing.T) {
		over(t, func(s *site) {
			s.says(p, schemas.Deferred, schemas.ReasonMovingWorkload, by("a"))
			s.wants("at once")
			time.Sleep(verdictSettle)
			s.wants("after a moment", retry+" retry pod/web/p")
			since := s.scope("kernel").Nodes[0].Pods[0].Held.Since
			s.says(p, schemas.Deferred, schemas.ReasonMovingWorkload, by("a"), func(v *schemas.Verdict) { v.Message = "other words" })
			time.Sleep(2 * verdictSettle)
			s.wants("the same is no news")
			want := &schemas.PodHeld{
				Outcome: schemas.Deferred, Reason: schemas.ReasonMovingWorkload, Message: "other words", Since: since,
				Blockers: []schemas.ObjectRef{{Kind: "Deployment", Namespace: "web", Name: "a"}},
			}
			if got := s.scope("kernel").Nodes[0].Pods[0].Held; !reflect.DeepEqual(got, want) {
				s.t.Errorf("what holds it: got %+v, want %+v", got, want)
			}
			time.Sleep(2 * firstRetry)
			s.wants("the delay after the second time", retry)
			s.says(p, schemas.Deferred, schemas.ReasonMovingWorkload, by("b"))
			time.Sleep(2 * verdictSettle)
			s.wants("what else holds it is", retry+" retry pod/web/p")
		})
	})
	t.Run("a pod that was refused for good is tried again after a delay", func(t *testing.T) {
		over(t, func(s *site) {
			s.says(p, schemas.Failed, schemas.ReasonForbidden)
			time.Sleep(2 * verdictSettle)
			s.wants("it is news", retry+" retry pod/web/p")
			s.says(p, schemas.Failed, schemas.ReasonForbidden)
			time.Sleep(2*firstRetry + time.Second)
			s.wants("the delay after the second time", retry)
		})
	})
	t.Run("a pod that moves is held by nothing, and what has moved moves no more", func(t *testing.T) {
		over(t, func(s *site) {
			s.says(p, schemas.Deferred, schemas.ReasonLimitTotal)
			s.says(p, schemas.Restarted, schemas.ReasonSurgeAccepted)
			time.Sleep(2 * verdictSettle)
			s.wants("it moves", retry+" retry pod/web/p retry pod/web/p")
			if got, want := s.scope("kernel").Nodes[0].Pods[0], (schemas.MaintainedPod{
				ScopedPod: schemas.ScopedPod{Pod: slimPod(p)}, Moving: true,
			}); !reflect.DeepEqual(got, want) {
				s.t.Errorf("got %+v, want %+v", got, want)
			}
			s.says(p, schemas.Settled, schemas.ReasonTakenBack)
			time.Sleep(2 * verdictSettle)
			s.wants("it was taken back", retry+" retry pod/web/p")
			if s.scope("kernel").Nodes[0].Pods[0].Moving {
				s.t.Error("it moves still")
			}
		})
	})
	t.Run("what another strategy says is no news unless it moves the pod", func(t *testing.T) {
		over(t, func(s *site) {
			other := func(v *schemas.Verdict) {
				v.Strategy, v.Scope = "s", schemas.ScopeRef{Kind: schemas.NodeKind, Key: "n1"}
			}
			s.says(p, schemas.Rejected, schemas.ReasonProtected, other)
			time.Sleep(2 * verdictSettle)
			s.wants("protected there")
			s.says(p, schemas.Evicted, schemas.ReasonEvictionAccepted, other, func(v *schemas.Verdict) { v.DryRun = true })
			time.Sleep(2 * verdictSettle)
			s.wants("a dry run")
			s.says(p, schemas.Evicted, schemas.ReasonEvictionAccepted, other)
			time.Sleep(2 * verdictSettle)
			s.wants("it moves", retry)
		})
	})
	t.Run("nothing is remembered of a pod that is gone, or on a node that is not worked on", func(t *testing.T) {
		over(t, func(s *site) {
			s.says(p, schemas.Deferred, schemas.ReasonLimitTotal)
			s.remove(p)
			s.says(p, schemas.Deferred, schemas.ReasonLimitNode)
			s.says(runs("web", "q", "n2"), schemas.Evicted, schemas.ReasonEvictionAccepted)
			if got := s.w.lead.Load().maintaining.tried.pods; len(got) > 0 {
				s.t.Errorf("got %v", got)
			}
		})
	})
}

func TestNoMaintenanceIsEvaluatedBeforeAllRulesAreKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, machine("n1", "a"), machine("n2", "b"))
		s.w.maintained.known.Store(false)
		s.put(kernel())
		s.leads(func() {
			s.put(disks())
			s.set(machine("n3", "a"))
			s.wants("before")
			s.w.nowKnown()
			s.wants("then", "Maintenance disks: resync", "Maintenance kernel: resync")
			s.w.Resync()
			s.wants("a resync", "Maintenance disks: resync", "Maintenance kernel: resync")
			if err := s.w.SetPolicy(policy.Policy{}); err != nil {
				t.Fatal(err)
			}
			s.wants("another policy", "Maintenance disks: resync", "Maintenance kernel: resync")
		})
	})
}

func TestWhatSelectsNodesIsKnownWhateverComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.put(kernel(), disks())
		s.set(machine("n2", "a"), machine("n1", "b"))
		names := func(key string) []string {
			var list []string
			for _, n := range s.scope(key).Nodes {
				list = append(list, n.Node.Name)
			}
			return list
		}
		got := map[string][]string{"kernel": names("kernel"), "disks": names("disks")}
		if want := map[string][]string{"kernel": {"n1", "n2"}, "disks": {"n2"}}; !maps.EqualFunc(got, want, slices.Equal) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}
