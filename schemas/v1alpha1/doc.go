// Package v1alpha1 has the Kubernetes kinds of Rehome.
//
//	NodeMaintenance   cordons, drains, and releases nodes; the status has the progress
//	DrainRule         sets how pods of one namespace are drained; written by the owner of the application
//	ClusterDrainRule  the same for selected namespaces; written by the operator of the cluster
//
// # Stages
//
//	Idle ──▶ Cordon ──▶ Drain ──▶ Complete ──▶ deleted
//
// A user or a program sets spec.stage, which may skip stages and never goes back. Rehome brings each node to that stage: it
// cordons a node before it drains it, and at Complete it restores the previous state. status.nodes has the stage of each node.
// Only Rehome writes the status.
//
// # Guarantees
//
//   - A maintenance never has more nodes in work than spec.atOnce allows. A node counts from before its cordon until its release.
//   - Rehome claims a node in the status before it changes the node. The update fails if the status has changed since it was
//     read, so two concurrent decisions cannot claim too many nodes.
//   - A node that was cordoned before stays cordoned afterwards, and so does a node that is cordoned meanwhile.
//   - Budgets, limits, and circuit breakers apply as for every other move. Nothing bypasses them, not even after a deadline.
//
// deploy/crds has the CRDs, generated from the markers of these types, and a ValidatingAdmissionPolicy with further rules.
//
// +kubebuilder:object:generate=true
// +groupName=rehome.dev
package v1alpha1
