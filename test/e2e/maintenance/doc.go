// Package maintenance tests NodeMaintenances: from the cordon of the first node until all nodes are given back. Its scenes run rehome
// on a real control plane. They do not run in parallel, because every rehome sees all NodeMaintenances.
package maintenance
