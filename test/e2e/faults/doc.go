// Package faults runs rehome on a real control plane with a bus of three servers while everything around it fails. It checks that
// nothing is lost or moved twice, that nothing moves without a cause, and that protection and limits hold:
//
//	make faults MINUTES=10 SEED=7
//	go test ./test/e2e/faults -timeout 30m -args -minutes 10 -seed 7
//	go test ./test/e2e/faults -args -core
//
// Situations have families. One situation of each family is active at a time. The seed decides their order and duration, but the
// reactions of the processes differ from run to run. Each situation has a turn in every run. The flag -core limits the run to
// kills and restarts, as in make e2e.
//
// TestFaultsDuringRestarts, of make faults-restarts, takes two minutes and a fifth of -minutes. It kills and pauses processes at each step of restarts and maintenances.
//
//	faults_test.go      the run: a cluster, taints that make pods leave, and the end
//	restarts_test.go    another run: restarts and maintenances, hit at each of their steps
//	steps_test.go       what reports these steps, and the maintenances
//	situations_test.go  the table of situations
//	processes_test.go   processes and their memory
//	bus_test.go         servers, disks, and stores of the bus
//	wire_test.go        the connection of each role to the bus
//	cluster_test.go     the API server, leases, nodes, namespaces, budgets, metrics
//	pods_test.go        workloads, and all pods that they had
//	input_test.go       policies, garbage on the bus, the outside function
//	etcd_test.go        a run of its own: etcd restored to an older state
//	history_test.go     what happened: events, audit log, pods
//	restored_test.go    what restores of the bus and of etcd undid
//	sessions_test.go    leaders, from the logs of the processes
//	judge_test.go       the rules, and the table of counts
//	wait_test.go        waits with a limit, and the dump of a run that hangs
//
// One server of the bus has a disk of 128 MiB, a tmpfs. Without -core, the test requires the right to mount it.
package faults
