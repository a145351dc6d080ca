package simulate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// Settlement is the result of [Settle].
type Settlement struct {
	// Before is the state of the objects before the first round.
	Before State   `json:"before"`
	Rounds []Round `json:"rounds"`
	// Settled means that the last round moved no pod.
	Settled bool `json:"settled"`
	// Loop is set if the state after the last round equals the state after this round; 0 is the state before the first
	// round.
	Loop *int `json:"loop,omitempty"`
}

// Round is one evaluation of the policy, and the placement of the replacements.
type Round struct {
	Number int `json:"number"`
	// Moves are in the order of the moves.
	Moves []Move `json:"moves"`
	// Held lists the pods that are deferred or rejected.
	Held []Line `json:"held"`
	// Placed are pods that had no node before the round, and have one now.
	Placed []Placement `json:"placed,omitempty"`
	After  State       `json:"after"`
}

// Move is a pod that moves.
type Move struct {
	Line
	// Replacement is the name of the new pod, or empty if the pod has no owner that replaces it.
	Replacement string `json:"replacement,omitempty"`
	// To is the node of the replacement, or empty if it is Pending.
	To string `json:"to,omitempty"`
	// Pending is the reason why the replacement has no node.
	Pending string `json:"pending,omitempty"`
}

// Placement is a pod that the scheduler places.
type Placement struct {
	Pod  schemas.PodRef `json:"pod"`
	Node string         `json:"node"`
}

// Settle runs up to this many rounds, until no pod moves or a state repeats. After each round the moved pods are gone,
// and each replacement runs on the node where the scheduler is predicted to place it, the first by name among equals. A
// replacement is new and ready, without restarts. All rounds have the same time, and each round has new limits. Settle
// changes the objects, like [Run], and ignores c.Carry.
//
// The replacement of a pod has its name with a number, such as web-1~1, then web-1~2. A pod of a StatefulSet keeps its
// name.
func Settle(ctx context.Context, c Config, objects []metav1.Object, rounds int) (Settlement, error) {
	now := c.Now()
	c.Now, c.Carry, c.Loads = fixed(now), nil, Loads{Nodes: maps.Clone(c.Loads.Nodes), Pods: maps.Clone(c.Loads.Pods)}
	c.MinorVersion = cmp.Or(c.MinorVersion, newestKubelet(objects))
	w, err := newWorld(c, objects)
	if err != nil {
		return Settlement{}, err
	}
	var s Settlement
	states := map[string]int{}
	for number := 0; ; number++ {
		r, err := filled(c, w.objects)
		if err != nil {
			return s, err
		}
		state, err := r.state()
		if err != nil {
			return s, err
		}
		if number == 0 {
			s.Before = state
		} else {
			s.Rounds[number-1].After = state
		}
		places := w.places()
		if before, seen := states[places]; s.Settled || number == rounds || seen {
			if seen && !s.Settled {
				s.Loop = &before
			}
			return s, nil
		}
		states[places] = number
		next, err := r.result(ctx)
		if err != nil {
			return s, err
		}
		next.Number = number + 1
		next.Placed = w.apply(next.Moves)
		s.Settled = len(next.Moves) == 0
		s.Rounds = append(s.Rounds, next)
	}
}

// result runs the round, and returns its moves in their order and the pods that it holds.
func (r *round) result(ctx context.Context) (Round, error) {
	result := Round{Moves: []Move{}, Held: []Line{}}
	err := r.run(ctx, func(verdicts []schemas.Verdict) error {
		for _, v := range verdicts {
			if v.Outcome == schemas.Evicted {
				result.Moves = append(result.Moves, Move{Line: LineOf(v)})
			} else {
				result.Held = append(result.Held, LineOf(v))
			}
		}
		return nil
	})
	at := make(map[types.UID]int, len(r.moved))
	for i, uid := range r.moved {
		at[uid] = i
	}
	slices.SortFunc(result.Moves, func(a, b Move) int { return cmp.Compare(at[a.Pod.UID], at[b.Pod.UID]) })
	return result, err
}

// places returns the number of pods of each workload on each node. If strategies renew pods, replacements differ from
// the original pods.
func (w *world) places() string {
	renews := slices.ContainsFunc(w.Policy.Profiles, func(p policy.Profile) bool {
		return slices.ContainsFunc(p.Strategies, func(s policy.Enabled) bool { return w.Policy.Traits(s.Name).RenewsPods })
	})
	counts := map[string]int{}
	for _, o := range w.objects {
		if p, ok := o.(*corev1.Pod); ok {
			counts[fmt.Sprintf("%s on %s, new: %t", workload(p), p.Spec.NodeName, renews && !w.beginning[p.UID])]++
		}
	}
	var b strings.Builder
	for _, place := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintln(&b, place, counts[place])
	}
	return b.String()
}

// workload returns the name of the owner of a pod, or of the pod itself.
func workload(p *corev1.Pod) string {
	owner := metav1.GetControllerOfNoCopy(p)
	switch {
	case owner != nil:
	case len(p.OwnerReferences) > 0:
		owner = &p.OwnerReferences[0]
	default:
		owner = &metav1.OwnerReference{Kind: "Pod", Name: p.Name}
	}
	return owner.Kind + " " + p.Namespace + "/" + owner.Name
}
