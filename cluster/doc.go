// Package cluster is the read model that the roles of a process share: one informer per kind, objects pruned to what some role
// reads, and indexes that every change updates before any role hears of it.
//
//	informer ──▶ prune (prune.go) ──▶ share (share.go) ──▶ store
//	   │
//	   └─▶ Cache.OnUpdate ──▶ indexes                              ──▶ handlers of the watcher and maintenance, see AddHandler
//	                           budgets    budget ─▶ pods    facts.go
//	                           capacity   where pods fit    capacity.go, reservations.go
//	                           Workloads  owner ─▶ pods     workloads.go, controllers.go ──▶ actuator, see Workloads.OnChange
//	                           nodes      taint times       nodes.go
//
// summary.go says what the actuator reads of a pod, kinds.go which kinds there are.
//
// # Usage
//
// A process makes one [Cache] with the kinds that its roles need, so that a process of one role needs the rights of that role
// only. Each role adds its handlers; then [Cache.Run] starts the informers.
//
//	kinds := slices.Concat(watcher.Kinds(), maintenance.Kinds(), cluster.WorkloadKinds(), cluster.PlacementKinds())
//	c, err := cluster.New(cluster.Config{Client: client, Kinds: kinds, Log: log})
//	cluster.AddHandler(c, func(old, new *corev1.Node, initial bool) { ... })
//	go c.Run(ctx)
//	if c.WaitForSync(ctx) { pods := c.PodsOnNode("n7") }
//
// [NewOffline] makes a cache without informers, which holds the objects that it is given.
//
// # Concurrency
//
// All methods may be called from many goroutines. Objects that they return are shared and must not be changed. Handlers of one
// kind run one after the other; handlers of different kinds run at the same time. A handler must return quickly: the cache shows
// it no further change of that kind before.
package cluster
