package restart

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

const (
	// cheapest is the deletion cost of a pod that goes first.
	cheapest = "-2147483647"
	// costBefore is the annotation on the pod with its previous deletion cost. It is empty if there was none.
	costBefore = "rehome.dev/surge-cost-before"
)

// cost is a change of a pod's deletion cost. nil values remove it.
type cost struct {
	Cost, Before *string
}

// lowerCost makes the pod the first that its ReplicaSet removes. It returns nil if it is that already.
func lowerCost(pod *corev1.Pod) *cost {
	if _, marked := pod.Annotations[costBefore]; marked {
		return nil
	}
	return &cost{Cost: new(cheapest), Before: new(pod.Annotations[corev1.PodDeletionCost])}
}

// restoreCost undoes lowerCost. It returns nil if there is nothing to undo.
func restoreCost(pod *corev1.Pod) *cost {
	if pod == nil {
		return nil
	}
	switch before, marked := pod.Annotations[costBefore]; {
	case !marked:
		return nil
	case before == "":
		return &cost{}
	default:
		return &cost{Cost: &before}
	}
}

// followSurge decides the next step of a surge.
func followSurge(s state, v view) decision {
	d := v.Deployment
	marked := d.Annotations[restartedAt] == s.value() && d.Annotations[surgeReplicas] != ""
	switch {
	case !marked: // the replica was removed, or another client removed the annotations and scaled the Deployment
		return settleSurge(s, v)
	case replicasOf(d) != s.Replicas+1:
		return leaveScaled(s, v)
	case v.going():
		return returnReplica(s)
	case s.Phase == takingBack:
		// The pod must stop being the first to go before the number of replicas changes. Otherwise its ReplicaSet would
		// remove it instead of a pod that is ready and not yet available.
		if restore := restoreCost(v.Pod); restore != nil {
			return decision{Cost: restore, Then: working(s, soon)}
		}
		return returnReplica(s)
	}
	if why, is := s.overdue(v, "surge"); is {
		return giveUp(why)
	}
	if lower := lowerCost(v.Pod); lower != nil {
		return decision{Cost: lower, Then: working(s, soon)}
	}
	if !complete(d) {
		return decision{Then: working(s, poll)}
	}
	last := returnReplica(s) // the replacement is available; the pod goes
	last.Ask = true
	return last
}

// returnReplica restores the number of replicas.
func returnReplica(s state) decision {
	c := &change{Annotations: map[string]*string{surgeReplicas: nil, restartedAt: new(s.value())}, Replicas: new(s.Replicas)}
	if s.Phase == waiting {
		s.Phase = returning
	}
	return decision{Change: c, Then: working(s, soon)}
}

// settleSurge waits until a Deployment has no more than its restored number of replicas, and reports the end of the
// pod.
func settleSurge(s state, v view) decision {
	if !rolledOut(v.Deployment) && v.Now.Before(s.At.Add(2*s.Limit+moment)) { // a controller that is down does it later
		return decision{Then: working(s, poll)}
	}
	words := ""
	switch {
	case s.Refusal != nil:
		words = s.Refusal.Message
	case v.Deployment.Annotations[restartedAt] != s.value():
		words = fmt.Sprintf("another client removed the annotations of the surge; spec.replicas is %d", replicasOf(v.Deployment))
	case !v.going():
		words = "another pod was removed instead, because it was no longer ready"
	}
	end := decision{Then: ending(s, v, words)}
	if !v.going() {
		end.Cost = restoreCost(v.Pod)
	}
	return end
}

// leaveScaled ends a surge of a Deployment that another client has scaled. The client's number stays.
func leaveScaled(s state, v view) decision {
	words := fmt.Sprintf("another client scaled the Deployment to %d replicas during the surge from %d to %d",
		replicasOf(v.Deployment), s.Replicas, s.Replicas+1)
	end := decision{
		Change: &change{Annotations: map[string]*string{surgeReplicas: nil}},
		Then:   ending(s, v, words),
	}
	if !v.going() {
		end.Cost = restoreCost(v.Pod)
	}
	return end
}
