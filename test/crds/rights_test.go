package crds

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

// TestNamespaceOwnersWriteDrainRules gives a user the role edit in one namespace.
func TestNamespaceOwnersWriteDrainRules(t *testing.T) {
	mine := object(t, "DrainRule", "tried", "{behavior: Skip}")
	mine.SetNamespace("shop")
	inNamespace(t, mine)
	expect.Must(t, shared.Cluster(t).Bind(t.Context(), cluster.UserSubject(tenant), "shop", "edit"))
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
