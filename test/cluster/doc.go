// Package cluster runs a real Kubernetes control plane for tests, without containers: released versions of etcd, the API server,
// the controller manager, and the scheduler, with kwok instead of kubelets. Scheduling, evictions, disruption budgets, rollouts,
// RBAC, tokens, dry runs, audit, and admission are real. Features of the kubelet are missing: images, probes, exec, and logs of
// pods.
//
// # Usage
//
// A test calls clustertest.New. A program calls:
//
//	c, err := cluster.Start(ctx, cluster.Options{})
//	...
//	defer c.Stop()
//	nodes, err := c.AddNodes(ctx, 3)
//	deployment, err := c.AddDeployment(ctx, "shop", "cart", 6)
//	err = c.WaitReady(ctx, "shop", "cart")
//
// The first Start on a machine builds the programs (see package binaries), which takes minutes. Later starts take seconds. Use
// the command in cmd/cluster to start a cluster manually.
//
// # Nodes and pods
//
// kwok makes each Node object Ready and renews its lease. A pod on a node is Running and Ready immediately, and a pod of a Job
// succeeds. A deleted pod is gone immediately, regardless of its grace period. An object with the annotation [HoldAnnotation]
// keeps the status that a test sets, and a pod with the annotation [ReadyAfterAnnotation] becomes Ready later.
//
// # Life time
//
// A cluster is a directory and some processes on loopback ports. Both are gone after Stop, and after the end of the process that
// called Start, for any reason (see package supervisor). Data is never synced to disk and never survives.
//
// # Concurrency
//
// All methods are safe for concurrent use; call Stop last. Several clusters may run at the same time.
//
// # Waiting
//
// All helpers wait with watches until their context ends, at most five minutes, and only while all components run. The error
// contains the unmet condition.
package cluster
