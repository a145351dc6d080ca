package plan

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/kit/expect"
	test "github.com/rehome-dev/rehome/test/kit/functionstest"
)

// rules adds drain rules. WHERE is the namespace of a rule, or empty.
func rules(list ...Rule) option {
	return func(s *Facts) { s.Rules = append(s.Rules, list...) }
}

func aRule(namespace, name string, pods *metav1.LabelSelector, behavior v1alpha1.Behaviour, order int32) Rule {
	return Rule{Namespace: namespace, Name: name, Spec: v1alpha1.ClusterDrainRuleSpec{
		DrainRuleSpec: v1alpha1.DrainRuleSpec{Pods: pods, Behavior: behavior, Order: order},
	}}
}

func tier(value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"tier": value}}
}

func plan(steps ...v1alpha1.DrainStep) option {
	return spec(func(s *v1alpha1.NodeMaintenanceSpec) { s.Plan = steps })
}

// ofDaemon makes DaemonSet the owner of a pod.
func ofDaemon(p *schemas.ScopedPod) {
	yes := true
	p.Pod.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "agent", Controller: &yes}}
	cordonTolerated()(p)
}

func cordonTolerated() test.PodOption {
	return test.Tolerating(corev1.Toleration{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
}

func mirror(p *schemas.ScopedPod) {
	p.Pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
}

// made sets when the pod was made.
func made(hm string) test.PodOption {
	return func(p *schemas.ScopedPod) { p.Pod.CreationTimestamp = *clockAt(hm) }
}

// ending makes a pod terminating until that time.
func ending(hm string) test.PodOption {
	return func(p *schemas.ScopedPod) { p.Pod.DeletionTimestamp = clockAt(hm) }
}

func moving(p PodFacts) PodFacts {
	p.Moving = true
	return p
}

func unreachable(n *NodeFacts) {
	n.Node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}}
}

// draining returns the node a while it is drained, with these pods.
func draining(list ...PodFacts) option {
	return with("a", v1alpha1.Draining, pods(list...))
}

func TestPodMoves(t *testing.T) {
	batch := func(s *Facts) {
		s.Namespaces = map[string]map[string]string{"batch": {"kind": "batch"}}
	}
	ofBatch := aRule("", "jobs", nil, v1alpha1.WaitCompleted, 0)
	ofBatch.Spec.Namespaces = &metav1.LabelSelector{MatchLabels: map[string]string{"kind": "batch"}}
	broken := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
	counts := func(moved, left, blocked, staying int) string {
		return fmt.Sprintf("a Draining moved=%d left=%d blocked=%d staying=%d", moved, left, blocked, staying)
	}
	drained := func(staying int) string {
		return fmt.Sprintf("a Drained drained@now moved=0 left=0 blocked=0 staying=%d", staying)
	}
	ten := int32(10)
	for _, c := range []struct {
		name  string
		scope Facts
		want  []string
	}{
		{"all except DaemonSet pods, by name", scene(draining(one("y"), one("x"), one("agent", ofDaemon))), []string{counts(0, 2, 0, 1), "move web/x from a", "move web/y from a"}},
		{"mirror pods stay", scene(draining(one("x", mirror), one("y", test.OwnedBy("Node", "a")))), []string{drained(2)}},
		{"DaemonSet pods move if a step selects them", scene(plan(v1alpha1.DrainStep{Type: v1alpha1.DaemonSetPods}), draining(one("agent", ofDaemon))), []string{counts(0, 1, 0, 0), "move web/agent from a"}},
		{"once: a returned pod stays", scene(plan(v1alpha1.DrainStep{Type: v1alpha1.DaemonSetPods}), draining(one("agent", ofDaemon, made("11:40")))), []string{drained(1)}},
		{"a pod from before the stage Drain did not return", scene(plan(v1alpha1.DrainStep{Type: v1alpha1.DaemonSetPods}), draining(one("agent", ofDaemon, made("11:40"))), func(s *Facts) {
			s.Maintenance.Status.Stages = []v1alpha1.StageTime{{Stage: v1alpha1.Drain, Start: *clockAt("11:50")}}
		}), []string{counts(0, 1, 0, 0), "move web/agent from a"}},
		{"steps for other pods do not name them", scene(plan(v1alpha1.DrainStep{}), draining(one("agent", ofDaemon))), []string{drained(1)}},
		{"pods that tolerate the cordon stay", scene(draining(one("x", cordonTolerated()), one("y", test.ToleratingKeys("")))), []string{drained(2)}},
		{"unless a rule wants them moved", scene(rules(aRule("web", "r", nil, v1alpha1.DrainPods, 0)), draining(one("x", cordonTolerated()))), []string{counts(0, 1, 0, 0), "move web/x from a"}},
		{"once: the next one stays", scene(rules(aRule("web", "r", nil, v1alpha1.DrainPods, 0)), draining(one("x", cordonTolerated(), made("11:40")))), []string{drained(1)}},
		{"a new pod that does not tolerate it moves", scene(draining(one("x", made("11:40")))), []string{counts(0, 1, 0, 0), "move web/x from a"}},
		{"a rule may let pods stay", scene(rules(aRule("web", "r", tier("db"), v1alpha1.SkipPods, 0)), draining(one("x", test.Labelled("tier", "db")), one("y"))), []string{counts(0, 1, 0, 1), "move web/y from a"}},
		{"and the node is drained with them", scene(rules(aRule("web", "r", tier("db"), v1alpha1.SkipPods, 0)), draining(one("x", test.Labelled("tier", "db")))), []string{drained(1)}},
		{"any owner", scene(plan(v1alpha1.DrainStep{Type: v1alpha1.DaemonSetPods}), rules(aRule("web", "r", tier("db"), v1alpha1.SkipPods, 0)),
			draining(one("agent", ofDaemon, test.Labelled("tier", "db")), one("x", test.Labelled("tier", "db")), one("other", ofDaemon))),
			[]string{counts(0, 1, 0, 2), "move web/other from a"}},
		{"but not pods of another namespace", scene(rules(aRule("shop", "r", nil, v1alpha1.SkipPods, 0)), draining(one("x"))), []string{counts(0, 1, 0, 0), "move web/x from a"}},
		{"a label counts more than a rule", scene(rules(aRule("web", "r", nil, v1alpha1.SkipPods, 0)), draining(one("x", test.Labelled("rehome.dev/drain", "drain")))), []string{counts(0, 1, 0, 0), "move web/x from a"}},
		{"also the label of Cluster API", scene(draining(one("x", test.Labelled("cluster.x-k8s.io/drain", "skip")))), []string{drained(1)}},
		{"a pod that ends by itself delays the node", scene(batch, rules(ofBatch), draining(one("x", test.In("batch")), one("y"))), []string{counts(0, 2, 0, 0), "move web/y from a"}},
		{"the steps of the plan, one after the other", scene(plan(v1alpha1.DrainStep{Pods: tier("front")}, v1alpha1.DrainStep{Pods: tier("db")}),
			draining(one("d", test.Labelled("tier", "db")), one("f", test.Labelled("tier", "front")), one("o"))), []string{counts(0, 3, 0, 0), "move web/f from a"}},
		{"the next when the one before is gone", scene(plan(v1alpha1.DrainStep{Pods: tier("front")}, v1alpha1.DrainStep{Pods: tier("db")}),
			draining(one("d", test.Labelled("tier", "db")), one("o"))), []string{counts(0, 2, 0, 0), "move web/d from a"}},
		{"whatever kind they are of", scene(plan(v1alpha1.DrainStep{Pods: tier("front")}, v1alpha1.DrainStep{Type: v1alpha1.DaemonSetPods}, v1alpha1.DrainStep{Pods: tier("db")}),
			draining(one("agent", ofDaemon), one("d", test.Labelled("tier", "db")), one("f", test.Labelled("tier", "front")))), []string{counts(0, 3, 0, 0), "move web/f from a"}},
		{"DaemonSet pods between others", scene(plan(v1alpha1.DrainStep{Pods: tier("front")}, v1alpha1.DrainStep{Type: v1alpha1.DaemonSetPods}, v1alpha1.DrainStep{Pods: tier("db")}),
			draining(one("agent", ofDaemon), one("d", test.Labelled("tier", "db")))), []string{counts(0, 2, 0, 0), "move web/agent from a"}},
		{"and the others last", scene(plan(v1alpha1.DrainStep{Pods: tier("front")}), draining(one("o"))), []string{counts(0, 1, 0, 0), "move web/o from a"}},
		{"a pod belongs to the first step that selects it", scene(plan(v1alpha1.DrainStep{Priority: &ten}, v1alpha1.DrainStep{Pods: tier("db")}),
			draining(one("d", test.Labelled("tier", "db"), test.Priority(5)), one("o", test.Priority(20)))), []string{counts(0, 2, 0, 0), "move web/d from a"}},
		{"no priority is 0", scene(plan(v1alpha1.DrainStep{Priority: &ten}), draining(one("x"), one("y", test.Priority(11)))), []string{counts(0, 2, 0, 0), "move web/x from a"}},
		{"steps by the labels of namespaces", scene(batch, plan(v1alpha1.DrainStep{Namespaces: ofBatch.Spec.Namespaces}), draining(one("x"), one("y", test.In("batch")))),
			[]string{counts(0, 2, 0, 0), "move batch/y from a"}},
		{"by the order of rules within a step", scene(rules(aRule("web", "early", tier("front"), v1alpha1.DrainPods, -1), aRule("web", "late", tier("db"), v1alpha1.DrainPods, 1)),
			draining(one("d", test.Labelled("tier", "db")), one("f", test.Labelled("tier", "front")), one("o"))), []string{counts(0, 3, 0, 0), "move web/f from a"}},
		{"the plan counts more than the order", scene(plan(v1alpha1.DrainStep{Pods: tier("db")}), rules(aRule("web", "late", tier("db"), v1alpha1.DrainPods, 9)),
			draining(one("d", test.Labelled("tier", "db")), one("o"))), []string{counts(0, 2, 0, 0), "move web/d from a"}},
		{"a wave waits for what ends by itself", scene(batch, rules(ofBatch, aRule("web", "late", nil, v1alpha1.DrainPods, 1)), draining(one("x", test.In("batch")), one("y"))),
			[]string{counts(0, 2, 0, 0)}},
		{"and so does a terminating pod", scene(rules(aRule("web", "late", tier("db"), v1alpha1.DrainPods, 1)), draining(one("x", ending("12:01")), one("d", test.Labelled("tier", "db")))),
			[]string{counts(0, 2, 0, 0)}},
		{"one on its way is not asked again", scene(draining(moving(one("x")), one("y"))), []string{counts(0, 2, 0, 0), "move web/y from a"}},
		{"it is reported a minute late", scene(draining(one("x", ending("11:59")))),
			[]string{counts(0, 1, 1, 0), `  web/x Terminating by "" since 11:59: it is terminating, and should have been gone since 2026-05-04T11:59:00Z`}},
		{"with its finalizer", scene(draining(one("x", ending("11:30"), func(p *schemas.ScopedPod) { p.Pod.Finalizers = []string{"example.com/hold"} }))),
			[]string{counts(0, 1, 1, 0), `  web/x Terminating by "" since 11:30: it is terminating, and should have been gone since 2026-05-04T11:30:00Z; it has the finalizer example.com/hold`}},
		{"on a node that is unreachable it counts as gone", scene(with("a", v1alpha1.Draining, nodeIs(unreachable), pods(one("x", ending("11:59"))))), []string{drained(0)}},
		{"but not before", scene(with("a", v1alpha1.Draining, nodeIs(unreachable), pods(one("x", ending("12:00"))))), []string{counts(0, 1, 0, 0)}},
		{"a pod that is protected is blocked", scene(draining(one("x", test.Protected("PodsWithPVC")), one("y"))),
			[]string{counts(0, 2, 1, 0), `  web/x Protected by "" since 12:00: PodsWithPVC: for the test`, "move web/y from a"}},
		{"even if it is moving already", scene(draining(moving(one("x", test.Protected("Signal"))))),
			[]string{counts(0, 1, 1, 0), `  web/x Protected by "" since 12:00: Signal: for the test`}},
		{"one that could not move is tried again, and says why", scene(draining(held(one("x"), schemas.Deferred, schemas.ReasonDisruptionBudget))),
			[]string{counts(0, 1, 1, 0), `  web/x DisruptionBudget by "poddisruptionbudget/web/one" since 11:45: no`, "move web/x from a"}},
		{"one whose move was undone, too", scene(draining(held(one("x"), schemas.Settled, schemas.ReasonTakenBack))),
			[]string{counts(0, 1, 1, 0), `  web/x TakenBack by "poddisruptionbudget/web/one" since 11:45: no`, "move web/x from a"}},
		{"a verdict that it moves is no reason", scene(draining(held(one("x"), schemas.Rejected, schemas.ReasonMoving))), []string{counts(0, 1, 0, 0), "move web/x from a"}},
		{"nor does a withdrawal", scene(draining(held(one("x"), schemas.Withdrawn, schemas.ReasonSuperseded))), []string{counts(0, 1, 0, 0), "move web/x from a"}},
		{"a rule that cannot be read holds the pods that it may mean", scene(rules(aRule("web", "bad", broken, v1alpha1.SkipPods, 0)), draining(one("x"), one("y", test.In("shop")))),
			[]string{counts(0, 2, 1, 0), `  web/x InvalidRule by "drainrule/web/bad" since 12:00: a selector of the rule is invalid, so the rule may select this pod; fix the selector`, "move shop/y from a"}},
		{"unless they say themselves", scene(rules(aRule("", "bad", broken, v1alpha1.SkipPods, 0)), draining(one("x", test.Labelled("rehome.dev/drain", "drain")))),
			[]string{counts(0, 1, 0, 0), "move web/x from a"}},
		{"pods that left are counted", scene(with("a", v1alpha1.Draining, pods(one("x")), stored(func(n *v1alpha1.NodeStatus) { n.Pods = &v1alpha1.PodCounts{Moved: 2, Left: 4} }))),
			[]string{counts(5, 1, 0, 0), "move web/x from a"}},
		{"but not what stays now", scene(with("a", v1alpha1.Draining, pods(one("x"), one("y", mirror)), stored(func(n *v1alpha1.NodeStatus) { n.Pods = &v1alpha1.PodCounts{Moved: 2, Left: 2} }))),
			[]string{counts(2, 1, 0, 1), "move web/x from a"}},
		{"a cordoned node already reports blocked pods", scene(wants(v1alpha1.Cordon), with("a", v1alpha1.Cordoned, pods(one("x", test.Protected("PodsWithPVC"))))),
			[]string{"a Cordoned moved=0 left=1 blocked=1 staying=0", `  web/x Protected by "" since 12:00: PodsWithPVC: for the test`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			saidAs(t, told(Decide(c.scope)), append(c.want, "finalizer")...)
		})
	}
}

func TestMovesInProgress(t *testing.T) {
	completes := aRule("web", "r", nil, v1alpha1.WaitCompleted, 0)
	late := v1alpha1.DrainStep{Pods: tier("db")}
	x, none := map[types.UID]bool{one("x").Pod.UID: true}, map[types.UID]bool{}
	for _, c := range []struct {
		name  string
		scope Facts
		want  map[types.UID]bool
	}{
		{"go_on", scene(draining(moving(one("x")), one("y"))), x},
		{"go_on_in_a_later_wave", scene(plan(v1alpha1.DrainStep{}, late), draining(moving(one("x", test.Labelled("tier", "db"))), one("y"))), x},
		{"go_on_while_the_pod_terminates", scene(rules(completes), draining(moving(one("x", ending("12:01"))))), x},
		{"end_if_the_pod_gets_the_skip_label", scene(draining(moving(one("x", test.Labelled("rehome.dev/drain", "skip"))), one("y"))), none},
		{"end_if_a_rule_skips_the_pod", scene(rules(aRule("web", "r", tier("db"), v1alpha1.SkipPods, 0)), draining(moving(one("x", test.Labelled("tier", "db"))), one("y"))), none},
		{"end_if_a_rule_waits_for_the_pod", scene(rules(completes), draining(moving(one("x")))), none},
		{"end_if_the_pod_is_protected_by_now", scene(draining(moving(one("x", test.Protected("Signal"))))), none},
		{"end_on_a_node_that_is_held", scene(deadline(v1alpha1.Hold), draining(moving(one("x")))), none},
		{"end_with_the_maintenance", scene(wants(v1alpha1.Complete), draining(moving(one("x")))), none},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, d := Decide(c.scope)
			expect.Equal(t, "moving", d.Moving, c.want)
		})
	}
}

func held(p PodFacts, outcome schemas.Outcome, reason schemas.ReasonCode) PodFacts {
	p.LastVerdict = &LastVerdict{
		Outcome: outcome, Reason: reason, Message: "no", Since: clockAt("11:45").Time,
		Blockers: []schemas.ObjectRef{{Kind: "PodDisruptionBudget", Namespace: "web", Name: "one"}},
	}
	return p
}

func TestIntentCauseAndReason(t *testing.T) {
	intents, _ := Decide(scene(draining(one("x"))))
	want := test.Intent("x", "a", "maintenance kernel drains node a: new kernel")
	if len(intents) != 1 || fmt.Sprint(intents[0]) != fmt.Sprint(want) {
		t.Errorf("got %+v, want %+v", intents, want)
	}
}

func TestUncordonedNodeKeepsPods(t *testing.T) {
	for name, change := range map[string]nodeOption{
		"somebody uncordoned it":     nodeIs(uncordoned),
		"its mark is gone":           nodeIs(func(n *NodeFacts) { n.Mark = nil }),
		"another maintenance has it": cordonedBy("disks"),
	} {
		if intents, _ := Decide(scene(with("a", v1alpha1.Draining, pods(one("x")), change))); intents != nil {
			t.Errorf("%s: got %+v", name, intents)
		}
	}
}

func TestBlockedPodKeepsTime(t *testing.T) {
	scope := scene(with("a", v1alpha1.Draining, pods(one("x", test.Protected("PodsWithPVC"))), stored(func(n *v1alpha1.NodeStatus) {
		n.Blocked = []v1alpha1.BlockedPod{{Namespace: "web", Name: "x", Reason: "Protected", Since: clockAt("11:31")}}
	})))
	for hm, want := range map[string]time.Time{"12:00": clockAt("11:31").Time, "13:00": clockAt("11:31").Time} {
		now(hm)(&scope)
		_, steps := Decide(scope)
		if got := steps.Status.Nodes[0].Blocked[0].Since; !got.Time.Equal(want) {
			t.Errorf("at %s: got %s, want %s", hm, got, want)
		}
	}
}
