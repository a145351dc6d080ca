// Package faults runs rehome while everything around it goes wrong, and checks that nothing is moved twice, nothing protected is
// moved, no limit is exceeded, and nothing is lost. It is a test of the whole on a real control plane with a bus of three servers:
//
//	make faults MINUTES=10 SEED=7
//	go test ./test/faults -timeout 30m -args -minutes 10 -seed 7
//
// Situations come in families, see families: one of each family is on at a time, in an order and for a time that the seed
// decides. The reactions of the processes differ from run to run. However short a run is, each situation is on at least once.
//
//	faults_test.go      the stage, the taints that make pods leave, and the end: every wanted pod has moved
//	situations_test.go  plays the situations
//	processes_test.go   kills, pauses, memory
//	wire_test.go        the connection of each role to the bus, which can be cut, slow, or silent
//	bus_test.go         servers that restart, full disks, older stores, bad records
//	apiserver_test.go   the API server, etcd, the controllers, and leases
//	cluster_test.go     nodes, namespaces, pods, budgets, admission, metrics
//	input_test.go       policies, garbage on every subject, a hostile function
//	judge_test.go       compares the audit log, the history of the bus, and the pods; prints the table
//
// One server of the bus has a disk of 128 MiB, a tmpfs: the test needs the right to mount.
package faults
