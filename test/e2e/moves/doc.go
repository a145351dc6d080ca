// Package moves tests strategies, protections, limits, and the ways to move a pod. Its scenes run rehome on a real control plane,
// change something in the cluster, and compare the moves with the expected ones.
package moves
