package watcher

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/maintenance"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// lockSign is a mark by which another tool says that it is at work on a node.
type lockSign struct {
	tool  string
	where policy.SignalPlace
	key   string // of a taint it may be a prefix, which ends in a slash
}

// lockSigns are those that hold whatever the policy says: two tools that empty, restart or replace one node at a time disturb
// each other.
func lockSigns() []lockSign {
	return []lockSign{
		{"kured", policy.SignalAnnotation, "weave.works/kured-reboot-in-progress"},
		{"medik8s", policy.SignalTaint, "medik8s.io/"}, // .../drain, .../remediation and those of its fencing
		{"Karpenter", policy.SignalTaint, "karpenter.sh/disrupted"},
		{"Karpenter", policy.SignalTaint, "karpenter.sh/unregistered"},
		{"Cluster API", policy.SignalTaint, "node.cluster.x-k8s.io/uninitialized"},
		{"Cluster API", policy.SignalTaint, "node.cluster.x-k8s.io/outdated-revision"}, // it is about to be replaced
	}
}

// sign says what is found on the node. Empty: nothing.
func (l lockSign) sign(n *corev1.Node) string {
	if l.where == policy.SignalAnnotation {
		if _, set := n.Annotations[l.key]; set {
			return "the annotation " + l.key
		}
		return ""
	}
	for i := range n.Spec.Taints {
		key := n.Spec.Taints[i].Key
		if key == l.key || strings.HasSuffix(l.key, "/") && strings.HasPrefix(key, l.key) {
			return "the taint " + key
		}
	}
	return ""
}

// locks are what other tools do with a node, by these signs, and by the policy's signals if there is none of them. What
// maintenances say of a node themselves is no lock.
func (p *plan) locks(n *corev1.Node) []schemas.NodeLock {
	var list []schemas.NodeLock
	for _, l := range lockSigns() {
		if sign := l.sign(n); sign != "" {
			list = append(list, schemas.NodeLock{Tool: l.tool, Sign: sign})
		}
	}
	if len(list) > 0 {
		return list
	}
	others := *n
	others.Status.Conditions = slices.DeleteFunc(slices.Clone(n.Status.Conditions), func(c corev1.NodeCondition) bool {
		return maintenance.Said(c, "")
	})
	if sign := p.signals.IgnoresNode(&others); sign != "" {
		list = append(list, schemas.NodeLock{Tool: "another tool", Sign: sign})
	}
	return list
}
