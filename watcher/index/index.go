// Package index keeps, change by change, which pods belong together: those of one owner, those under one topology spread
// constraint, those that keep each other away, and what the pods on a node use together. So a change of one pod costs
// what its groups are large, and not what the cluster is large.
//
// # Usage
//
// An [Index] is told about nodes and about the pods on them. A pod is a [Member] while it is on a node that counts and has
// not ended. Every change returns the keys of the groups whose answer it can change.
//
// # Concurrency
//
// None of the types is safe for concurrent use. Objects given to them are kept and never changed.
package index

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Member is a pod and the node that it is on. What is given to Remove is what was given to Add.
type Member struct {
	Pod  *corev1.Pod
	Node *corev1.Node
}

// Index is one way to group pods.
type Index interface {
	// Add and Remove return the keys of the groups that the pod belongs to, or that it founds or dissolves.
	Add(m Member) []string
	Remove(m Member) []string
	// Of returns the keys of the groups that a member belongs to.
	Of(m Member) []string
	// SetNode says that a node changed; before or after is nil for one that begins or ends to count. Its pods are removed
	// before and added after. It returns the keys of the groups whose answer that can change besides.
	SetNode(before, after *corev1.Node) []string
	// Waits says that a pod waits for a node, or no longer does; Left, after Remove, that a pod is gone, has ended, or is on
	// its way out. The groups that it belongs to are not at rest then.
	Waits(p *corev1.Pod, waits bool, now time.Time)
	Left(p *corev1.Pod, now time.Time)
	// Keys are those of all groups that can have something to move now, in no order.
	Keys() []string
	// Has says whether the group can have something to move now.
	Has(key string) bool
	// Rest is when the group is at rest if nothing happens until then; the zero time: it is. A group that a pod has just left,
	// or to which one belongs that waits for a node, is not: a replacement is on its way, and to move others meanwhile would
	// be to move too many.
	Rest(key string) time.Time
}

// The times for which a group is not at rest. A controller makes a replacement within about a tenth of a second, and a pod
// that found no node for half a minute will not find one soon.
const (
	AfterLeaving = time.Second
	whileWaiting = 30 * time.Second
)

// unrest is what keeps one group from being at rest. The zero value is at rest.
type unrest struct {
	left    time.Time               // when the last pod left
	waiting map[types.UID]time.Time // pods without a node, and since when that is known
}

func (u *unrest) waits(uid types.UID, waits bool, now time.Time) {
	if !waits {
		delete(u.waiting, uid)
		return
	}
	if _, known := u.waiting[uid]; known {
		return
	}
	if u.waiting == nil {
		u.waiting = map[types.UID]time.Time{}
	}
	u.waiting[uid] = now
}

func (u *unrest) until() time.Time {
	var last time.Time
	if !u.left.IsZero() {
		last = u.left.Add(AfterLeaving)
	}
	for _, since := range u.waiting {
		if end := since.Add(whileWaiting); end.After(last) {
			last = end
		}
	}
	return last
}
