// Package maintenance is the role that maintains nodes: it cordons them, has their pods moved, and gives them back, as
// NodeMaintenances, requests, and drain triggers ask.
//
//	informers, kinds.go, table ──▶ nodeChanged, podChanged, maintenanceChanged … (cache.go)
//	verdicts ──▶ session.verdict (verdicts.go)                     │
//	                                                               ▼ name
//	                                                           workqueue (maintenance.go)
//	                                                               │
//	requests ──▶ requests.add (requests.go, judge.go) ─▶ table     ▼
//	drain triggers (triggers.go) ──────────────────────▶ table   session.Reconcile (reconcile.go)
//	                                                               ├─ facts       facts.go, gates.go
//	                                                               ├─ plan.Decide package plan, pure
//	                                                               ├─ withdraw    intents.go: pods that stay
//	                                                               ├─ apply.Do    package apply: status, finalizer, nodes
//	                                                               ├─ announce    event.go; report: kubernetesevent.go, metrics.go
//	                                                               └─ publish     intents.go: pods to move
//
// # Reconcile
//
// Reconcile reads the state now and takes one step; calling it twice does no harm. A conflict, or a change of anything that the
// step rests on, enqueues the maintenance again. The status is written before a node is touched, the finalizer before that, and
// pods are listed for the actuator after both. A process whose lease has run out writes and publishes nothing of this. See
// package apply for the guarantees on nodes.
//
// # Intents
//
// The role publishes one intents message for each maintenance, with the strategy Maintenance, and replaces it when the pods to
// move change; the actuator cancels the intents that a newer message does not list. Before a node is given back, the role waits
// for the verdict or the expiry of each intent for a pod on it, so that no pod is moved off a node that was given back. Intents
// without a verdict are renewed every five minutes; after a verdict that began no move, the pod is listed again when the thing that
// held it changes, or after a growing delay.
//
// # State
//
// The status is in the object, the mark on the node, and the pods to move in the message. A new leader reads all three. Memory
// holds only the last verdicts on pods, the last events, and the attempts of each intent; losing it costs one retry.
//
// # Requests
//
// The watcher and this role both follow the requests, and each answers its own actions: this role those with the action maintain,
// and the cancellation of one of them. The watcher rejects requests beyond the rate of their sender; this role reads at the same
// rate, and skips those that are gone by then.
package maintenance
