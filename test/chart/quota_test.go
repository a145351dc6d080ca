package chart

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/test/kit/manifesttest"
)

// TestQuota has the classes in the scopes of the ResourceQuota. The API server rejects a scope without a class.
func TestQuota(t *testing.T) {
	for name, c := range map[string]struct {
		set  string
		want [][]string // the classes of each quota
	}{
		"disabled":  {"resourceQuota.enabled=false", nil},
		"default":   {"resourceQuota.enabled=true", [][]string{{"system-cluster-critical"}}},
		"own_class": {"resourceQuota.enabled=true,priorityClassName=high", [][]string{{"high"}}},
		"no_class":  {"resourceQuota.enabled=true,priorityClassName=", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got [][]string
			for _, o := range rendered(t, "rehome", "--set", c.set) {
				if o.GetKind() == "ResourceQuota" {
					got = append(got, manifesttest.Typed[corev1.ResourceQuota](t, o).Spec.ScopeSelector.MatchExpressions[0].Values)
				}
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
