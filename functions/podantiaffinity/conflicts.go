package podantiaffinity

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
)

// conflicts is a graph. Each edge joins a candidate and a pod that it repels: one of the two has to leave.
type conflicts struct {
	candidates []*schemas.ContendingPod // the first costs least to move
	with       map[types.UID][]types.UID
}

func newConflicts(candidates []*schemas.ContendingPod, pods map[types.UID]*schemas.ContendingPod) conflicts {
	c := conflicts{candidates: candidates, with: map[types.UID][]types.UID{}}
	for _, p := range candidates {
		for _, other := range p.Repels {
			if pods[other] != nil {
				c.with[p.Pod.UID] = append(c.with[p.Pod.UID], other)
				c.with[other] = append(c.with[other], p.Pod.UID)
			}
		}
	}
	return c
}

// leaving returns the pods that have to leave. It tries the cheapest pods first, then the pods with the most conflicts first, and
// returns the smaller set.
func (c conflicts) leaving() map[types.UID]bool {
	cheapest := c.needed(c.cheapestFirst())
	if most := c.needed(c.mostFirst()); len(most) < len(cheapest) {
		return most
	}
	return cheapest
}

// cheapestFirst lists the pods that leave if each leaves that repels one that stays by then.
func (c conflicts) cheapestFirst() (list []types.UID) {
	left := map[types.UID]bool{}
	for _, p := range c.candidates {
		if slices.ContainsFunc(p.Repels, func(other types.UID) bool { return !left[other] && c.with[other] != nil }) {
			left[p.Pod.UID] = true
			list = append(list, p.Pod.UID)
		}
	}
	return list
}

// mostFirst lists the pods that leave if the one with the most conflicts leaves until there are none.
func (c conflicts) mostFirst() (list []types.UID) {
	count := make(map[types.UID]int, len(c.with))
	for uid, others := range c.with {
		count[uid] = len(others)
	}
	for {
		var most types.UID
		for _, p := range c.candidates {
			if count[p.Pod.UID] > count[most] {
				most = p.Pod.UID
			}
		}
		if most == "" {
			return list
		}
		list = append(list, most)
		delete(count, most)
		for _, other := range c.with[most] {
			if count[other] > 0 {
				count[other]--
			}
		}
	}
}

// needed drops pods from a list, the last first, as long as every conflict ends.
func (c conflicts) needed(list []types.UID) map[types.UID]bool {
	leave := make(map[types.UID]bool, len(list))
	for _, uid := range list {
		leave[uid] = true
	}
	for _, uid := range slices.Backward(list) {
		if !slices.ContainsFunc(c.with[uid], func(other types.UID) bool { return !leave[other] }) {
			delete(leave, uid)
		}
	}
	return leave
}
