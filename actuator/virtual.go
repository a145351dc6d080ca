package actuator

import (
	"context"
	"fmt"
	"sync"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
)

// virtualFor is how long a pod that a dry run would have evicted counts against its budget: about as long as a replacement
// takes to be ready.
const virtualFor = 30 * time.Second

// virtual counts what a dry run would have evicted against the budgets: the API server asks about each eviction as if there
// had been no other. It is safe for concurrent use. The zero value has counted nothing.
type virtual struct {
	mu   sync.Mutex
	used map[types.NamespacedName]map[types.UID]time.Time
}

// take counts a pod against its budgets, if each of them allows one more than were counted. If not, it returns those that
// do not, and how many were counted against the first of them.
func (v *virtual) take(
	pod types.UID, budgets []policyv1.PodDisruptionBudget, now time.Time,
) (full []policyv1.PodDisruptionBudget, used int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, b := range budgets {
		counted := v.used[nameOfBudget(b)]
		for uid, at := range counted {
			if uid == pod || now.Sub(at) >= virtualFor {
				delete(counted, uid)
			}
		}
		if len(counted) > 0 && len(counted) >= int(b.Status.DisruptionsAllowed) {
			if len(full) == 0 {
				used = len(counted)
			}
			full = append(full, b)
		}
	}
	if len(full) > 0 {
		return full, used
	}
	for _, b := range budgets {
		name := nameOfBudget(b)
		if v.used == nil {
			v.used = map[types.NamespacedName]map[types.UID]time.Time{}
		}
		if v.used[name] == nil {
			v.used[name] = map[types.UID]time.Time{}
		}
		v.used[name][pod] = now
	}
	return nil, 0
}

// giveBack forgets a pod that would not have been evicted after all.
func (v *virtual) giveBack(pod types.UID) {
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

// usedUp is the verdict on a pod whose budget is used up by pods that the dry run would have evicted, and whether it is.
// Budgets that cannot be listed hold nothing: the API server is asked next.
func (a *Actuator) usedUp(ctx context.Context, s Situation) (schemas.Verdict, bool) {
	budgets, err := a.budgets(ctx, s.Pod)
	if err != nil {
		return schemas.Verdict{}, false
	}
	full, used := a.virtual.take(s.Pod.UID, budgets, a.cfg.Now())
	if len(full) == 0 {
		return schemas.Verdict{}, false
	}
	v := a.verdict(s.Open, Objection{schemas.Deferred, schemas.ReasonDisruptionBudget, fmt.Sprintf(
		"poddisruptionbudget %s/%s allows %d, and %d would have been evicted", full[0].Namespace, full[0].Name,
		full[0].Status.DisruptionsAllowed, used)})
	v.Blockers, _ = Blockers(full, "")
	return v, true
}
