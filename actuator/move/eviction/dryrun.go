package eviction

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/schemas"
)

// countedFor is how long a pod that a dry run would have evicted counts against its budget: about as long as a replacement
// takes to be ready.
const countedFor = 30 * time.Second

// dryRunBudgets counts what a dry run would have evicted against the budgets. It is safe for concurrent use.
type dryRunBudgets struct {
	mu   sync.Mutex
	used []counted
}

// counted is a pod that would have been evicted and one of its budgets.
type counted struct {
	pod, budget types.UID
	at          time.Time
}

// take counts a pod against its budgets, if each of them allows one more than were counted. If not, it returns the
// budgets that do not, and how many were counted against the first of them.
func (v *dryRunBudgets) take(
	pod types.UID, budgets []policyv1.PodDisruptionBudget, now time.Time,
) (full []policyv1.PodDisruptionBudget, used int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.used = slices.DeleteFunc(v.used, func(c counted) bool { return c.pod == pod || now.Sub(c.at) >= countedFor })
	for _, b := range budgets {
		n := 0
		for _, c := range v.used {
			if c.budget == b.UID {
				n++
			}
		}
		if n > 0 && n >= int(b.Status.DisruptionsAllowed) {
			full, used = append(full, b), cmp.Or(used, n)
		}
	}
	for _, b := range budgets {
		if len(full) == 0 {
			v.used = append(v.used, counted{pod, b.UID, now})
		}
	}
	return full, used
}

// giveBack forgets a pod that would not have been evicted after all.
func (v *dryRunBudgets) giveBack(pod types.UID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.used = slices.DeleteFunc(v.used, func(c counted) bool { return c.pod == pod })
}

// usedUp returns the refusal of a pod whose budget is used up by pods that the dry run would have evicted. nil: none is.
// Budgets that cannot be listed hold nothing: the API server is asked next.
func (m *Method) usedUp(ctx context.Context, pod *corev1.Pod, now time.Time) *move.Refusal {
	budgets, err := m.budgets(ctx, pod)
	if err != nil {
		return nil
	}
	full, used := m.used.take(pod.UID, budgets, now)
	if len(full) == 0 {
		return nil
	}
	r := move.Deferred(schemas.ReasonDisruptionBudget, "poddisruptionbudget %s/%s allows %d, and %d would have been evicted",
		full[0].Namespace, full[0].Name, full[0].Status.DisruptionsAllowed, used)
	r.Blockers, _ = Blockers(full, "")
	return r
}
