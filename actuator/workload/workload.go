// Package workload knows the pods of the cluster by what they belong to: how many of them are ready, which budget they
// have, where their replacements are; and which nodes went bad. The actuator asks it before it moves a pod, and is told
// what became of the move.
//
// It follows the API server with informers that keep only what is asked for. What it says may be milliseconds old; what
// has to be exact is asked of the API server itself.
package workload

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
)

// Pod is what is known about a pod. The zero value is no pod.
type Pod struct {
	Ref schemas.PodRef
	// Workload is the pod's controller, or the Deployment behind its ReplicaSet. The zero value: it has none.
	Workload schemas.ObjectRef
	Node     string // empty: none yet
	Created  time.Time
	// Ready: it is ready and is not being deleted.
	Ready bool
	// Leaving: it is being deleted. Ended: it has succeeded or failed.
	Leaving, Ended bool
	// Why it has no node or is not ready, in the words of its conditions. Empty: nothing is said.
	Why string
	// Priority is 0 for a pod that says nothing.
	Priority int32
	QoS      corev1.PodQOSClass
	// Budgeted: a PodDisruptionBudget selects it.
	Budgeted bool
}

// Tally is how a workload is now.
type Tally struct {
	// Wanted is how many pods it is to have: spec.replicas where the workload has that, else the pods that are there and
	// have not ended.
	Wanted int
	// Ready is how many of them are ready and not being deleted.
	Ready int
}

// Node is what is known about a node.
type Node struct {
	Name string
	// Ready is its condition. A node that says nothing is not ready.
	Ready bool
	// Tainted is when it was seen to get the newest taint, of those it still has, with the effect NoSchedule or NoExecute.
	// Being cordoned is such a taint. One that was there when the watching began counts from when it says that it was added.
	// Zero: it has none, or only such as do not say so, that a new node came with, or that are the cordon of a maintenance.
	Tainted time.Time
	// Maintained: a maintenance holds it. That it is cordoned then, or switched off, is intended.
	Maintained bool
}

// Change says what changed. One field is set.
type Change struct {
	// Workload is the UID of a workload of which a pod came, went, or changed in what [Pod] or [Tally] says.
	Workload types.UID
	// Node is the name of a node that came, went, or changed in what [Node] says.
	Node string
}
