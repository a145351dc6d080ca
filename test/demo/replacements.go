package main

import (
	"context"
	"fmt"
	"slices"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/test/cluster"
)

// showReplacements waits for the replacements, and prints them with their nodes.
func (s *stage) showReplacements(ctx context.Context, node string, before map[types.UID]corev1.Pod) error {
	want := deployments*replicas + 3
	pods, err := s.cluster.WaitPods(ctx, namespace, "", fmt.Sprintf("%d of them Ready", want), func(pods []*corev1.Pod) bool {
		return len(pods) == want && !slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return !cluster.IsReady(p) })
	})
	if err != nil {
		return err
	}
	evicted, err := s.evicted(ctx)
	if err != nil {
		return err
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
	s.say("%s is empty. Its %d pods were evicted, each once, and %d new ones are Ready on other nodes:", node, evicted, len(before))
	table := tabwriter.NewWriter(s.out, 3, 0, 2, ' ', 0)
	defer table.Flush()
	fmt.Fprintln(table, "   POD\tNODE\tREADY")
	for _, p := range pods[:len(before)] {
		if p.Spec.NodeName == node {
			return fmt.Errorf("pod %s is new and on %s again", p.Name, node)
		}
		fmt.Fprintf(table, "   %s\t%s\t%v\n", p.Name, p.Spec.NodeName, cluster.IsReady(p))
	}
	return nil
}

// evicted counts the evictions in the audit log of the API server, and fails if a pod was evicted twice.
func (s *stage) evicted(ctx context.Context) (int, error) {
	log, err := s.cluster.Audit(ctx)
	if err != nil {
		return 0, err
	}
	seen := map[string]bool{}
	for _, e := range log {
		if e.Subresource != "eviction" || e.Code != 201 {
			continue
		}
		if seen[e.Name] {
			return 0, fmt.Errorf("pod %s was evicted twice", e.Name)
		}
		seen[e.Name] = true
	}
	return len(seen), nil
}
