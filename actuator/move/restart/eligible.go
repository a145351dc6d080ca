package restart

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// check returns why a candidate cannot be moved by its Deployment now, or nil. It is a pure function.
type check func(candidate) *move.Refusal

// checks are the checks that a candidate passes, in this order: permanent reasons come first. A check may rely on the ones
// before it.
func checks() []check {
	return []check{
		startsFirst,     // a Deployment that stops before it starts gains nothing
		sharesVolumes,   // two pods are there at the same time
		notPaused,       // a paused Deployment rolls nothing out
		notStuck,        // what got stuck once gets stuck again
		notRolling,      // one at a time; a second pod of the same Deployment goes with the first
		healthy,         // a Deployment that lacks pods needs them more than a better place
		notJustNow,      // each restart makes a revision, and may put the pod where it was
		budgetGivesWay,  // a surge that cannot end does not begin
		withinQuotas,    // the API server would refuse the pod
		fitsElsewhere,   // no node would take it
		sharesNoDevices, // the new pod could only run beside the old one
	}
}

// eligible returns the first refusal, or nil.
func eligible(c candidate) *move.Refusal {
	for _, check := range checks() {
		if refusal := check(c); refusal != nil {
			return refusal
		}
	}
	return nil
}

// not makes a refusal about a candidate's Deployment, with the outcome that goes with the reason.
func not(c candidate, reason schemas.ReasonCode, format string, args ...any) *move.Refusal {
	outcome := schemas.Deferred
	switch reason {
	case schemas.ReasonRestartStrategy, schemas.ReasonRestartVolume:
		outcome = schemas.Rejected
	case schemas.ReasonForbidden, schemas.ReasonInvalid:
		outcome = schemas.Failed
	}
	name := "deployment " + c.Deployment.Namespace + "/" + c.Deployment.Name
	return &move.Refusal{Outcome: outcome, Reason: reason, Message: name + ": " + fmt.Sprintf(format, args...)}
}

func startsFirst(c candidate) *move.Refusal {
	const reason = schemas.ReasonRestartStrategy
	strategy := c.Deployment.Spec.Strategy
	if strategy.Type == appsv1.RecreateDeploymentStrategyType {
		return not(c, reason, "spec.strategy.type is Recreate: it stops its pods before it starts new ones")
	}
	surge, unavailable, err := fenceposts(c.Deployment)
	switch {
	case err != nil:
		return not(c, reason, "spec.strategy.rollingUpdate: %v", err)
	case surge == 0:
		return not(c, reason, "maxSurge comes to 0 of %d replicas: it starts no pod before it stops one",
			replicasOf(c.Deployment))
	case unavailable > 0 && c.Method == schemas.MethodRestart:
		return not(c, reason,
			"maxUnavailable comes to %d of %d replicas: a rollout may stop a pod before its replacement is available",
			unavailable, replicasOf(c.Deployment))
	}
	return nil
}

// fenceposts are how many pods more, and how many fewer, a rollout may have. A Deployment that allows neither gets one
// fewer, as its controller does it.
func fenceposts(d *appsv1.Deployment) (surge, unavailable int, err error) {
	surgeOf, unavailableOf := intstr.FromString("25%"), intstr.FromString("25%")
	if r := d.Spec.Strategy.RollingUpdate; r != nil {
		surgeOf = *intstr.ValueOrDefault(r.MaxSurge, surgeOf)
		unavailableOf = *intstr.ValueOrDefault(r.MaxUnavailable, unavailableOf)
	}
	total := int(replicasOf(d))
	if surge, err = intstr.GetScaledValueFromIntOrPercent(&surgeOf, total, true); err != nil {
		return 0, 0, fmt.Errorf("maxSurge: %w", err)
	}
	if unavailable, err = intstr.GetScaledValueFromIntOrPercent(&unavailableOf, total, false); err != nil {
		return 0, 0, fmt.Errorf("maxUnavailable: %w", err)
	}
	if surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	return surge, unavailable, nil
}

func notPaused(c candidate) *move.Refusal {
	if !c.Deployment.Spec.Paused {
		return nil
	}
	return not(c, schemas.ReasonRestartPaused, "spec.paused is true")
}

func notStuck(c candidate) *move.Refusal {
	why, stuck := stuck(c.Deployment, c.Now)
	if !stuck {
		return nil
	}
	return not(c, schemas.ReasonRestartUnhealthy, "its last rollout got stuck: %s", why)
}

func notRolling(c candidate) *move.Refusal {
	if d := c.Deployment; surging(d) || !rolledOut(d) {
		return not(c, schemas.ReasonRestartRunning, "%s", describe(d))
	}
	return nil
}

func healthy(c candidate) *move.Refusal {
	if complete(c.Deployment) {
		return nil
	}
	return not(c, schemas.ReasonRestartUnhealthy, "%s", describe(c.Deployment))
}

func notJustNow(c candidate) *move.Refusal {
	last, err := time.Parse(time.RFC3339Nano, c.Deployment.Annotations[restartedAt])
	if err != nil { // there is none, or another client wrote it
		return nil
	}
	if c.Policy.AgainAlone && replicasOf(c.Deployment) == 1 {
		return nil
	}
	cooldown := c.Policy.Cooldown
	if cooldown == 0 {
		cooldown = policy.DefaultRestartCooldown
	}
	if again := last.Add(cooldown); c.Now.Before(again) {
		return not(c, schemas.ReasonRestartCooldown, "it was restarted at %s, and will not be again before %s",
			clock(last), clock(again))
	}
	return nil
}

func fitsElsewhere(c candidate) *move.Refusal {
	if c.Elsewhere == nil {
		return nil
	}
	if ok, why := c.Elsewhere(c.Pod); !ok {
		return not(c, schemas.ReasonRestartNoRoom, "no other node would take a second pod: %s", why)
	}
	return nil
}

func sharesNoDevices(c candidate) *move.Refusal {
	for _, claim := range c.Pod.Spec.ResourceClaims {
		if claim.ResourceClaimName != nil {
			return not(c, schemas.ReasonRestartNoRoom,
				"the devices of the ResourceClaim %s are allocated where the pod runs", *claim.ResourceClaimName)
		}
	}
	return nil
}

// clock is a time as messages have it.
func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

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
	bound, err := 0, error(nil)
	switch {
	case b.Spec.MaxUnavailable != nil:
		bound, err = intstr.GetScaledValueFromIntOrPercent(b.Spec.MaxUnavailable, expected, true)
		bound = max(expected-bound, 0)
	case b.Spec.MinAvailable != nil:
		bound, err = intstr.GetScaledValueFromIntOrPercent(b.Spec.MinAvailable, expected, true)
	}
	return err == nil && healthy > bound
}
