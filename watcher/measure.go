package watcher

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/policy"
)

// Measure asks once, without smoothing, for the loads that the strategies of a policy go by. It asks nobody when none does.
// What is too old, or is not known, is not in the answer. It fails when a source cannot be asked.
func Measure(ctx context.Context, client kubernetes.Interface, p policy.Policy) (
	nodes map[string]corev1.ResourceList, pods map[types.NamespacedName]corev1.ResourceList, err error,
) {
	w, err := newWatcher(Config{Client: client, Policy: p})
	if err != nil {
		return nil, nil, err
	}
	l := &lead{w: w, scopes: scopes{plan: w.plan.Load()}}
	nodes, pods = map[string]corev1.ResourceList{}, map[types.NamespacedName]corev1.ResourceList{}
	for _, from := range l.scopes.plan.measures() {
		if err := l.measure(ctx, from, nodes, pods); err != nil {
			return nil, nil, fmt.Errorf("load by %s: %w", from.Source, err)
		}
	}
	return nodes, pods, nil
}

// measure asks one source and adds what it says.
func (l *lead) measure(
	ctx context.Context, from policy.Load, nodes map[string]corev1.ResourceList, pods map[types.NamespacedName]corev1.ResourceList,
) error {
	source, err := l.w.source(from, l.scopes.plan.metrics)
	if err != nil || source == nil {
		return err
	}
	defer source.Close()
	samples, err := source.Nodes(ctx)
	if err != nil {
		return err
	}
	for name, s := range samples {
		if !s.Good.After(l.w.now()) {
			continue
		}
		if nodes[name] == nil {
			nodes[name] = corev1.ResourceList{}
		}
		maps.Copy(nodes[name], s.Used)
	}
	used, err := source.Pods(ctx)
	maps.Copy(pods, used)
	return err
}
