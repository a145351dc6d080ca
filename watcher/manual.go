package watcher

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/watcher/requests"
)

// newRequests makes the controller of manual requests.
func (l *lead) newRequests() *requests.Controller {
	c := l.w.config
	return requests.New(requests.Config{
		Bus: c.Requests, Policy: l.scopes.plan.policy, Cluster: l.w.cluster, Source: c.Source, Expires: c.Resync, Now: l.w.now, Log: l.w.log,
		Publish: func(ctx context.Context, events []schemas.Event) error { return c.Bus.PublishAll(ctx, events) },
		Protections: func(profile string, p *corev1.Pod, override []string) []schemas.Protection {
			return l.scopes.protectionsOfRequest(profile, p, override, l.w.now())
		},
		Enqueue: func(profile, key string, cause schemas.Cause, e schemas.Event) {
			ev := evaluation{profile: profile, strategy: schemas.RequestStrategy, kind: schemas.RequestKind, key: key}
			l.queue.add(ev, l.w.now(), cause, e)
		},
		Evaluate: l.evaluateStrategies,
		Count: func(sender string, state schemas.ReceiptState) {
			l.w.metrics.requests.WithLabelValues(sender, string(state)).Inc()
		},
	})
}

// evaluateStrategies enqueues all scopes of the strategies that match, and returns how many strategies do. Empty names match all.
func (l *lead) evaluateStrategies(profile, strategy string, cause schemas.Cause, e schemas.Event) (n int) {
	w := wake{cause: cause, event: e, at: l.w.now().Add(l.w.config.Settle)}
	nodes := nodeNames(l.w.cluster, l.scopes.plan.selector)
	for _, s := range l.scopes.plan.all {
		if strategy != "" && strategy != s.strategy.Name || profile != "" && profile != s.profile.Name {
			continue
		}
		n++
		if s.grouped() {
			l.wakeAllGroups(s, w)
		}
		for _, node := range nodes {
			l.enqueue(s, l.keysOnNode(s, node, w))
		}
	}
	return n
}

// protectionsOfRequest lists what protects a pod from a request, without the rules that the request overrides.
func (s scopes) protectionsOfRequest(profile string, p *corev1.Pod, override []string, now time.Time) []schemas.Protection {
	rules, found := s.plan.policy.Profile(profile)
	if !found {
		return nil
	}
	protections := rules.Evictor.ProtectsBut(override, p, now, s.cluster)
	var b built
	if protection, is := disrupted(p, now, &b); is {
		protections = append(protections, protection)
	}
	if slices.Contains(override, notUsable) {
		return protections
	}
	why := fmt.Sprintf("there is no node %s", p.Spec.NodeName)
	if node := s.cluster.Node(p.Spec.NodeName); node != nil {
		why = s.unmovable(node)
	}
	if why != "" {
		protections = append(protections, schemas.Protection{Rule: notUsable, Detail: why})
	}
	return protections
}
