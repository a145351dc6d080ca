// Package watcher turns changes of the cluster into deltas, and enqueues the scopes whose answer a delta can change.
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
// A key names a profile, a strategy, and a scope, such as node/n7. The queue holds each key once, with a short
// debounce, so that related changes lead to one scope. Due groups come after nodes, pods, and requests. Reconcile builds
// a scope from the caches right before it is published, so the scope is never older than its delta. A scope that
// needs no intents is published only to withdraw an earlier answer.
//
// The watcher is level-triggered: a delta says where to look, not what to do. At the start of a session and at every
// resync, the session rebuilds the indexes from the cache and enqueues all keys (session.go). A policy change starts a
// new session. A session publishes scopes only until its context ends, and only while its lease is valid: a scope from an
// old cache must not follow the scope of the next leader.
//
// After a pod has left a group, the group cools down until the replacement has a node. A strategy that uses measured
// load cools down for two minutes after a move, until the load reflects the move. Cooldowns continue under a new leader
// or policy.
//
// [Watcher.Run] measures load on every replica. [Watcher.Lead] publishes on one of them. The watcher only reads: it
// lists and watches [Kinds]. For KubernetesMetrics it also lists nodes and pods of metrics.k8s.io, and for
// Prometheus with a token Secret it gets that Secret. offline.go builds the same scopes from given objects.
package watcher
