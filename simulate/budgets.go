package simulate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/rehome-dev/rehome/actuator"
	"github.com/rehome-dev/rehome/actuator/move/eviction"
	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/schemas"
)

// budgets simulate the API server's decisions about PodDisruptionBudgets. They start with the status in the objects: a
// budget without a status allows nothing.
type budgets map[string][]policyv1.PodDisruptionBudget // by namespace

// carry evicts unless a budget forbids it. Each eviction uses up a disruption.
func (b budgets) carry(open actuator.Intent, pod *corev1.Pod) schemas.Verdict {
	evicted := open.Verdict(schemas.Evicted, schemas.ReasonEvictionAccepted, "evicted from "+open.Node)
	matching := eviction.Checked(pod, b[pod.Namespace])
	switch {
	case len(matching) == 0:
		return evicted
	case len(matching) > 1:
		return open.Verdict(schemas.Failed, schemas.ReasonInvalid,
			"more than one poddisruptionbudget matches the pod: "+names(matching))
	}
	at := slices.IndexFunc(b[pod.Namespace], func(p policyv1.PodDisruptionBudget) bool { return p.Name == matching[0].Name })
	status := &b[pod.Namespace][at].Status
	if !cluster.Allows(&matching[0]) {
		v := open.Verdict(schemas.Deferred, schemas.ReasonDisruptionBudget, "")
		v.Blockers, v.Message = eviction.Blockers(matching, "")
		return v
	}
	status.DisruptionsAllowed--
	status.CurrentHealthy--
	return evicted
}

func names(list []policyv1.PodDisruptionBudget) string {
	all := make([]string, len(list))
	for i := range list {
		all[i] = list[i].Namespace + "/" + list[i].Name
	}
	return strings.Join(all, ", ")
}
