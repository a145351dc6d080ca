// Command bench measures Rehome on a real control plane and prints one table: each figure beside what it compares with, and
// beside the target of the design where there is one.
//
//	go run ./test/bench                                   the figures of the design: 1,000 nodes, 20,000 pods, half an hour
//	go run ./test/bench --nodes 100 --pods 2000 --parts start,changes --memory 30s --idle 10s
//	go run ./test/bench -o json > figures.json
//	go run ./test/bench --again                           after each report, type the parts to measure next
//
// # Parts
//
//	scale    processor time of one change in a tenth of the cluster and in all of it. It begins with the tenth, so it has to be
//	         among the first parts of a run
//	start    time from the start to the end of the first full evaluation, and memory two minutes after the start
//	idle     processor time while nothing happens
//	changes  processor time, messages, and bytes on the bus for a pod label change, a node label change, and a pod that its
//	         ReplicaSet replaces, when no answer can change
//	taints   time from just before a taint is sent until the API server has answered the evictions of the node's pods, by its audit
//	         log, in turn with bare eviction calls of a whole node at once; and which step took how long
//	moves    250 pods off 50 tainted nodes, in turn with bare calls, and the processor time of one complete move
//	follow   processor time of moves of one large workload, in turn with as many moves of small ones
//
// These run only by name, or with --parts all:
//
//	roles       processor time and memory of one process a role and of a NATS server that syncs every write
//	decisions   what one decision costs, by Go benchmarks: each strategy on a scope as large as they get, each strategy with its
//	            scope in a cluster of 1,000 nodes and 5,000 pods, where a pod fits in a cluster of 5,000 nodes, the scope of a node, and all strategies on a whole cluster from a file
//	dispatcher  scopes a second that are taken from a bus which syncs every write, asked over HTTP, and answered there
//
// Rehome and the bare calls take turns in the same run, so other work on the machine disturbs both. The head of the report says
// how much there was. Processor time covers the whole process, the bus included: the time above the idle share of the same run,
// divided by the number of changes or moves. Messages and bytes count what is published to the streams of the bus.
//
// # Pods
//
// There are four classes of pods, of 55, 25, 10 and 10 percent: spread has a topology spread constraint, plain has none, large is
// one Deployment, and small is 40. Each class tolerates the taints of all others, so one taint moves the pods of one class.
//
// # Where
//
// Processor time and memory are read from /proc, so all parts but decisions and dispatcher need Linux. All traffic stays on the
// loopback interface.
package main
