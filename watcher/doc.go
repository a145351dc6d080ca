// Package watcher turns changes of the cluster into deltas, and deltas into the scopes whose answer they can change.
//
//	cluster.Cache.OnUpdate ──old, new──▶ Watcher.nodeChanged, podChanged ...        (handlers.go)
//	    │
//	    ├─▶ scope.Builder.NodeChanged, PodChanged: the indexes of groups of pods    (scope/)
//	    ├─▶ ObserveNode, ObservePod: the deltas (pure)                              (observe.go)
//	    └─▶ session.Observe                                                         (enqueue.go)
//	          ├──delta──▶ outbox ──▶ Bus.PublishAll                                 (publish.go)
//	          └──key──▶ queue                                                       (queue.go)
//
//	queue ──key──▶ session.run ──▶ Reconcile ──▶ scope.Builder.Build                (session.go, reconcile.go, scope/)
//	  ▲               └──scope──▶ Bus.PublishAll
//	  ├── verdict: a move was deferred; a budget or a move that blocked it changed  (verdicts.go, blocked.go)
//	  ├── capacity changed: a pod that fitted nowhere may fit                       (capacity.go)
//	  ├── a node crossed a threshold of measured load                               (load.go, load/)
//	  └── a manual request                                                          (requests/)
//
// A key names a profile, a strategy, and a scope, such as node/n7. The queue holds each key once, with a short debounce, so that
// changes that belong together lead to one scope. Reconcile builds the scope from the caches when it is published, so the scope is
// never older than its delta. A scope without a pod that the strategy could move is published only to withdraw an earlier answer.
//
// The watcher is level-triggered: a delta says where to look, and not what to do. At the start of a session and at every resync, the
// indexes are rebuilt from the cache and all keys are enqueued (session.go). After a policy change a new session begins.
//
// A group cools down after a pod left it, until the replacement has a node. A strategy that uses measured load cools down for two
// minutes after a move: that is how long it takes until the load shows the move. Another leader and another policy keep to that.
//
// [Watcher.Run] measures load on every replica. [Watcher.Lead] publishes on one of them. The watcher only reads: it lists and watches
// [Kinds]; for strategies that measure by KubernetesMetrics it gets and lists nodes and pods of metrics.k8s.io, and for those that
// measure by Prometheus with a token of a Secret it gets that Secret. offline.go builds the same scopes from given objects.
package watcher
