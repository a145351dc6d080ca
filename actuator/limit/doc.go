// Package limit bounds the moves of the actuator. Each file has one idea:
//
//	bucket.go    Bucket           evictions per second, for the cluster or one namespace
//	window.go    Admits           moves within a window of time, per node, per namespace, and in total (pure)
//	workload.go  WorkloadBreaker  pods of a workload that return to the node they were moved off
//	cluster.go   ClusterBreaker   bad nodes, pending replacements, failed calls: nothing moves
//
// None of them has a clock, makes a call, or is safe for concurrent use: the leader session owns them and passes the
// events with their times.
package limit
