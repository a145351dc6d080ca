// Package scene has the code that the end-to-end tests share. A scene is one test: it has a namespace and nodes of its own, starts
// rehome, changes something in the cluster, and compares the moves with the expected ones.
//
//	controlplane.go  the control plane that the scenes of a package share: the first scene starts it, and [Main] stops it
//	scene.go         [New] creates the namespace and the nodes of a scene
//	policy.go        policy files for the nodes of a scene
//	process.go       rehome, as a process of `rehome run` or of one role
//	command.go       rehome, as a command that ends
//	node.go          taints, labels, and cordons
//	workload.go      Deployments and DaemonSets
//	pod.go           pods, where they run, and their history
//	budget.go        PodDisruptionBudgets
//	eviction.go      evictions, from the audit log of the API server
//	recording.go     events, from the bus
//	nats.go          NATS servers that a scene can kill
//
// Functions that begin with Wait fail the test if the condition does not become true in time. Functions that begin with Check
// compare the result with the expected one; some wait for the result first.
package scene
