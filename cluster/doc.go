// Package cluster is the read model that the roles of a process share. It has one informer per kind, objects that are
// pruned to the fields that some role reads, and indexes that are updated before any role sees a change.
//
//	informer ──▶ prune (prune.go) ──▶ share (share.go) ──▶ store
//	   │
//	   └─▶ Cache.OnUpdate ──▶ indexes
//	          │                capacity   where pods fit             capacity.go, reservations.go
//	          │                Workloads  owner ─▶ pods and budgets  workloads.go, controllers.go ──▶ Workloads.OnChange: actuator
//	          │                nodes      taint times                nodes.go
//	          │
//	          └─▶ AddHandler: watcher and maintenance
//
// summary.go defines what the actuator reads of a pod, and kinds.go the kinds.
//
// # Usage
//
// A process makes one [Cache] with the kinds that its roles need, so a process with one role needs only the rights of
// that role. Each role adds its handlers; then [Cache.Run] starts the informers.
//
//	kinds := slices.Concat(watcher.Kinds(), actuator.Kinds(), maintenance.Kinds())
//	c, err := cluster.New(cluster.Config{Client: client, Kinds: kinds, Log: log})
//	cluster.AddHandler(c, func(old, new *corev1.Node, initial bool) { ... })
//	go c.Run(ctx)
//	if c.WaitForSync(ctx) { pods := c.PodsOnNode("n7") }
//
// [NewOffline] makes a cache without informers for objects that the caller sets.
//
// # Concurrency
//
// All methods are safe for concurrent use. The returned objects are shared and must not be changed. Handlers of one
// kind run one after another; handlers of different kinds run in parallel. A handler must return quickly, because the
// cache delays the next change of that kind until then.
package cluster
