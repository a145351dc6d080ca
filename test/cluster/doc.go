// Package cluster runs a real Kubernetes control plane for tests, without
// containers: etcd, the API server, the controller manager and the scheduler as
// they are released, and kwok in the place of kubelets. Scheduling, evictions,
// disruption budgets, rollouts, RBAC, tokens, dry runs, audit and admission are the
// real thing. What needs a kubelet is not: images, probes, exec and logs of pods.
//
// # Usage
//
// A test calls clustertest.New; a program does:
//
//	c, err := cluster.Start(ctx, cluster.Options{})
//	...
//	defer c.Stop()
//	nodes, err := c.AddNodes(ctx, 3)
//	deployment, err := c.AddDeployment(ctx, "shop", "cart", 6)
//	err = c.WaitReady(ctx, "shop", "cart")
//
// The first Start on a machine builds the programs (see package binaries), which
// takes minutes; after that it takes seconds. By hand, use the command in
// cmd/cluster.
//
// # Nodes and pods
//
// A Node object is a node: kwok makes it Ready and renews its lease. A pod bound to
// a node is Running and Ready at once, whoever owns it; a pod of a Job succeeds; a
// deleted pod is gone at once, whatever its grace period. An object with the
// annotation [HoldAnnotation] keeps the status that a test gives it, and a pod with
// the annotation [ReadyAfterAnnotation] becomes Ready later.
//
// # Life time
//
// A cluster is a directory and some processes on loopback ports. Both are gone
// after Stop, and when the process that called Start ends in whichever way (see
// package supervisor). Data are never synced to disk and never survive.
//
// # Concurrency
//
// All methods may be called from several goroutines, but Stop last. Several
// clusters may run at the same time.
//
// # Waiting
//
// All helpers that wait do so with watches, until their context ends, but at most
// five minutes, and no longer than all components live. The error says what
// was still missing.
package cluster
