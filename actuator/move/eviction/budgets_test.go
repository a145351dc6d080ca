package eviction

import (
	"reflect"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas"
)

func budget(name string, selector *metav1.LabelSelector, status policyv1.PodDisruptionBudgetStatus) policyv1.PodDisruptionBudget {
	return policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, Generation: 2, UID: "uid-" + "x"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: selector}, Status: status,
	}
}

func TestMatchingBudgets(t *testing.T) {
	app := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "api"}}
	elsewhere := budget("elsewhere", app, policyv1.PodDisruptionBudgetStatus{})
	elsewhere.Namespace = "other"
	pod := aPod()
	pod.Labels = map[string]string{"app": "api"}
	var got []string
	for _, b := range Matching(pod, []policyv1.PodDisruptionBudget{
		budget("selects-it", app, policyv1.PodDisruptionBudgetStatus{}),
		budget("selects-all", &metav1.LabelSelector{}, policyv1.PodDisruptionBudgetStatus{}),
		budget("selects-none", nil, policyv1.PodDisruptionBudgetStatus{}),
		budget("selects-others", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}, policyv1.PodDisruptionBudgetStatus{}),
		budget("unreadable", &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Near"}}},
			policyv1.PodDisruptionBudgetStatus{}),
		elsewhere,
	}) {
		got = append(got, b.Name)
	}
	if want := []string{"selects-it", "selects-all"}; !reflect.DeepEqual(got, want) {
		t.Errorf("matching budgets\n got %v\nwant %v", got, want)
	}
}

func TestBlockingBudgets(t *testing.T) {
	all := &metav1.LabelSelector{}
	status := func(observed int64, allowed, current, desired int32) policyv1.PodDisruptionBudgetStatus {
		return policyv1.PodDisruptionBudgetStatus{
			ObservedGeneration: observed, DisruptionsAllowed: allowed, CurrentHealthy: current, DesiredHealthy: desired,
		}
	}
	ref := func(name string) schemas.ObjectRef {
		return schemas.ObjectRef{Kind: "PodDisruptionBudget", Namespace: "web", Name: name, UID: "uid-x"}
	}
	tests := []struct {
		name    string
		budgets []policyv1.PodDisruptionBudget
		refs    []schemas.ObjectRef
		message string
	}{
		{"a budget that needs all pods holds",
			[]policyv1.PodDisruptionBudget{budget("api", all, status(2, 0, 3, 3)), budget("free", all, status(2, 1, 3, 2))},
			[]schemas.ObjectRef{ref("api")}, "poddisruptionbudget web/api: 3 of 3 healthy pods needed"},
		{"a budget with too few healthy pods says how many it has",
			[]policyv1.PodDisruptionBudget{budget("api", all, status(2, 0, 1, 2))},
			[]schemas.ObjectRef{ref("api")}, "poddisruptionbudget web/api: 1 healthy pods, 2 needed"},
		{"a budget that was just changed holds until it is counted",
			[]policyv1.PodDisruptionBudget{budget("api", all, status(1, 1, 3, 2))},
			[]schemas.ObjectRef{ref("api")}, "poddisruptionbudget web/api: not yet counted by the disruption controller"},
		{"every budget that holds is named",
			[]policyv1.PodDisruptionBudget{budget("a", all, status(2, 0, 2, 2)), budget("b", all, status(2, 0, 3, 3))},
			[]schemas.ObjectRef{ref("a"), ref("b")},
			"poddisruptionbudget web/a: 2 of 2 healthy pods needed; poddisruptionbudget web/b: 3 of 3 healthy pods needed"},
		{"a budget that was freed since is still named",
			[]policyv1.PodDisruptionBudget{budget("api", all, status(2, 1, 3, 2))},
			[]schemas.ObjectRef{ref("api")}, "poddisruptionbudget web/api: freed meanwhile, 2 of 3 healthy pods needed"},
		{"without a budget the API server's words stay", nil, nil, "as the API server put it"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			refs, message := Blockers(tt.budgets, "as the API server put it")
			if !reflect.DeepEqual(refs, tt.refs) || message != tt.message {
				t.Errorf("got %v %q\nwant %v %q", refs, message, tt.refs, tt.message)
			}
		})
	}
}
