// Package v1alpha1 holds the Kubernetes kinds of Rehome: what people apply with kubectl to say what they intend.
//
//	NodeMaintenance   nodes are to be cordoned, drained, worked on and given back; its status says how far that is
//	DrainRule         how the pods of one namespace take part in that; written by who owns the application
//	ClusterDrainRule  the same for namespaces that a selector finds; written by who runs the cluster
//
// # The way of a maintenance
//
//	Idle ──▶ Cordon ──▶ Drain ──▶ Complete ──▶ deleted
//
// spec.stage says what is wanted, by a person or a program; stages can be left out, never gone back. Rehome leads each node
// there: a node is cordoned before it is drained, and on Complete it gets back what it was before. status.nodes says where
// each node is. Nothing but Rehome writes the status.
//
// # What is promised
//
//   - No more nodes are cordoned by a maintenance at a time than spec.atOnce says. A node counts from before it is cordoned
//     until it is given back.
//   - A node is claimed in the status before it is touched, by an update that fails when the status has changed since: two
//     decisions that do not know of each other cannot claim too many.
//   - A node that was cordoned before stays cordoned afterwards, and so does one that somebody else cordoned meanwhile.
//   - Budgets, limits and circuit breakers hold as for every other move. Nothing is deleted past them, not after a deadline
//     either.
//
// The rules that the API server checks itself are in deploy/crds, made from the markers of these types, and in the
// ValidatingAdmissionPolicy beside them.
//
// +kubebuilder:object:generate=true
// +groupName=rehome.dev
package v1alpha1
