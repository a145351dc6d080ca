// Package limit holds what bounds the moves of the actuator. Each type counts one thing:
//
//	bucket.go    Bucket           evictions per second, for the cluster or one namespace
//	window.go    Windows          moves within a window of time, per node, per namespace, and in total
//	workload.go  WorkloadBreaker  pods of a workload that come back to the node they were moved off
//	cluster.go   ClusterBreaker   bad nodes, pending replacements, failing calls: nothing is moved
//	failures.go  failures         the latest eviction calls, of the cluster and of each namespace
//
// None of them has a clock, makes a call, or is safe for concurrent use: the leader session owns them and tells them what
// happened and when.
package limit
