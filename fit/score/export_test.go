package score

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/fit"
)

// Node is a node that fits the pod, with its score.
type Node struct {
	Name  string
	Score int64
	// Plugins are the parts of Score, weights included. A plugin that gives all nodes the same score may be missing.
	Plugins map[Plugin]int64
}

// Rank returns the nodes that Predict compares, with their scores, best score first and then by name.
func Rank(q *fit.Question, p *Profile, allowed func(*corev1.Node) bool) []Node {
	nodes := q.Candidates(allowed)
	ranked := make([]Node, len(nodes))
	for i, total := range scores(q, p, nodes) {
		ranked[i] = Node{Name: nodes[i].Node.Name, Score: total, Plugins: map[Plugin]int64{}}
	}
	for plugin, weight := range p.Weights {
		if len(nodes) < 2 {
			break
		}
		for i, part := range p.score(plugin, q, nodes) {
			ranked[i].Plugins[plugin] = part * weight
		}
	}
	slices.SortStableFunc(ranked, func(a, b Node) int { return cmp.Compare(b.Score, a.Score) })
	return ranked
}
