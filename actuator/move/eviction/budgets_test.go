package eviction

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
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

func TestCheckedBudgets(t *testing.T) {
	selects := &metav1.LabelSelector{}
	healthy := policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 2, CurrentHealthy: 2, DesiredHealthy: 2}
	short := policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 2, CurrentHealthy: 1, DesiredHealthy: 2}
	a, lenient, strict := budget("a", selects, short), budget("lenient", selects, short), budget("strict", selects, healthy)
	lenient.Spec.UnhealthyPodEvictionPolicy = new(policyv1.AlwaysAllow)
	strict.Spec.UnhealthyPodEvictionPolicy = new(policyv1.IfHealthyBudget)
	type pdbs = []policyv1.PodDisruptionBudget
	for name, c := range map[string]struct {
		phase       corev1.PodPhase
		ready, gone bool
		budgets     pdbs
		checked     bool
	}{
		"pending":                    {corev1.PodPending, false, false, pdbs{a, strict}, false},
		"succeeded":                  {corev1.PodSucceeded, false, false, pdbs{a}, false},
		"failed":                     {corev1.PodFailed, false, false, pdbs{a}, false},
		"terminating":                {corev1.PodRunning, true, true, pdbs{a}, false},
		"ready":                      {corev1.PodRunning, true, false, pdbs{lenient}, true},
		"unready":                    {corev1.PodRunning, false, false, pdbs{a}, true},
		"unready_lenient":            {corev1.PodRunning, false, false, pdbs{lenient}, false},
		"unready_healthy":            {corev1.PodRunning, false, false, pdbs{strict}, false},
		"unready_healthy_by_default": {corev1.PodRunning, false, false, pdbs{budget("b", selects, healthy)}, false},
		"unready_not_counted":        {corev1.PodRunning, false, false, pdbs{budget("b", selects, policyv1.PodDisruptionBudgetStatus{})}, true},
		"unready_several":            {corev1.PodRunning, false, false, pdbs{lenient, strict}, true},
		"unselected":                 {corev1.PodRunning, true, false, pdbs{budget("b", nil, short)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := aPod()
			if pod.Status = (corev1.PodStatus{Phase: c.phase}); c.ready {
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			}
			if c.gone {
				pod.DeletionTimestamp = &metav1.Time{}
			}
			var want pdbs
			if c.checked {
				want = c.budgets
			}
			if got := Checked(pod, c.budgets); !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
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
