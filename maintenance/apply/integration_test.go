package apply

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/cluster/clustertest"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// noStatus is a user with all required rights except setting the conditions of nodes.
const noStatus = "no-status"

func TestStepsWithAPIServer(t *testing.T) {
	c := clustertest.New(t, cluster.Options{Users: []cluster.User{{Name: noStatus}}})
	first := newPlace(t, c, c.RESTConfig())
	testWithoutKinds(first)
	if err := c.AddKinds(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		test func(*place)
	}{
		{"the status, the finalizer, and the nodes are written", testAll},
		{"done again, nothing changes", testTwice},
		{"a maintenance that has changed since is not touched, nor are its nodes", testConflict},
		{"a recreated or deleted maintenance is not touched", testAnother},
		{"an invalid status is an error", testInvalidStatus},
		{"a status that was written and a spec that is newer do not go together", testNewerSpec},
		{"a node that was cordoned before stays so", testCordonedBefore},
		{"a node that another client cordons meanwhile needs a new decision", testCordonedMeanwhile},
		{"a cordon of another client is not undone", testCordonOfSomebody},
		{"a node that was uncordoned is cordoned again", testUncordoned},
		{"the mark of a maintenance that holds the node is not replaced", testHeld},
		{"the mark of one that gives the node back goes over", testGoesOver},
		{"a mark with an impossible name holds nothing", testNoName},
		{"the holder of a node is read only before a cordon", testAsked},
		{"a recreated or deleted node is not touched", testNodeMadeAnew},
		{"a step that is refused keeps no other from being done, and is the one to be tried again", testRefused},
		{"conditions of an earlier maintenance are reset", testMaintained},
		{"a second cordon keeps the report", testReportKept},
		{"the finalizer goes last, and its maintenance with it", testDeletion},
		{"a dry run changes nothing", testDryRun},
		{"without the right to set conditions all else is done", testNoStatusRight},
		{"wherever it is killed, it ends the same when it is done again", testKilled},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.test(newPlace(t, c, c.RESTConfig())) })
	}
}

// numbers make the names of all objects unique.
var numbers atomic.Int32

// place is a client and unique names for one test.
type place struct {
	expect.T
	cluster *cluster.Cluster
	client  kubernetes.Interface
	kinds   rest.Interface
	table   Table // nil: none
	now     time.Time
	log     *bytes.Buffer
	number  int32
}

func newPlace(t testing.TB, c *cluster.Cluster, config *rest.Config) *place {
	t.Helper()
	p := &place{T: expect.T{TB: t}, cluster: c, now: time.Now().Truncate(time.Second), log: &bytes.Buffer{}, number: numbers.Add(1)}
	p.client, p.kinds = clients(t, config)
	return p
}

func clients(t testing.TB, config *rest.Config) (kubernetes.Interface, rest.Interface) {
	t.Helper()
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	expect.Must(t, err)
	kinds, err := NewClient(config)
	expect.Must(t, err)
	return client, kinds
}

func (p *place) steps() *Steps {
	return New(Config{Client: p.client, Kinds: p.kinds, Table: p.table, Log: slog.New(slog.NewTextHandler(p.log, nil))})
}

// do executes steps without an error, and returns the outcome for each node.
func (p *place) do(s plan.Decision) Result {
	p.Helper()
	r, err := p.steps().Do(p.Context(), s)
	p.Must(err)
	return r
}

func outcomes(r Result) []string {
	var list []string
	for _, n := range r.Nodes {
		list = append(list, string(n.Outcome)+": "+n.Message)
	}
	return list
}

// maintenance creates a maintenance with a plan that no Go type would write back unchanged.
func (p *place) maintenance(name string) *v1alpha1.NodeMaintenance {
	p.Helper()
	body := fmt.Sprintf(`{"apiVersion":"rehome.dev/v1alpha1","kind":"NodeMaintenance","metadata":{"name":%q},"spec":{
		"nodes":{"names":["x"]},"stage":"Drain","reason":"new kernel",
		"plan":[{"pods":{"matchExpressions":[{"key":"a","operator":"Exists","values":[]}]}}]}}`, p.name(name))
	p.Must(p.kinds.Post().Resource(v1alpha1.NodeMaintenances).Body([]byte(body)).Do(p.Context()).Error())
	return p.found(name)
}

func (p *place) name(name string) string { return fmt.Sprintf("%s-%d", name, p.number) }

// found returns the live maintenance, or nil.
func (p *place) found(name string) *v1alpha1.NodeMaintenance {
	p.Helper()
	var m v1alpha1.NodeMaintenance
	err := p.kinds.Get().Resource(v1alpha1.NodeMaintenances).Name(p.name(name)).Do(p.Context()).Into(&m)
	if apierrors.IsNotFound(err) {
		return nil
	}
	p.Must(err)
	return &m
}

// node creates a node with a label, because the API server tracks field owners only for objects that had a field from
// the start.
func (p *place) node(name string, change ...func(*corev1.Node)) *corev1.Node {
	p.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: p.name(name), Labels: map[string]string{"pool": "web"}}}
	for _, f := range change {
		f(n)
	}
	n, err := p.client.CoreV1().Nodes().Create(p.Context(), n, metav1.CreateOptions{FieldManager: "somebody"})
	p.Must(err)
	return n
}

func cordoned(n *corev1.Node) { n.Spec.Unschedulable = true }

func (p *place) patch(n *corev1.Node, patch string) {
	p.Helper()
	_, err := p.client.CoreV1().Nodes().Patch(p.Context(), n.Name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{FieldManager: "somebody"})
	p.Must(err)
}

// look is the compared part of a node: everything that maintenances change, by name.
type look struct {
	Unschedulable    bool
	Mark, Maintained string
	Conditions       []string
}

func (p *place) look(n *corev1.Node) look {
	p.Helper()
	live, err := p.client.CoreV1().Nodes().Get(p.Context(), n.Name, metav1.GetOptions{})
	p.Must(err)
	l := look{Unschedulable: live.Spec.Unschedulable, Maintained: live.Annotations[schemas.AnnotationMaintained]}
	if m := schemas.MarkOn(live); m != nil {
		l.Mark = strings.TrimSuffix(m.Name, fmt.Sprint("-", p.number))
		if m.CordonedBefore {
			l.Mark += ", cordoned before"
		}
	}
	for _, c := range live.Status.Conditions {
		if c.Reason == "AdminRequested" {
			l.Conditions = append(l.Conditions, fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Message))
		}
	}
	return l
}

// answer returns a decision for m in its current state.
func (p *place) answer(m *v1alpha1.NodeMaintenance, nodes ...plan.NodeStep) plan.Decision {
	return plan.Decision{
		Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, Finalizer: true, Nodes: nodes,
		Status: v1alpha1.NodeMaintenanceStatus{
			ObservedGeneration: m.Generation, Stages: []v1alpha1.StageTime{{Stage: v1alpha1.Drain, Start: metav1.NewTime(p.now)}},
			Nodes: []v1alpha1.NodeStatus{{Name: "x", UID: "1", Stage: v1alpha1.Draining}},
		},
	}
}

func (p *place) mark(m *v1alpha1.NodeMaintenance) schemas.CordonMark {
	return schemas.CordonMark{Name: m.Name, UID: m.UID, At: p.now.UTC()}
}

// cordon returns the step that cordons the node in its current state.
func (p *place) cordon(m *v1alpha1.NodeMaintenance, n *corev1.Node) plan.NodeStep {
	p.Helper()
	s := p.step(n, schemas.NodeCordon)
	s.Mark = p.mark(m)
	s.Mark.CordonedBefore = s.Unschedulable && s.Marked == nil
	s.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeMaintenanceInProgress, Status: corev1.ConditionTrue, Reason: "AdminRequested", Message: "new kernel",
		LastTransitionTime: metav1.NewTime(p.now),
	}}
	return s
}

// giveBack returns the step that gives the node back in its current state.
func (p *place) giveBack(n *corev1.Node) plan.NodeStep {
	p.Helper()
	s := p.step(n, schemas.NodeReturn)
	s.Mark = *s.Marked
	return s
}

func (p *place) step(n *corev1.Node, action schemas.NodeAction) plan.NodeStep {
	p.Helper()
	live, err := p.client.CoreV1().Nodes().Get(p.Context(), n.Name, metav1.GetOptions{})
	p.Must(err)
	s := plan.NodeStep{Name: n.Name, UID: n.UID, Action: action, Unschedulable: live.Spec.Unschedulable}
	if m := schemas.MarkOn(live); m != nil {
		s.Marked = m
	}
	return s
}

// held creates nodes that the maintenance has cordoned.
func (p *place) held(name string, nodes ...*corev1.Node) *v1alpha1.NodeMaintenance {
	p.Helper()
	m := p.maintenance(name)
	s := p.answer(m)
	s.Status.Nodes = nil
	for _, n := range nodes {
		s.Nodes = append(s.Nodes, p.cordon(m, n))
		s.Status.Nodes = append(s.Status.Nodes, v1alpha1.NodeStatus{Name: n.Name, UID: n.UID, Stage: v1alpha1.Cordoned})
	}
	p.do(s)
	return p.found(name)
}

func testWithoutKinds(p *place) {
	r, err := p.steps().Do(p.Context(), plan.Decision{Name: "kernel", UID: "1", ResourceVersion: "1", Finalizer: true})
	p.Must(err)
	expect.Equal(p, "a cluster that does not know the kinds", r, Result{Dropped: "it does not exist any more"})
}

func testAll(p *place) {
	m, n, other := p.maintenance("kernel"), p.node("a"), p.node("b")
	raw := func() string {
		var object struct {
			Spec json.RawMessage `json:"spec"`
		}
		text, err := p.kinds.Get().Resource(v1alpha1.NodeMaintenances).Name(m.Name).Do(p.Context()).Raw()
		p.Must(err)
		p.Must(json.Unmarshal(text, &object))
		return string(object.Spec)
	}
	spec, mark := raw(), p.step(other, schemas.NodeMark)
	mark.Conditions = []corev1.NodeCondition{{Type: corev1.NodeMaintenancePlanned, Status: corev1.ConditionTrue, Reason: "AdminRequested"}}
	s := p.answer(m, p.cordon(m, n), mark)
	r := p.do(s)
	expect.Equal(p, "written", r.Wrote, true)
	expect.Equal(p, "outcomes", outcomes(r), []string{"changed: ", "changed: "})
	expect.Equal(p, "node", p.look(n), look{Unschedulable: true, Mark: "kernel", Conditions: []string{"MaintenanceInProgress=True new kernel"}})
	expect.Equal(p, "other node", p.look(other), look{Conditions: []string{"MaintenancePlanned=True "}})
	expect.Equal(p, "the spec as it was written", raw(), spec)
	expect.Equal(p, "a plan that Go would change", strings.Contains(spec, `"values":[]`), true)
	live := p.found("kernel")
	expect.Equal(p, "finalizers", live.Finalizers, []string{schemas.MaintenanceFinalizer})
	expect.Equal(p, "status", sameStatus(live.Status, s.Status), true)
	var managers []string
	for _, f := range live.ManagedFields {
		managers = append(managers, f.Manager+" "+f.Subresource)
	}
	expect.Equal(p, "the writer of the status", slices.Contains(managers, Manager+" status"), true)
}

func testTwice(p *place) {
	m, n := p.maintenance("kernel"), p.node("a")
	s := p.answer(m, p.cordon(m, n))
	p.do(s)
	before, live := p.look(n), p.found("kernel")
	r := p.do(s)
	expect.Equal(p, "outcomes", outcomes(r), []string{"unchanged: "})
	expect.Equal(p, "written", r.Wrote, false)
	expect.Equal(p, "node", p.look(n), before)
	expect.Equal(p, "version", p.found("kernel").ResourceVersion, live.ResourceVersion)
}

func (p *place) change(name, patch string) {
	p.Helper()
	p.Must(p.kinds.Patch(types.MergePatchType).Resource(v1alpha1.NodeMaintenances).Name(p.name(name)).Body([]byte(patch)).
		Do(p.Context()).Error())
}

func testConflict(p *place) {
	m, n := p.maintenance("kernel"), p.node("a")
	s := p.answer(m, p.cordon(m, n))
	p.change("kernel", `{"metadata":{"labels":{"a":"b"}}}`)
	r := p.do(s)
	expect.Equal(p, "dropped", r.Dropped, "it has changed since that was decided")
	expect.Equal(p, "node", p.look(n), look{})
	live := p.found("kernel")
	expect.Equal(p, "finalizers", live.Finalizers, nil)
	expect.Equal(p, "status", live.Status, v1alpha1.NodeMaintenanceStatus{})
}

func testAnother(p *place) {
	m, n := p.maintenance("kernel"), p.node("a")
	s := p.answer(m, p.cordon(m, n))
	remove := func() {
		p.Must(p.kinds.Delete().Resource(v1alpha1.NodeMaintenances).Name(m.Name).Do(p.Context()).Error())
	}
	remove()
	expect.Equal(p, "one that is gone", p.do(s), Result{Dropped: "it does not exist any more"})
	p.maintenance("kernel")
	expect.Equal(p, "another one", p.do(s), Result{Dropped: "another one has its name"})
	expect.Equal(p, "node", p.look(n), look{})
}

// The definition of the kind in the cluster may be older than the program.
func testInvalidStatus(p *place) {
	m, n := p.maintenance("kernel"), p.node("a")
	s := p.answer(m, p.cordon(m, n))
	s.Status.Stages[0].Stage = "Unheard"
	r, err := p.steps().Do(p.Context(), s)
	expect.Equal(p, "invalid", apierrors.IsInvalid(err), true)
	expect.Equal(p, "result", r, Result{})
	expect.Equal(p, "node", p.look(n), look{})
}

func testNewerSpec(p *place) {
	m, n := p.maintenance("kernel"), p.node("a")
	s := p.answer(m)
	p.do(s)
	s.Nodes = append(s.Nodes, p.cordon(m, n))
	p.change("kernel", `{"spec":{"stage":"Complete"}}`)
	expect.Equal(p, "dropped", p.do(s).Dropped, "it has changed since that was decided")
	expect.Equal(p, "node", p.look(n), look{})
}

func testCordonedBefore(p *place) {
	n := p.node("a", cordoned)
	m := p.held("kernel", n)
	expect.Equal(p, "held", p.look(n), look{true, "kernel, cordoned before", "", []string{"MaintenanceInProgress=True new kernel"}})
	r := p.do(p.answer(m, p.giveBack(n)))
	expect.Equal(p, "outcomes", outcomes(r), []string{"changed: it stays cordoned, as it was before"})
	expect.Equal(p, "given back", p.look(n), look{Unschedulable: true, Conditions: []string{"MaintenanceInProgress=True new kernel"}})
}

func testCordonedMeanwhile(p *place) {
	m, n := p.maintenance("kernel"), p.node("a")
	s := p.answer(m, p.cordon(m, n))
	p.patch(n, `{"spec":{"unschedulable":true}}`)
	expect.Equal(p, "outcomes", outcomes(p.do(s)), []string{"outdated: the node has changed since that was decided"})
	expect.Equal(p, "node", p.look(n), look{Unschedulable: true})
}

func testCordonOfSomebody(p *place) {
	n, plain, applied := p.node("a"), p.node("b"), p.node("c")
	m := p.held("kernel", n, plain, applied)
	p.patch(n, `{"spec":{"unschedulable":null}}`)
	p.patch(n, `{"spec":{"unschedulable":true}}`)
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Node","metadata":{"name":%q},"spec":{"unschedulable":true}}`, applied.Name)
	_, err := p.client.CoreV1().Nodes().Patch(p.Context(), applied.Name, types.ApplyPatchType, []byte(text), metav1.PatchOptions{FieldManager: "anna"})
	p.Must(err)
	r := p.do(p.answer(m, p.giveBack(n), p.giveBack(plain), p.giveBack(applied)))
	expect.Equal(p, "outcomes", outcomes(r), []string{
		"changed: it stays cordoned: somebody has cordoned it meanwhile", "changed: ", "changed: it stays cordoned: anna has cordoned it meanwhile",
	})
	said := []string{"MaintenanceInProgress=True new kernel"}
	expect.Equal(p, "cordoned by somebody", p.look(n), look{Unschedulable: true, Conditions: said})
	expect.Equal(p, "not cordoned by another client", p.look(plain), look{Conditions: said})
	expect.Equal(p, "cordoned by another client during the maintenance", p.look(applied), look{Unschedulable: true, Conditions: said})
}

func testUncordoned(p *place) {
	n := p.node("a")
	m := p.held("kernel", n)
	p.patch(n, `{"spec":{"unschedulable":null}}`)
	p.now = p.now.Add(time.Minute)
	r := p.do(p.answer(m, p.cordon(m, n)))
	expect.Equal(p, "outcomes", outcomes(r), []string{"changed: "})
	expect.Equal(p, "again", r.Nodes[0].Again, true)
	expect.Equal(p, "cordoned", p.look(n), look{true, "kernel", "", []string{"MaintenanceInProgress=True new kernel"}})
}

func testHeld(p *place) {
	n, disks := p.node("a"), p.maintenance("disks")
	kernel := p.held("kernel", n)
	r := p.do(p.answer(disks, p.cordon(disks, n)))
	expect.Equal(p, "outcomes", outcomes(r), []string{"taken: maintenance " + kernel.Name + " holds the node"})
	expect.Equal(p, "node", p.look(n).Mark, "kernel")
	step := p.giveBack(n)
	step.Mark = p.mark(disks)
	step.Marked = &step.Mark
	expect.Equal(p, "it cannot be given back either", outcomes(p.do(p.answer(p.found("disks"), step))),
		[]string{"outdated: the node has changed since that was decided"})
	expect.Equal(p, "node", p.look(n).Mark, "kernel")
}

func testGoesOver(p *place) {
	n, disks := p.node("a", cordoned), p.maintenance("disks")
	kernel := p.held("kernel", n)
	s := p.answer(kernel)
	s.Status.Nodes = []v1alpha1.NodeStatus{{Name: n.Name, UID: n.UID, Stage: v1alpha1.Returning}}
	p.do(s)
	step := p.cordon(disks, n)
	step.Mark.CordonedBefore = step.Marked.CordonedBefore
	expect.Equal(p, "outcomes", outcomes(p.do(p.answer(disks, step))), []string{"changed: it was cordoned before, and stays so"})
	expect.Equal(p, "node", p.look(n).Mark, "disks, cordoned before")
}

// A kubelet may write any annotation on its own node.
func testNoName(p *place) {
	m := p.maintenance("kernel")
	var s []plan.NodeStep
	for i, name := range []string{"", "100%", "..", "Kernel", "a b", strings.Repeat("a", 300), "a?b=c"} {
		n := p.node(fmt.Sprint("a", i), func(n *corev1.Node) {
			n.Annotations = map[string]string{schemas.AnnotationMaintenance: fmt.Sprintf(`{"name":%q,"uid":"x"}`, name)}
		})
		s = append(s, p.cordon(m, n))
	}
	r := p.do(p.answer(m, s...))
	expect.Equal(p, "outcomes", outcomes(r), slices.Repeat([]string{"changed: "}, len(s)))
}

func testAsked(p *place) {
	n, other := p.node("a"), p.node("b", func(n *corev1.Node) {
		n.Annotations = map[string]string{schemas.AnnotationMaintenance: `{"name":"secret","uid":"x"}`}
	})
	m := p.held("kernel", n)
	told, back := p.step(other, schemas.NodeMark), p.giveBack(n)
	told.Conditions = []corev1.NodeCondition{{Type: corev1.NodeDrained, Status: corev1.ConditionTrue, Reason: "AdminRequested"}}
	s := p.answer(m, told, back)
	config, asked := p.cluster.RESTConfig(), 0
	clustertest.Intercept(config, func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if strings.HasSuffix(r.URL.Path, "/secret") {
			asked++
		}
		return next.RoundTrip(r)
	})
	p.client, p.kinds = clients(p, config)
	expect.Equal(p, "outcomes", outcomes(p.do(s)), []string{"changed: ", "changed: "})
	expect.Equal(p, "questions about the other one", asked, 0)
	p.do(p.answer(p.found("kernel"), p.cordon(m, other)))
	expect.Equal(p, "it asks before the cordon, and again when the node changes meanwhile", asked > 0, true)
}

func testRefused(p *place) {
	a, b, told, c := p.node("a"), p.node("b"), p.node("told"), p.node("c")
	m := p.maintenance("kernel")
	mark := p.step(told, schemas.NodeMark)
	mark.Conditions = []corev1.NodeCondition{{Type: corev1.NodeDrained, Status: corev1.ConditionTrue, Reason: "AdminRequested"}}
	s := p.answer(m, p.cordon(m, a), p.cordon(m, b), mark, p.cordon(m, c))
	p.refuse(b, told)
	r, err := p.steps().Do(p.Context(), s)
	var got, again []string
	for _, n := range r.Nodes {
		got = append(got, string(n.Outcome))
		if n.Err != nil {
			again = append(again, n.Name)
		}
	}
	expect.Equal(p, "outcomes", got, []string{"changed", "failed", "failed", "changed"})
	expect.Equal(p, "to be tried again", again, []string{b.Name, told.Name})
	if err == nil || strings.Count(err.Error(), "hands off") != 2 {
		p.Errorf("got error %v, want both errors", err)
	}
	expect.Equal(p, "cordoned", []bool{p.look(a).Unschedulable, p.look(b).Unschedulable, p.look(c).Unschedulable}, []bool{true, false, true})
}

// refuse makes an admission policy refuse every change of these nodes, from its return on.
func (p *place) refuse(nodes ...*corev1.Node) {
	p.Helper()
	var names []string
	for _, n := range nodes {
		names = append(names, fmt.Sprintf("%q", n.Name))
	}
	name := p.name("hands-off")
	policies := p.client.AdmissionregistrationV1()
	_, err := policies.ValidatingAdmissionPolicies().Create(p.Context(), &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Update},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"nodes", "nodes/status"}},
				},
			}}},
			Validations: []admissionv1.Validation{{
				Expression: "!(object.metadata.name in [" + strings.Join(names, ", ") + "])", Message: "hands off",
			}},
		},
	}, metav1.CreateOptions{})
	p.Must(err)
	_, err = policies.ValidatingAdmissionPolicyBindings().Create(p.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}, metav1.CreateOptions{})
	p.Must(err)
	for late := time.Now().Add(time.Minute); time.Now().Before(late); time.Sleep(100 * time.Millisecond) {
		_, err = p.client.CoreV1().Nodes().Patch(p.Context(), nodes[0].Name, types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"touched":"yes"}}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil && strings.Contains(err.Error(), "hands off") {
			return
		}
	}
	p.Fatalf("the admission policy is not effective: %v", err)
}

func testNodeMadeAnew(p *place) {
	m, n, gone := p.maintenance("kernel"), p.node("a"), p.node("b")
	s := p.answer(m, p.cordon(m, n), p.cordon(m, gone))
	for _, x := range []*corev1.Node{n, gone} {
		p.Must(p.client.CoreV1().Nodes().Delete(p.Context(), x.Name, metav1.DeleteOptions{}))
	}
	p.node("a")
	expect.Equal(p, "outcomes", outcomes(p.do(s)), []string{"outdated: another node has its name", "outdated: the node is gone"})
	expect.Equal(p, "node", p.look(n), look{})
}

func testMaintained(p *place) {
	said := func(name string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Annotations = map[string]string{schemas.AnnotationMaintained: p.name(name)}
		}
	}
	n, other := p.node("a", said("kernel")), p.node("b", said("disks"))
	m := p.held("kernel", n, other)
	got := []string{p.look(n).Maintained, p.look(other).Maintained}
	p.patch(n, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, schemas.AnnotationMaintained, m.Name))
	got = append(got, p.look(n).Maintained)
	p.do(p.answer(m, p.giveBack(n)))
	expect.Equal(p, "said after the cordon, by the next, and after the return", append(got, p.look(n).Maintained),
		[]string{"", p.name("disks"), m.Name, ""})
}

// A user uncordons a drained node and reports that the work is done, before the node is cordoned again.
func testReportKept(p *place) {
	n := p.node("a")
	m := p.held("kernel", n)
	p.patch(n, `{"spec":{"unschedulable":null}}`)
	p.now = p.now.Add(time.Minute)
	s := p.answer(p.found("kernel"), p.cordon(m, n))
	p.patch(n, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, schemas.AnnotationMaintained, m.Name))
	expect.Equal(p, "outcomes", outcomes(p.do(s)), []string{"changed: "})
	expect.Equal(p, "cordoned again", p.look(n), look{true, "kernel", m.Name, []string{"MaintenanceInProgress=True new kernel"}})
	p.do(p.answer(p.found("kernel"), p.giveBack(n)))
	expect.Equal(p, "given back", p.look(n), look{Conditions: []string{"MaintenanceInProgress=True new kernel"}})
}

func testDeletion(p *place) {
	n := p.node("a")
	m := p.held("kernel", n)
	p.Must(p.kinds.Delete().Resource(v1alpha1.NodeMaintenances).Name(m.Name).Do(p.Context()).Error())
	s := p.answer(p.found("kernel"), p.giveBack(n))
	s.Finalizer = false
	p.do(s)
	expect.Equal(p, "node", p.look(n), look{Conditions: []string{"MaintenanceInProgress=True new kernel"}})
	if live := p.found("kernel"); live != nil {
		p.Errorf("the maintenance is still there, with finalizers %q", live.Finalizers)
	}
	expect.Equal(p, "done again", p.do(s).Dropped, "it does not exist any more")
}

func testDryRun(p *place) {
	n := p.node("a")
	m := p.maintenance("kernel")
	s := p.answer(m, p.cordon(m, n))
	r, err := New(Config{Client: p.client, Kinds: p.kinds, DryRun: true}).Do(p.Context(), s)
	p.Must(err)
	expect.Equal(p, "outcomes", outcomes(r), []string{"changed: "})
	expect.Equal(p, "node", p.look(n), look{})
	expect.Equal(p, "maintenance", p.found("kernel"), m)
}

func testNoStatusRight(p *place) {
	p.Must(p.cluster.Grant(p.Context(), cluster.UserSubject(noStatus), "",
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "patch"}},
		rbacv1.PolicyRule{
			APIGroups: []string{v1alpha1.Group}, Verbs: []string{"get", "patch"},
			Resources: []string{v1alpha1.NodeMaintenances, v1alpha1.NodeMaintenances + "/status"},
		}))
	m, a, b := p.maintenance("kernel"), p.node("a"), p.node("b")
	s := p.answer(m, p.cordon(m, a), p.cordon(m, b))
	config, err := p.cluster.UserConfig(noStatus)
	p.Must(err)
	client, kinds := clients(p, config)
	weak := New(Config{Client: client, Kinds: kinds, Log: slog.New(slog.NewTextHandler(p.log, nil))})
	var r Result
	expect.EventuallyWithState(p, "the rights are there", func() (bool, string) {
		r, err = weak.Do(p.Context(), s)
		return err == nil, fmt.Sprint(err)
	})
	expect.Equal(p, "refused conditions", []bool{r.Nodes[0].ConditionsRefused, r.Nodes[1].ConditionsRefused}, []bool{true, true})
	expect.Equal(p, "nodes", []look{p.look(a), p.look(b)}, []look{{Unschedulable: true, Mark: "kernel"}, {Unschedulable: true, Mark: "kernel"}})
	expect.Equal(p, "lines in the log", strings.Count(p.log.String(), "the right to patch nodes/status is missing"), 1)
}

var errKilled = errors.New("killed")

// mortal passes calls until it is killed: before a call, or after it and before its answer.
type mortal struct {
	http.RoundTripper
	left   *int // calls of all clients together
	silent bool // the last call is still made, and its answer lost
}

func (m *mortal) RoundTrip(r *http.Request) (*http.Response, error) {
	*m.left--
	if *m.left > 0 || *m.left == 0 && !m.silent {
		return m.RoundTripper.RoundTrip(r)
	}
	if *m.left == 0 {
		answer, err := m.RoundTripper.RoundTrip(r)
		if err == nil {
			_ = answer.Body.Close()
		}
	}
	return nil, errKilled
}

// testKilled kills it after every number of calls, with and without the last answer, until one run is complete. The
// scene has all cases: nodes to cordon, including one that is cordoned, one to give back, and one whose conditions
// change.
func testKilled(p *place) {
	type end struct {
		Nodes      []look
		Finalizers []string
		Status     string
	}
	var want *end
	for calls := 1; ; calls++ {
		enough := false
		for _, silent := range []bool{false, true} {
			q := newPlace(p, p.cluster, p.cluster.RESTConfig())
			nodes := []*corev1.Node{q.node("a"), q.node("b", cordoned), q.node("c"), q.node("d")}
			m := q.held("kernel", nodes[2])
			told := q.step(nodes[3], schemas.NodeMark)
			told.Conditions = []corev1.NodeCondition{{Type: corev1.NodeDrained, Status: corev1.ConditionTrue, Reason: "AdminRequested"}}
			s := q.answer(m, q.cordon(m, nodes[0]), q.cordon(m, nodes[1]), q.giveBack(nodes[2]), told)
			s.Finalizer = false

			config, left := q.cluster.RESTConfig(), calls
			config.Wrap(func(to http.RoundTripper) http.RoundTripper { return &mortal{to, &left, silent} })
			client, kinds := clients(q.T, config)
			_, err := New(Config{Client: client, Kinds: kinds}).Do(context.Background(), s)
			enough = enough || err == nil
			if _, err := q.steps().Do(q.Context(), s); err != nil {
				p.Fatalf("%d calls, the last answer lost: %v; done again: %v", calls, silent, err)
			}
			live := q.found("kernel")
			text := expect.ToJSON(q, live.Status.Stages[0].Stage)
			got := &end{Finalizers: live.Finalizers, Status: string(text)}
			for _, n := range nodes {
				got.Nodes = append(got.Nodes, q.look(n))
			}
			if want == nil {
				want = &end{Status: `"Drain"`, Nodes: []look{
					{true, "kernel", "", []string{"MaintenanceInProgress=True new kernel"}},
					{true, "kernel, cordoned before", "", []string{"MaintenanceInProgress=True new kernel"}},
					{Conditions: []string{"MaintenanceInProgress=True new kernel"}}, {Conditions: []string{"Drained=True "}},
				}}
			}
			if !sameStatus(live.Status, s.Status) {
				p.Errorf("%d calls, the last answer lost: %v: got status %+v, want %+v", calls, silent, live.Status, s.Status)
			}
			expect.Equal(p, fmt.Sprintf("%d calls, the last answer lost: %v", calls, silent), got, want)
		}
		if enough {
			if calls < 12 {
				p.Errorf("got to the end after %d calls, want so many that it was killed between all steps", calls)
			}
			return
		}
	}
}

// A process whose lease expires must make no further write, for every possible write.
func TestLease(t *testing.T) {
	c := clustertest.New(t, cluster.Options{})
	if err := c.AddKinds(t.Context()); err != nil {
		t.Fatal(err)
	}
	// made returns the writes that were made, in order.
	type made struct {
		Status, Finalizer bool
		Node              look
	}
	cordoned := look{Unschedulable: true, Mark: "kernel"}
	const last = 4 // of the writes
	all := cordoned
	all.Conditions = []string{"MaintenanceInProgress=True new kernel"}
	for writes, tt := range []struct {
		name string
		want made
	}{
		{"before the status", made{}},
		{"before the finalizer", made{Status: true}},
		{"before the node", made{Status: true, Finalizer: true}},
		{"before the conditions", made{true, true, cordoned}},
		{"after the last write", made{true, true, all}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			config := c.RESTConfig()
			var done atomic.Int64 // writes; the API server may refuse one as outdated, and the client repeats it
			clustertest.Intercept(config, func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
				answer, err := next.RoundTrip(r)
				if err == nil && r.Method != http.MethodGet && answer.StatusCode < 300 {
					done.Add(1)
				}
				return answer, err
			})
			p := newPlace(t, c, config)
			m, n := p.maintenance("kernel"), p.node("a")
			s := p.answer(m, p.cordon(m, n))
			before := done.Load()
			_, err := New(Config{Client: p.client, Kinds: p.kinds, LeaseValid: func() bool {
				return done.Load()-before < int64(writes) || writes == last
			}}).Do(t.Context(), s)
			live := p.found("kernel")
			got := made{sameStatus(live.Status, s.Status), len(live.Finalizers) > 0, p.look(n)}
			expect.Equal(t, "written", got, tt.want)
			expect.Equal(t, "not leading", errors.Is(err, ErrNotLeading), tt.want.Node.Conditions == nil)
		})
	}
}
