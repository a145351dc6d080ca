package eviction

import (
	"context"
	"maps"
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

// dryRunBudgets counts what a dry run would have evicted against the budgets: the API server judges each eviction as if there
// had been no other. It is safe for concurrent use.
type dryRunBudgets struct {
	mu   sync.Mutex
	used map[types.NamespacedName]map[types.UID]time.Time
}

// take counts a pod against its budgets, if each of them allows one more than were counted. If not, it returns the
// budgets that do not, and how many were counted against the first of them.
func (v *dryRunBudgets) take(
	pod types.UID, budgets []policyv1.PodDisruptionBudget, now time.Time,
) (full []policyv1.PodDisruptionBudget, used int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, b := range budgets {
		counted := v.used[nameOfBudget(b)]
		maps.DeleteFunc(counted, func(uid types.UID, at time.Time) bool { return uid == pod || now.Sub(at) >= countedFor })
		if len(counted) > 0 && len(counted) >= int(b.Status.DisruptionsAllowed) {
			if len(full) == 0 {
				used = len(counted)
			}
			full = append(full, b)
		}
	}
	for _, b := range budgets {
		if len(full) > 0 {
			break
		}
		name := nameOfBudget(b)
		if v.used == nil {
			v.used = map[types.NamespacedName]map[types.UID]time.Time{}
		}
		if v.used[name] == nil {
			v.used[name] = map[types.UID]time.Time{}
		}
		v.used[name][pod] = now
	}
	return full, used
}

// giveBack forgets a pod that would not have been evicted after all.
func (v *dryRunBudgets) giveBack(pod types.UID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for name, counted := range v.used {
		delete(counted, pod)
		if len(counted) == 0 {
			delete(v.used, name)
		}
	}
}

func nameOfBudget(b policyv1.PodDisruptionBudget) types.NamespacedName {
	return types.NamespacedName{Namespace: b.Namespace, Name: b.Name}
}

// usedUp returns the refusal of a pod whose budget is used up by pods that the dry run would have evicted. nil: none is.
// Budgets that cannot be listed hold nothing: the API server is asked next.
func (m *Method) usedUp(ctx context.Context, pod *corev1.Pod) *move.Refusal {
	budgets, err := m.budgets(ctx, pod)
	if err != nil {
		return nil
	}
	full, used := m.used.take(pod.UID, budgets, m.cfg.Now())
	if len(full) == 0 {
		return nil
	}
	r := move.Deferred(schemas.ReasonDisruptionBudget, "poddisruptionbudget %s/%s allows %d, and %d would have been evicted",
		full[0].Namespace, full[0].Name, full[0].Status.DisruptionsAllowed, used)
	r.Blockers, _ = Blockers(full, "")
	return r
}
