// Package binaries builds the programs of a test cluster from source: etcd, the
// API server, the controller manager and the scheduler of Kubernetes, kwok, and
// our own supervisor; and kubectl, of the same version. Nothing but Go and its
// module proxy is needed.
//
// The versions are pinned in the go.mod of the folders kubernetes, etcd, kwok and
// kubectl next to this file. Each is a module of its own, because their dependencies
// contradict each other and none of them belongs in the project's go.mod.
//
// # Usage
//
//	set, err := binaries.Build(ctx, binaries.Options{})
//
// The first build takes about six minutes on two cores; after that Build only
// compares a few hashes, until a version or the Go toolchain changes.
//
// # Concurrency
//
// Any number of processes may call Build with the same directory: one builds,
// the others wait for it. A program that is in use may be replaced safely.
package binaries
