package crds

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rehome-dev/rehome/test/expect"
)

// TestNamespaceOwnersWriteDrainRules gives a user the role edit in one namespace.
func TestNamespaceOwnersWriteDrainRules(t *testing.T) {
	mine := object(t, "DrainRule", "tried", "{behavior: Skip}")
	mine.SetNamespace("shop")
	inNamespace(t, mine)
	_, err := theCluster(t).Client().RbacV1().RoleBindings("shop").Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: tenant},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: tenant}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	refused := func(o *unstructured.Unstructured) bool {
		_, err := in(as(t, tenant), o).Create(t.Context(), o, tried)
		if err != nil && !apierrors.IsForbidden(err) {
			t.Fatalf("an error of another kind: %v", err)
		}
		return err != nil
	}
	expect.Eventually(t, "the rights of "+tenant, func() bool { return !refused(mine) })
	if _, err := in(as(t, tenant), mine).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("to read them: %v", err)
	}
	for name, o := range map[string]*unstructured.Unstructured{
		"a rule of another namespace": object(t, "DrainRule", "tried", "{behavior: Skip}"),
		"a rule of the cluster":       object(t, "ClusterDrainRule", "tried", "{behavior: Skip}"),
		"a maintenance":               maintenance(t, "tried", "{nodes: {names: [worker-0]}, reason: r}"),
	} {
		if !refused(o) {
			t.Errorf("%s is taken", name)
		}
	}
}
