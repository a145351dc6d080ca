package crds

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/cluster"
)

// denied begins what the API server says when the policy does not allow something.
const denied = `nodemaintenances.rehome.dev "%s" is forbidden: ValidatingAdmissionPolicy 'nodemaintenances.rehome.dev' with binding ` +
	`'nodemaintenances.rehome.dev' denied request: `

// rights gives the users their rights, and waits until these and the policy hold.
var rights = sync.OnceValue(func() error {
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
		if err := grant(started, user, rules); err != nil {
			return err
		}
	}
	return nil
})

// grant gives a user rights in the whole cluster.
func grant(c *cluster.Cluster, user string, rules []rbacv1.PolicyRule) error {
	ctx, meta := context.Background(), metav1.ObjectMeta{Name: user}
	if _, err := c.Client().RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := c.Client().RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
	}, metav1.CreateOptions{})
	return err
}

// guarded waits until the policy and the rights of the users hold: a new one holds some time after it is written.
func guarded(t *testing.T) {
	t.Helper()
	theCluster(t)
	if err := rights(); err != nil {
		t.Fatal(err)
	}
	// porter is the last to get his rights, bystander the last to lose his.
	wait(t, "the rights of "+porter, func() bool { return try(t, porter, "{nodes: {names: [worker-0]}, reason: r}") == "" })
	wait(t, "the rights of "+janitor, func() bool { return try(t, janitor, "{nodes: {names: [worker-0]}, reason: r}") == "" })
	wait(t, "the policy", func() bool {
		return strings.HasPrefix(try(t, bystander, "{nodes: {names: [worker-0]}, reason: r}"), fmt.Sprintf(denied, "tried"))
	})
}

// wait waits until something is so, at most a minute.
func wait(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not after a minute: %s", what)
		}
	}
}

// try is what is said when a user wants to make a maintenance. Empty: it would be made.
func try(t *testing.T, user, spec string) string {
	t.Helper()
	o := maintenance(t, "tried", spec)
	_, err := in(as(t, user), o).Create(t.Context(), o, tried)
	return said(t, err)
}

// said is the message of a refusal.
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

func TestWhoMakesAMaintenanceMayDeleteItsNodes(t *testing.T) {
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
		{"who may delete all nodes may name some", janitor, list("worker-0", "other"), ""},
		{"who may delete all nodes may name a thousand", janitor, "{nodes: {names: " + names(1000) + "}, reason: r}", ""},
		{"who may delete all nodes may select", janitor, selector, ""},
		{"who may delete some nodes may name one of them", porter, list("worker-11"), ""},
		{"who may delete some nodes may name ten of them", porter, ten, ""},
		{"who may delete some nodes may not name eleven", porter, "{nodes: {names: " + names(11) + "}, reason: r}", porter + many},
		{"who may delete some nodes may not name others", porter, list("other", "worker-1", "worker-12"), porter + some + "other, worker-1, worker-12"},
		{"who may delete some nodes may not select", porter, selector, porter + labels},
		{"who may delete no nodes may not name one", bystander, list("worker-1"), bystander + some + "worker-1"},
		{"who may delete no nodes may not select", bystander, selector, bystander + labels},
		{"who may delete no nodes may not announce either", bystander, with("stage: Idle"), bystander + some + "worker-1"},
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

func TestEachOfTenNamesCounts(t *testing.T) {
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

func TestWhoSaysWhatIsDoneToNodesNowMayDeleteThem(t *testing.T) {
	guarded(t)
	const no = bystander + " needs the right to delete each node of the maintenance: worker-1"
	for _, test := range []struct{ name, before, after, want string }{
		{"nobody moves the stage to Cordon", "stage: Idle", "stage: Cordon", no},
		{"nobody moves the stage to Drain", "stage: Idle", "stage: Drain", no},
		{"nobody moves the stage on to Drain", "stage: Cordon", "stage: Drain", no},
		{"nobody has more nodes drained at once", "stage: Drain, atOnce: 1", "stage: Drain, atOnce: 100%", no},
		{"nobody opens the window of a drain", "stage: Drain, window: {end: '2026-12-01T00:00:00Z'}", "stage: Drain", no},
		{"nobody lifts a guard of a drain", "stage: Drain", "stage: Drain, force: [AllNodes]", no},
		{"everybody may change what is only announced", "stage: Idle", "stage: Idle, atOnce: 100%", ""},
		{"everybody may complete what is only announced", "stage: Idle", "stage: Complete", ""},
		{"everybody may complete a cordon", "stage: Cordon", "stage: Complete", ""},
		{"everybody may complete a drain", "stage: Drain", "stage: Complete", ""},
		{"everybody may change what is complete", "stage: Complete", "stage: Complete, topology: zone", ""},
		{"everybody may leave it as it is", "stage: Drain", "stage: Drain", ""},
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
			t.Errorf("%s, but who may delete nodes: %v", test.name, err)
		}
		remove()
	}
}

func TestNothingMoreIsNeededToDeleteAMaintenanceOrToWriteItsStatus(t *testing.T) {
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

// TestTheExpressionsOfThePolicyFitTheKind has the controller manager hold them against the schema, in a copy of the policy with
// one mistake that it has to find.
func TestTheExpressionsOfThePolicyFitTheKind(t *testing.T) {
	policies := theCluster(t).Client().AdmissionregistrationV1().ValidatingAdmissionPolicies()
	original, err := policies.Get(t.Context(), "nodemaintenances.rehome.dev", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "mistaken"}, Spec: original.Spec}
	mistake := len(policy.Spec.Validations)
	policy.Spec.Validations = append(policy.Spec.Validations, admissionv1.Validation{Expression: "object.spec.node.names == []"})
	if _, err := policies.Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	defer policies.Delete(context.Background(), policy.Name, metav1.DeleteOptions{})
	wait(t, "the check of the policy", func() bool {
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
