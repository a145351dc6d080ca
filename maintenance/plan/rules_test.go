package plan

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

func labelled(pairs ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return m
}

func matching(pairs ...string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: labelled(pairs...)}
}

// broken returns an invalid selector.
func broken() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
}

func TestNodeSelection(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1", Labels: labelled("pool", "web")}}
	for _, c := range []struct {
		name string
		set  v1alpha1.NodeSet
		want bool
	}{
		{"its name is listed", v1alpha1.NodeSet{Names: []string{"worker-2", "worker-1"}}, true},
		{"other names are", v1alpha1.NodeSet{Names: []string{"worker-2"}}, false},
		{"its labels match", v1alpha1.NodeSet{Selector: matching("pool", "web")}, true},
		{"its labels do not", v1alpha1.NodeSet{Selector: matching("pool", "db")}, false},
		{"an empty selector means nothing", v1alpha1.NodeSet{Selector: &metav1.LabelSelector{}}, false},
		{"and so does one that cannot be read", v1alpha1.NodeSet{Selector: broken()}, false},
		{"and nothing at all", v1alpha1.NodeSet{}, false},
	} {
		if got := Selector(c.set)(node); got != c.want {
			t.Errorf("%s: got %v", c.name, got)
		}
	}
}

func TestNodeGates(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: labelled("ceph", "healthy")}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: "BackupDone", Status: corev1.ConditionFalse}}
	condition := func(name string, status metav1.ConditionStatus) v1alpha1.Gate {
		return v1alpha1.Gate{Condition: &v1alpha1.ConditionGate{Type: name, Status: status}}
	}
	annotation := func(key, value string) v1alpha1.Gate {
		return v1alpha1.Gate{Annotation: &v1alpha1.AnnotationGate{Key: key, Value: value}}
	}
	for _, c := range []struct {
		name string
		gate v1alpha1.Gate
		open bool
		why  string
	}{
		{"a condition that is as wanted", condition("BackupDone", "False"), true, ""},
		{"one that is not", condition("BackupDone", "True"), false, "condition BackupDone is False, want True"},
		{"one that the node does not have", condition("Other", "False"), false, "the node has no condition Other, want False"},
		{"an annotation with the value", annotation("ceph", "healthy"), true, ""},
		{"one with another value", annotation("ceph", "ill"), false, `annotation ceph is "healthy", want "ill"`},
		{"an empty value is not a missing one", annotation("none", ""), false, `the node has no annotation none, want ""`},
		{"a query is asked elsewhere", v1alpha1.Gate{Query: "up"}, false, "its query was not sent"},
	} {
		if open, why := GateOpen(c.gate, node); open != c.open || why != c.why {
			t.Errorf("%s: got %v, %q; want %v, %q", c.name, open, why, c.open, c.why)
		}
	}
}

func TestRulePrecedence(t *testing.T) {
	fact := func(namespace, name string, pods, namespaces *metav1.LabelSelector) Rule {
		return Rule{Namespace: namespace, Name: name, Spec: v1alpha1.ClusterDrainRuleSpec{
			DrainRuleSpec: v1alpha1.DrainRuleSpec{Pods: pods}, Namespaces: namespaces,
		}}
	}
	cart := matching("app", "cart")
	for _, c := range []struct {
		name     string
		rules    []Rule
		want     string
		readable bool
	}{
		{"none", nil, "", true},
		{"one of the namespace", []Rule{fact("shop", "a", cart, nil)}, "a", true},
		{"without a selector all pods", []Rule{fact("shop", "a", nil, nil)}, "a", true},
		{"not one of another namespace", []Rule{fact("web", "a", nil, nil)}, "", true},
		{"not one for other pods", []Rule{fact("shop", "a", matching("app", "db"), nil)}, "", true},
		{"the first of several", []Rule{fact("shop", "b", cart, nil), fact("shop", "a", nil, nil)}, "b", true},
		{"a namespace rule before a cluster rule", []Rule{fact("", "a", nil, nil), fact("shop", "b", nil, nil)}, "b", true},
		{"a cluster rule for a namespace with the label", []Rule{fact("", "a", cart, matching("team", "shop"))}, "a", true},
		{"not for one without", []Rule{fact("", "a", cart, matching("team", "web"))}, "", true},
		{"one that cannot be read may be meant", []Rule{fact("shop", "a", broken(), nil), fact("shop", "b", nil, nil)}, "a", false},
		{"unless one before it is", []Rule{fact("shop", "b", nil, nil), fact("", "a", broken(), nil)}, "b", true},
		{"or it is of another namespace", []Rule{fact("web", "a", broken(), nil)}, "", true},
		{"also by its namespaces", []Rule{fact("", "a", nil, broken())}, "a", false},
		{"but not if the namespace is another one", []Rule{fact("", "a", broken(), matching("team", "web"))}, "", true},
	} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Labels: labelled("app", "cart")}}
		got, readable := NewRules(c.rules).For(p, labelled("team", "shop"))
		name := ""
		if got != nil {
			name = got.Name
		}
		if name != c.want || readable != c.readable {
			t.Errorf("%s: got %q, %v; want %q, %v", c.name, name, readable, c.want, c.readable)
		}
	}
}

func TestPodBehaviorLabel(t *testing.T) {
	for _, c := range []struct {
		labels map[string]string
		want   v1alpha1.Behaviour
	}{
		{nil, ""},
		{labelled("rehome.dev/drain", "skip"), v1alpha1.SkipPods},
		{labelled("rehome.dev/drain", "drain"), v1alpha1.DrainPods},
		{labelled("cluster.x-k8s.io/drain", "wait-completed"), v1alpha1.WaitCompleted},
		{labelled("cluster.x-k8s.io/drain", "skip", "rehome.dev/drain", "drain"), v1alpha1.DrainPods},
		{labelled("cluster.x-k8s.io/drain", "skip", "rehome.dev/drain", "perhaps"), v1alpha1.SkipPods},
	} {
		if got := LabelledBehaviour(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: c.labels}}); got != c.want {
			t.Errorf("%v: got %q, want %q", c.labels, got, c.want)
		}
	}
}

func TestInvalidSpec(t *testing.T) {
	web := v1alpha1.NodeSet{Selector: matching("pool", "web")}
	low, high := int32(10), int32(20)
	steps := func(list ...v1alpha1.DrainStep) v1alpha1.NodeMaintenanceSpec {
		return v1alpha1.NodeMaintenanceSpec{Nodes: web, Plan: list}
	}
	contradiction := func(step, before string) []Problem {
		return []Problem{{Reason: "PlanContradiction", Field: "spec.plan[" + step + "]", Message: "can never select a pod: spec.plan[" +
			before + "] selects all that it does; leave it out or move it before that one"}}
	}
	for _, c := range []struct {
		name string
		spec v1alpha1.NodeMaintenanceSpec
		want []Problem
	}{
		{"nothing", steps(), nil},
		{"no nodes", v1alpha1.NodeMaintenanceSpec{}, []Problem{{"EmptySelector", "spec.nodes", "selects no node; want names or a selector"}}},
		{"an empty selector", v1alpha1.NodeMaintenanceSpec{Nodes: v1alpha1.NodeSet{Selector: &metav1.LabelSelector{}}},
			[]Problem{{"EmptySelector", "spec.nodes.selector", "is empty, which would be every node; want at least one label"}}},
		{"a selector that cannot be read", v1alpha1.NodeMaintenanceSpec{Nodes: v1alpha1.NodeSet{Selector: broken()}},
			[]Problem{{"InvalidSelector", "spec.nodes.selector", `"Near" is not a valid label selector operator`}}},
		{"a step with invalid selectors", steps(v1alpha1.DrainStep{Pods: broken(), Namespaces: broken()}), []Problem{
			{"InvalidSelector", "spec.plan[0].pods", `"Near" is not a valid label selector operator`},
			{"InvalidSelector", "spec.plan[0].namespaces", `"Near" is not a valid label selector operator`},
		}},
		{"unknown time zone", v1alpha1.NodeMaintenanceSpec{Nodes: web, Window: &v1alpha1.Window{Schedule: &v1alpha1.Schedule{
			Cron: "0 0 * * *", TimeZone: "Mars", Duration: metav1.Duration{Duration: time.Hour},
		}}}, []Problem{{"InvalidTimeZone", "spec.window.schedule.timeZone", `"Mars" is not known; want an IANA name such as Europe/Berlin`}}},
		{"the same step twice", steps(v1alpha1.DrainStep{Pods: matching("a", "b")}, v1alpha1.DrainStep{Pods: matching("a", "b")}), contradiction("1", "0")},
		{"a step after one of everything", steps(v1alpha1.DrainStep{}, v1alpha1.DrainStep{Pods: matching("a", "b"), Priority: &low}), contradiction("1", "0")},
		{"a lower priority after a higher one", steps(v1alpha1.DrainStep{Priority: &high}, v1alpha1.DrainStep{Priority: &low}), contradiction("1", "0")},
		{"a higher priority after a lower one", steps(v1alpha1.DrainStep{Priority: &low}, v1alpha1.DrainStep{Priority: &high}), nil},
		{"the rest after a part", steps(v1alpha1.DrainStep{Pods: matching("a", "b")}, v1alpha1.DrainStep{}), nil},
		{"pods of other namespaces", steps(v1alpha1.DrainStep{Namespaces: matching("a", "b")}, v1alpha1.DrainStep{Namespaces: matching("a", "c")}), nil},
		{"pods of DaemonSets after the others", steps(v1alpha1.DrainStep{Type: "Default"}, v1alpha1.DrainStep{Type: "DaemonSet"}), nil},
		{"no type is Default", steps(v1alpha1.DrainStep{Type: "Default"}, v1alpha1.DrainStep{}), contradiction("1", "0")},
	} {
		expect.Equal(t, c.name, Validate(c.spec), c.want)
	}
}

func TestDeadlineStart(t *testing.T) {
	hour := &metav1.Duration{Duration: time.Hour}
	stages := func(drain string) []v1alpha1.StageTime {
		return []v1alpha1.StageTime{{Stage: "Cordon", Start: *when(t, "2026-05-04T08:00:00Z")}, {Stage: "Drain", Start: *when(t, drain)}}
	}
	for _, c := range []struct {
		name     string
		deadline *metav1.Duration
		stages   []v1alpha1.StageTime
		start    string
		want     string
	}{
		{"from the cordon", hour, stages("2026-05-04T09:00:00Z"), "2026-05-04T10:00:00Z", "2026-05-04T11:00:00Z"},
		{"from when Drain was wanted", hour, stages("2026-05-04T12:00:00Z"), "2026-05-04T10:00:00Z", "2026-05-04T13:00:00Z"},
		{"not while it is only cordoned", hour, stages("2026-05-04T12:00:00Z")[:1], "2026-05-04T10:00:00Z", ""},
		{"not without a deadline", nil, stages("2026-05-04T12:00:00Z"), "2026-05-04T10:00:00Z", ""},
		{"not before it is cordoned", hour, stages("2026-05-04T12:00:00Z"), "", ""},
	} {
		m := &v1alpha1.NodeMaintenance{Spec: v1alpha1.NodeMaintenanceSpec{Deadline: c.deadline}}
		m.Status.Stages = c.stages
		if got := Deadline(m, v1alpha1.NodeStatus{Start: when(t, c.start)}); !got.Equal(at(t, c.want)) {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}
