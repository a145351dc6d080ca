// Package binaries builds the programs of a test cluster from source: etcd, the API server, the controller manager, and the
// scheduler of Kubernetes, kwok, the supervisor of this project, and kubectl of the same version. It needs only Go and its module
// proxy.
//
// The versions are pinned in the go.mod files of the folders kubernetes, etcd, kwok, and kubectl next to this file. Each folder
// is a separate module, because their dependencies conflict, and the go.mod of the project needs none of them. The folders
// kubernetes-1.35 and kubernetes-1.37 have other releases, for make compat.
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
