package restart

import (
	"cmp"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// eligible returns the reason why the Deployment cannot move the candidate now, or nil. Permanent reasons come first, and a
// check may rely on the ones before it. It is a pure function.
func eligible(c candidate) *move.Refusal {
	if why := startsFirst(c); why != "" { // a Deployment that stops its pod before it starts a new one gains nothing
		return refuse(c, schemas.ReasonRestartStrategy, why)
	}
	if why := sharesVolumes(c); why != "" { // two pods exist at the same time
		return refuse(c, schemas.ReasonRestartVolume, why)
	}
	d := c.Deployment
	why, isStuck := stuck(d, c.Now)
	switch {
	case d.Spec.Paused: // a paused Deployment does not roll out
		return refuse(c, schemas.ReasonRestartPaused, "spec.paused is true")
	case isStuck: // a stuck rollout would get stuck again
		return refuse(c, schemas.ReasonRestartUnhealthy, "its last rollout got stuck: "+why)
	case surging(d) || !rolledOut(d): // one rollout at a time; it also moves a second pod of the Deployment
		return refuse(c, schemas.ReasonRestartRunning, describe(d))
	case !complete(d): // a Deployment that lacks pods needs them more than a better node
		return refuse(c, schemas.ReasonRestartUnhealthy, describe(d))
	}
	if why := justRestarted(c); why != "" { // each restart makes a revision, and may put the pod where it was
		return refuse(c, schemas.ReasonRestartCooldown, why)
	}
	if why := budgetNeverAllows(c); why != "" { // a surge that cannot end does not begin
		return refuse(c, schemas.ReasonDisruptionBudget, why)
	}
	if why := fitsNowhereElse(c); why != "" {
		return refuse(c, schemas.ReasonRestartNoRoom, why)
	}
	return nil
}

// refuse returns a refusal about a candidate's Deployment, with the outcome for the reason.
func refuse(c candidate, reason schemas.ReasonCode, why string) *move.Refusal {
	outcome := schemas.Deferred
	if reason == schemas.ReasonRestartStrategy || reason == schemas.ReasonRestartVolume {
		outcome = schemas.Rejected
	}
	name := "deployment " + c.Deployment.Namespace + "/" + c.Deployment.Name
	return &move.Refusal{Outcome: outcome, Reason: reason, Message: name + ": " + why}
}

func startsFirst(c candidate) string {
	if c.Deployment.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		return "spec.strategy.type is Recreate: it stops its pods before it starts new ones"
	}
	surge, unavailable, err := fenceposts(c.Deployment)
	switch {
	case err != nil:
		return fmt.Sprintf("spec.strategy.rollingUpdate: %v", err)
	case surge == 0:
		return fmt.Sprintf("maxSurge comes to 0 of %d replicas: it starts no pod before it stops one", replicasOf(c.Deployment))
	case unavailable > 0 && c.Method == schemas.MethodRestart:
		return fmt.Sprintf("maxUnavailable comes to %d of %d replicas: a rollout may stop a pod before its replacement is available",
			unavailable, replicasOf(c.Deployment))
	}
	return ""
}

// fenceposts returns how many pods more, and how many fewer, a rollout may have. If a Deployment allows neither, its
// controller uses one fewer.
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

func justRestarted(c candidate) string {
	last, err := time.Parse(time.RFC3339Nano, c.Deployment.Annotations[restartedAt])
	again := last.Add(cmp.Or(c.Policy.Cooldown, policy.DefaultRestartCooldown))
	switch {
	case err != nil: // there is none, or another client wrote it
	case c.Policy.AgainAlone && replicasOf(c.Deployment) == 1:
	case c.Now.Before(again):
		return fmt.Sprintf("it was restarted at %s, and is not restarted again before %s", clock(last), clock(again))
	}
	return ""
}

func fitsNowhereElse(c candidate) string {
	if c.Elsewhere != nil {
		if ok, why := c.Elsewhere(c.Pod); !ok {
			return "no other node would take a second pod: " + why
		}
	}
	for _, claim := range c.Pod.Spec.ResourceClaims { // the new pod could only run beside the old one
		if claim.ResourceClaimName != nil {
			return fmt.Sprintf("the devices of the ResourceClaim %s are allocated where the pod runs", *claim.ResourceClaimName)
		}
	}
	return ""
}

// clock formats a time for messages.
func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// budgetNeverAllows detects a surge that would never end, because one pod more does not make the budget allow a
// disruption. A rollout restart needs no budget: it never has fewer available pods than the Deployment wants.
func budgetNeverAllows(c candidate) string {
	switch {
	case c.Method != schemas.MethodSurge || len(c.Budgets) == 0:
		return ""
	case len(c.Budgets) > 1:
		return fmt.Sprintf("more than one poddisruptionbudget matches the pod: %s and %s", c.Budgets[0].Name, c.Budgets[1].Name)
	case !givesWay(c.Budgets[0]):
		return fmt.Sprintf("one replica more does not make poddisruptionbudget %s allow a disruption", c.Budgets[0].Name)
	}
	return ""
}

// givesWay reports whether a budget would allow a disruption with one more desired and healthy pod.
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
