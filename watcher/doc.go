// Package watcher turns changes of the cluster into deltas, and deltas into scopes: the evaluations that they make
// necessary, and no others.
//
// # The path of a change
//
//	cluster.Cache.OnUpdate ──old, new──▶ Watcher.nodeChanged, podChanged ... (watcher.go, factwakes.go)
//	    │
//	    ├─▶ ObserveNode, ObservePod ──deltas──▶ Observe ──▶ affectedKeys ──▶ queue   (observe.go, affected.go, queue.go)
//	    └─▶ groups: which pods belong together                                      (groups.go, index/)
//
//	queue ──key──▶ Reconcile ──▶ scopes.Build ──scope──▶ publish ──▶ Bus.PublishAll  (reconcile.go, scope.go, lead.go)
//
// Observing is pure. A key names a profile, a strategy, and a scope, such as node/n7. The queue holds each key once, however many
// deltas affect it, and waits for a moment so that changes that belong together are seen together. Reconcile builds the scope from
// the caches at the moment it is published, so it is never older than the delta that led to it. A scope without a pod that the
// strategy could want to move is published only to withdraw an earlier answer.
//
// # Level-triggered
//
// A delta says where to look, never what to do. On start and every resync interval all scopes are evaluated, so
// whatever was missed is found then. A pod whose move was deferred is looked at again when the budget that held it
// allows a disruption, and after a growing delay in any case.
//
// # Around the pod
//
// Some protections of a policy look beyond the pod: at how many pods its owner has, at budgets, namespaces, priority
// classes and claims, or at whether it would fit on another node. The caches answer them, see [policy.Facts], and a
// change of what they rest on wakes the pods that it concerns. A pod that fits nowhere else is remembered, and asked about
// again when room may have appeared, at most once a second and for at most one twentieth of the time of one core.
//
// # Load
//
// For strategies that go by what is really used, and only for them, every replica measures it every five seconds, so that another
// leader knows the smoothed figures, see package load. When a sample changes which nodes should lose pods, that is a delta, node.load. A move shows in the load of the
// nodes only after a while: for two minutes after one nothing is decided by load again, so that what was moved is not
// moved twice over; another leader and another policy keep to that. As long as a node is over-used, it is looked at again as often.
//
// # Requests
//
// The leader follows what people and programs ask for, holds it against the policy, and answers each with a receipt. The pods
// of an accepted request are evaluated like any scope until each is gone or there is a last word on it. The request and its
// accepted receipt are all that outlives the leader: whoever leads next goes on with them.
//
// # Roles
//
// [Watcher.Run] keeps the caches warm, on every replica. [Watcher.Lead] publishes, on one of them. The watcher lists and
// watches nodes, pods, namespaces, PersistentVolumeClaims, PersistentVolumes, PodDisruptionBudgets, PriorityClasses,
// StorageClasses, CSINodes, CSIDrivers, CSIStorageCapacities and VolumeAttachments; it changes nothing. Without one of
// these permissions the caches are never filled.
//
// For strategies that measure by KubernetesMetrics the leader also gets and lists nodes and pods of metrics.k8s.io; for
// those that measure by Prometheus with a token of a Secret, it gets that Secret. Without these no load is known.
package watcher
