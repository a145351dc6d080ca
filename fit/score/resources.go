package score

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	config "k8s.io/kube-scheduler/config/v1"

	"github.com/rehome-dev/rehome/fit"
)

// best is the best score that a plugin gives.
const best = 100

// resources scores nodes by the free or used share of their resources, with the pod on the node.
func resources(q *fit.Question, nodes []fit.Candidate, s *config.ScoringStrategy) []int64 {
	rate := least
	switch s.Type {
	case config.MostAllocated:
		rate = most
	case config.RequestedToCapacityRatio:
		shape := s.RequestedToCapacityRatio.Shape
		rate = func(used, of int64) int64 { return shaped(used, of, shape) }
	}
	skipsZero := s.Type == config.RequestedToCapacityRatio
	scores := make([]int64, len(nodes))
	weights := make([]int64, len(nodes))
	for _, r := range s.Resources {
		name := corev1.ResourceName(r.Name)
		own := q.ScoredRequests(name)
		if own == 0 && extended(name) {
			continue // An extended resource matters to the pods that request it.
		}
		for i := range nodes {
			of := nodes[i].Allocatable(name)
			if of == 0 {
				continue
			}
			score := rate(nodes[i].ScoredRequested(name)+own, of)
			if score == 0 && skipsZero {
				continue
			}
			scores[i] += score * r.Weight
			weights[i] += r.Weight
		}
	}
	for i := range scores {
		switch {
		case weights[i] == 0:
			scores[i] = 0
		case skipsZero:
			scores[i] = int64(math.Round(float64(scores[i]) / float64(weights[i])))
		default:
			scores[i] /= weights[i]
		}
	}
	return scores
}

// extended reports whether the scheduler treats a resource as one that only some pods use.
func extended(name corev1.ResourceName) bool {
	return name != corev1.ResourceCPU && name != corev1.ResourceMemory && name != corev1.ResourceEphemeralStorage
}

func least(used, of int64) int64 { return max(of-used, 0) * best / of }

func most(used, of int64) int64 { return min(used, of) * best / of }

// shaped returns the score of a utilization on a line through points, whose scores go up to 10.
func shaped(used, of int64, points []config.UtilizationShapePoint) int64 {
	const scale = best / 10
	at := min(used, of) * 100 / of
	for i, p := range points {
		x, y := int64(p.Utilization), int64(p.Score)*scale
		if at > x {
			continue
		}
		if i == 0 {
			return y
		}
		x0, y0 := int64(points[i-1].Utilization), int64(points[i-1].Score)*scale
		return y0 + (y-y0)*(at-x0)/(x-x0)
	}
	return int64(points[len(points)-1].Score) * scale
}

// balanced scores nodes by the effect of the pod on how evenly their resources are used, or up to Kubernetes 1.35 by how
// evenly they are used with the pod. nil means the pod requests none of them.
func balanced(q *fit.Question, nodes []fit.Candidate, of []config.ResourceSpec) []int64 {
	requested := false
	for _, r := range of {
		requested = requested || q.Requests(corev1.ResourceName(r.Name)) > 0
	}
	if !requested {
		return nil
	}
	scores := make([]int64, len(nodes))
	without, with := make([]float64, 0, len(of)), make([]float64, 0, len(of))
	for i := range nodes {
		without, with = without[:0], with[:0]
		for _, r := range of {
			name := corev1.ResourceName(r.Name)
			own, has := q.Requests(name), nodes[i].Allocatable(name)
			if has == 0 || own == 0 && extended(name) {
				continue
			}
			used := nodes[i].Requested(name)
			without = append(without, min(float64(used)/float64(has), 1))
			with = append(with, min(float64(used+own)/float64(has), 1))
		}
		scores[i] = evenness(with)
		if !q.SchedulerIsOlderThan(36) {
			// No change is 75. A deviation is at most a half, so the score is between 50 and 100.
			scores[i] = (150 + scores[i] - evenness(without)) / 2
		}
	}
	return scores
}

// evenness is 100 if all shares are equal, and lower the more they deviate.
func evenness(shares []float64) int64 { return int64((1 - deviation(shares)) * best) }

// deviation returns the standard deviation.
func deviation(of []float64) float64 {
	if len(of) < 2 {
		return 0
	}
	if len(of) == 2 {
		return math.Abs(of[0]-of[1]) / 2
	}
	mean, sum := 0.0, 0.0
	for _, x := range of {
		mean += x / float64(len(of))
	}
	for _, x := range of {
		sum += (x - mean) * (x - mean)
	}
	return math.Sqrt(sum / float64(len(of)))
}
