// Command bench measures Rehome on a real control plane and prints one table: what was measured, what it compares with,
// and the target of the design where there is one.
//
//	go run ./test/bench                         everything, ten minutes
//	go run ./test/bench --taints 100 --parts taints,idle
//	go run ./test/bench -o json > figures.json
//
// # What is measured
//
//	taints  from just before a taint is sent to the API server until it has answered the evictions of the node's pods,
//	        by its audit log, with what happened in between by the times of Rehome's own events; in turn with bare
//	        eviction calls, alone and of a whole node at once
//	drain   evictions per second without a limit, in turn with bare calls, as many at once
//	idle    processor time and memory of a Rehome that has nothing to do, and of the control plane meanwhile
//	roles   the same of one process a role and of a NATS server that syncs every write, and their memory after a drain
//	decisions  what one decision costs, by Go benchmarks: each strategy on a scope as large as they get, where a pod fits in
//	           a cluster of 5,000 nodes, the scope of a node, and all strategies on a whole cluster from a file
//	dispatcher  scopes a second that are taken from a bus which syncs every write, asked over HTTP, and answered there
//	deltas  the steps of one delta by Go benchmarks, in a small cluster and in one ten times as large
//
// Rehome and what it is compared with take turns in the same run, so that whatever else the machine does disturbs both.
// How much that was is in the head of the report.
//
// # Where
//
// Processor time and memory are read from /proc, so the parts idle and roles, and --profile, need Linux; elsewhere they
// fail and say so. All traffic stays on the loopback interface.
package main
