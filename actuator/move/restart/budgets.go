package restart

import (
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/schemas"
)

// budgetGivesWay refuses a surge that would never end, because one pod more does not make the budget allow a
// disruption. A rollout restart needs no budget: it never has fewer pods available than the Deployment wants.
func budgetGivesWay(c candidate) *move.Refusal {
	const reason = schemas.ReasonDisruptionBudget
	if c.Method != schemas.MethodSurge {
		return nil
	}
	if len(c.Budgets) > 1 {
		return not(c, reason, "more than one poddisruptionbudget matches the pod: %s and %s",
			c.Budgets[0].Name, c.Budgets[1].Name)
	}
	for _, b := range c.Budgets {
		if !givesWay(b) {
			return not(c, reason, "one replica more does not make poddisruptionbudget %s allow a disruption", b.Name)
		}
	}
	return nil
}

// givesWay says whether a budget would allow a disruption if one pod more were wanted and healthy.
func givesWay(b policyv1.PodDisruptionBudget) bool {
	expected, healthy := int(b.Status.ExpectedPods)+1, int(b.Status.CurrentHealthy)+1
	needed := 0
	switch {
	case b.Spec.MaxUnavailable != nil:
		may, err := intstr.GetScaledValueFromIntOrPercent(b.Spec.MaxUnavailable, expected, true)
		if err != nil {
			return false
		}
		needed = max(expected-may, 0)
	case b.Spec.MinAvailable != nil:
		var err error
		if needed, err = intstr.GetScaledValueFromIntOrPercent(b.Spec.MinAvailable, expected, true); err != nil {
			return false
		}
	}
	return healthy > needed
}
