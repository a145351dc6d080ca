// Package score predicts the node that the kube-scheduler chooses for a pod.
//
// # Usage
//
//	cluster.Ask(pod, func(q *fit.Question) {
//		nodes := score.Predict(q, score.Default(), nil)
//		...
//	})
//
// Package fit finds the nodes that fit the pod, or the replacement of a running pod. This package scores these nodes like the
// score plugins of the scheduler of [fit.Cluster.MinorVersion], 1.35 to 1.37, and returns the nodes with the best score. The
// scheduler takes one of them at random. A test asks the real scheduler to place the same pods.
//
// # Plugins
//
// NodeResourcesFit, NodeResourcesBalancedAllocation, TaintToleration, NodeAffinity, PodTopologySpread, and InterPodAffinity,
// with the weights and arguments of a [Profile]. Capacity that is reserved for other pods counts as used, see
// [fit.Cluster.Reserve].
//
// # Limits
//
// ImageLocality is left out, because the cache drops the images of nodes. It has a weight of 1 out of 12, and no effect if all
// nodes have the image. The default topology spread constraints count the pods of the same ReplicaSet, StatefulSet, or
// ReplicationController. The scheduler also looks at Services: it skips pods that they do not select, and it spreads the pods of
// a Service that have no such controller. In a cluster with more than 100 nodes the scheduler stops looking after it has found
// enough nodes, so it may take a node with a lower score. With the feature gate StorageCapacityScoring, which is on since 1.37,
// VolumeBinding scores nodes by the capacity for claims that wait for the pod. That is not predicted.
//
// # Files
//
//	score.go      Predict, the plugins in order          resources.go  NodeResourcesFit, NodeResourcesBalancedAllocation
//	profile.go    Profile, KubeSchedulerConfiguration    spread.go     PodTopologySpread
package score

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/fit"
)

// Predict returns the nodes with the best score, by name, among those that allowed selects. A nil selector selects all.
// It returns none if the pod fits nowhere or cannot be judged.
func Predict(q *fit.Question, p *Profile, allowed func(*corev1.Node) bool) []*corev1.Node {
	nodes := q.Candidates(allowed)
	totals := scores(q, p, nodes)
	if len(nodes) == 0 {
		return nil
	}
	highest := slices.Max(totals)
	var found []*corev1.Node
	for i := range nodes {
		if totals[i] == highest {
			found = append(found, nodes[i].Node)
		}
	}
	return found
}

// scores returns the sum of the weighted scores of each node.
func scores(q *fit.Question, p *Profile, nodes []fit.Candidate) []int64 {
	totals := make([]int64, len(nodes))
	if len(nodes) < 2 {
		return totals // the scheduler scores nothing
	}
	for plugin, weight := range p.Weights {
		for i, part := range p.score(plugin, q, nodes) {
			totals[i] += part * weight
		}
	}
	return totals
}

// score returns the scores of one plugin, from 0 to 100. nil means all nodes have the same score.
func (p *Profile) score(plugin Plugin, q *fit.Question, nodes []fit.Candidate) []int64 {
	switch plugin {
	case NodeResourcesFit:
		return resources(q, nodes, &p.Strategy)
	case NodeResourcesBalancedAllocation:
		return balanced(q, nodes, p.Balanced)
	case TaintToleration:
		return tolerated(q, nodes)
	case NodeAffinity:
		return preferred(q, nodes)
	case PodTopologySpread:
		return spread(q, nodes, p)
	case InterPodAffinity:
		return affinity(q, nodes, p)
	}
	return nil
}

// tolerated scores nodes by their taints with effect PreferNoSchedule that the pod does not tolerate: the fewer, the better.
func tolerated(q *fit.Question, nodes []fit.Candidate) []int64 {
	return scaled(nodes, q.Avoids, func(n, highest int64) int64 { return best - n*best/highest })
}

// preferred scores nodes by the preferred node affinity of the pod.
func preferred(q *fit.Question, nodes []fit.Candidate) []int64 {
	return scaled(nodes, q.Preference, func(n, highest int64) int64 { return n * best / highest })
}

// affinity scores nodes by the pods that are near.
func affinity(q *fit.Question, nodes []fit.Candidate, p *Profile) []int64 {
	near := q.Affinity(p.RequiredAffinity, p.OwnAffinity)
	if len(near) == 0 {
		return nil
	}
	sums := make([]int64, len(nodes))
	for i := range nodes {
		for key, values := range near {
			if value, has := nodes[i].Node.Labels[key]; has {
				sums[i] += values[value]
			}
		}
	}
	lowest, highest := slices.Min(sums), slices.Max(sums)
	if lowest == highest {
		return nil
	}
	for i, sum := range sums {
		sums[i] = int64(best * (float64(sum-lowest) / float64(highest-lowest)))
	}
	return sums
}

// scaled scales a number of each node to scores. It returns nil if all are 0.
func scaled(nodes []fit.Candidate, of func(*corev1.Node) int64, scale func(n, highest int64) int64) []int64 {
	numbers, highest := make([]int64, len(nodes)), int64(0)
	for i := range nodes {
		numbers[i] = of(nodes[i].Node)
		highest = max(highest, numbers[i])
	}
	if highest == 0 {
		return nil
	}
	for i, n := range numbers {
		numbers[i] = scale(n, highest)
	}
	return numbers
}
