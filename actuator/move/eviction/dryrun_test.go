package eviction

import (
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestADryRunUsesUpABudgetUntilAReplacementWouldBeReady(t *testing.T) {
	budget := policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "api"}}
	budget.Status.DisruptionsAllowed = 2
	var v dryRunBudgets
	took := func(pod types.UID, after time.Duration) bool {
		full, _ := v.take(pod, []policyv1.PodDisruptionBudget{budget}, noon.Add(after))
		return len(full) == 0
	}
	got := []bool{took("1", 0), took("2", time.Second), took("3", 2*time.Second), took("1", 3*time.Second)}
	check(t, "the first two, not a third, and one of the two again", got, []bool{true, true, false, true})

	v.giveBack("2")
	got = []bool{took("3", 4*time.Second), took("4", 4*time.Second), took("4", 3*time.Second+countedFor)}
	check(t, "one in the place of what was given back, no other, and one when time has passed", got, []bool{true, false, true})
}

func TestABudgetThatAllowsNothingIsLeftToTheAPIServer(t *testing.T) {
	var v dryRunBudgets
	full, used := v.take("1", []policyv1.PodDisruptionBudget{{}}, noon)
	check(t, "full", len(full), 0)
	check(t, "used", used, 0)
}
