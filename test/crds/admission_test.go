package crds

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// denied is the prefix of errors of the ValidatingAdmissionPolicy.
const denied = `nodemaintenances.rehome.dev "%s" is forbidden: ValidatingAdmissionPolicy 'nodemaintenances.rehome.dev' with binding ` +
	`'nodemaintenances.rehome.dev' denied request: `

// grant grants the rights of the users.
func grant(ctx context.Context, c *cluster.Cluster) error {
	anything := []string{"create", "get", "update", "patch", "delete"}
	maintenances := rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.Group}, Resources: []string{v1alpha1.NodeMaintenances, v1alpha1.NodeMaintenances + "/status"}, Verbs: anything,
	}
	nodes := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"delete"}}
	some := nodes
	for i := range 12 {
		some.ResourceNames = append(some.ResourceNames, fmt.Sprint("worker-", i))
	}
	for user, rules := range map[string][]rbacv1.PolicyRule{
		janitor: {maintenances, nodes}, porter: {maintenances, some}, bystander: {maintenances},
	} {
		if err := c.Grant(ctx, cluster.UserSubject(user), "", rules...); err != nil {
			return err
		}
	}
	return nil
}

// guarded waits until the policy and the rights are in effect, which takes a moment.
func guarded(t *testing.T) {
	t.Helper()
	// porter gets his rights last, and bystander loses his last.
	expect.Eventually(t, "the rights of "+porter, func() bool { return try(t, porter, "{nodes: {names: [worker-0]}, reason: r}") == "" })
	expect.Eventually(t, "the rights of "+janitor, func() bool { return try(t, janitor, "{nodes: {names: [worker-0]}, reason: r}") == "" })
	expect.Eventually(t, "the policy", func() bool {
		return strings.HasPrefix(try(t, bystander, "{nodes: {names: [worker-0]}, reason: r}"), fmt.Sprintf(denied, "tried"))
	})
}

// try returns the error of a user who creates a maintenance in a dry run, or "".
func try(t *testing.T, user, spec string) string {
	t.Helper()
	o := maintenance(t, "tried", spec)
	_, err := in(as(t, user), o).Create(t.Context(), o, tried)
	return said(t, err)
}

// said returns the message of an error.
func said(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	if !apierrors.IsForbidden(err) {
		t.Fatalf("an error of another kind: %v", err)
	}
	return err.Error()
}

func TestCreateNeedsDeleteOnNodes(t *testing.T) {
	guarded(t)
	const (
		labels = " needs the right to delete nodes, whatever their names, because the maintenance selects them by labels"
		many   = " needs the right to delete nodes, whatever their names, or a maintenance of at most 10 nodes: more names than that cannot be checked one by one"
		some   = " needs the right to delete each node of the maintenance: "
	)
	selector := "{nodes: {selector: {matchLabels: {a: b}}}, reason: r}"
	list := func(names ...string) string {
		return "{nodes: {names: [" + strings.Join(names, ", ") + "]}, reason: r}"
	}
	ten := "{nodes: {names: " + names(10) + "}, reason: r}"
	for _, test := range []struct{ name, user, spec, want string }{
		{"all nodes: some names", janitor, list("worker-0", "other"), ""},
		{"all nodes: a thousand names", janitor, "{nodes: {names: " + names(1000) + "}, reason: r}", ""},
		{"all nodes: selector", janitor, selector, ""},
		{"some nodes: one name", porter, list("worker-11"), ""},
		{"some nodes: ten names", porter, ten, ""},
		{"some nodes: eleven names", porter, "{nodes: {names: " + names(11) + "}, reason: r}", porter + many},
		{"some nodes: other names", porter, list("other", "worker-1", "worker-12"), porter + some + "other, worker-1, worker-12"},
		{"some nodes: selector", porter, selector, porter + labels},
		{"no nodes: one name", bystander, list("worker-1"), bystander + some + "worker-1"},
		{"no nodes: selector", bystander, selector, bystander + labels},
		{"no nodes: stage Idle", bystander, with("stage: Idle"), bystander + some + "worker-1"},
	} {
		want := test.want
		if want != "" {
			want = fmt.Sprintf(denied, "tried") + want
		}
		if got := try(t, test.user, test.spec); got != want {
			t.Errorf("%s:\n got %s\nwant %s", test.name, got, want)
		}
	}
}

func TestCreateChecksTenNames(t *testing.T) {
	guarded(t)
	for i := range 10 {
		list := make([]string, 10)
		for k := range list {
			list[k] = fmt.Sprint("worker-", k)
		}
		list[i] = "other"
		all := strings.Join(list, ", ")
		got := try(t, porter, "{nodes: {names: ["+all+"]}, reason: r}")
		want := fmt.Sprintf(denied, "tried") + porter + " needs the right to delete each node of the maintenance: " + all
		if got != want {
			t.Errorf("name %d:\n got %s\nwant %s", i, got, want)
		}
	}
}

func TestUpdateNeedsDeleteOnNodes(t *testing.T) {
	guarded(t)
	const no = bystander + " needs the right to delete each node of the maintenance: worker-1"
	for _, test := range []struct{ name, before, after, want string }{
		{"not allowed: stage Cordon", "stage: Idle", "stage: Cordon", no},
		{"not allowed: stage Drain", "stage: Idle", "stage: Drain", no},
		{"not allowed: from Cordon to Drain", "stage: Cordon", "stage: Drain", no},
		{"not allowed: more nodes at once", "stage: Drain, atOnce: 1", "stage: Drain, atOnce: 100%", no},
		{"not allowed: window of a drain", "stage: Drain, window: {end: '2026-12-01T00:00:00Z'}", "stage: Drain", no},
		{"not allowed: force of a drain", "stage: Drain", "stage: Drain, force: [AllNodes]", no},
		{"allowed: change in stage Idle", "stage: Idle", "stage: Idle, atOnce: 100%", ""},
		{"allowed: complete from Idle", "stage: Idle", "stage: Complete", ""},
		{"allowed: complete from Cordon", "stage: Cordon", "stage: Complete", ""},
		{"allowed: complete from Drain", "stage: Drain", "stage: Complete", ""},
		{"allowed: change in stage Complete", "stage: Complete", "stage: Complete, topology: zone", ""},
		{"allowed: no change", "stage: Drain", "stage: Drain", ""},
	} {
		before, remove := stored(t, maintenance(t, "guarded", with(test.before)))
		after := maintenance(t, "guarded", with(test.after))
		after.SetResourceVersion(before.GetResourceVersion())
		after.SetLabels(map[string]string{"a": "b"})
		dry := metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}
		_, err := in(as(t, bystander), after).Update(t.Context(), after, dry)
		want := test.want
		if want != "" {
			want = fmt.Sprintf(denied, "guarded") + want
		}
		if got := said(t, err); got != want {
			t.Errorf("%s:\n got %s\nwant %s", test.name, got, want)
		}
		if _, err := in(as(t, janitor), after).Update(t.Context(), after, dry); err != nil {
			t.Errorf("%s, with the right to delete nodes: %v", test.name, err)
		}
		remove()
	}
}

func TestDeleteAndStatusRights(t *testing.T) {
	guarded(t)
	o, _ := stored(t, maintenance(t, "deleted", with("stage: Drain")))
	objects := in(as(t, bystander), o)
	o.Object["status"] = map[string]any{"observedGeneration": int64(1)}
	if _, err := objects.UpdateStatus(t.Context(), o, metav1.UpdateOptions{}); err != nil {
		t.Errorf("status: %v", err)
	}
	if err := objects.Delete(t.Context(), o.GetName(), metav1.DeleteOptions{}); err != nil {
		t.Errorf("delete: %v", err)
	}
}

// TestAdmissionPolicyTypeChecks lets the controller manager type-check the expressions, and also a copy of the policy with a
// mistake.
func TestAdmissionPolicyTypeChecks(t *testing.T) {
	policies := shared.Cluster(t).Client().AdmissionregistrationV1().ValidatingAdmissionPolicies()
	original, err := policies.Get(t.Context(), "nodemaintenances.rehome.dev", metav1.GetOptions{})
	expect.Must(t, err)
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "mistaken"}, Spec: original.Spec}
	mistake := len(policy.Spec.Validations)
	policy.Spec.Validations = append(policy.Spec.Validations, admissionv1.Validation{Expression: "object.spec.node.names == []"})
	if _, err := policies.Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	defer policies.Delete(context.Background(), policy.Name, metav1.DeleteOptions{})
	expect.Eventually(t, "the check of the policy", func() bool {
		if policy, err = policies.Get(t.Context(), policy.Name, metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		return policy.Status.TypeChecking != nil
	})
	var found []string
	for _, w := range policy.Status.TypeChecking.ExpressionWarnings {
		found = append(found, w.FieldRef)
		t.Log(w.Warning)
	}
	if want := []string{fmt.Sprintf("spec.validations[%d].expression", mistake)}; !slices.Equal(found, want) {
		t.Errorf("warnings about %q, want %q", found, want)
	}
}
