// Package watcher turns changes of the cluster into deltas, and deltas into scopes: the evaluations that they make
// necessary, and no others.
//
// # The way of a change
//
//	informer ──old, new──▶ ObserveNode, ObservePod ──▶ Delta ──▶ bus
//	                                                    │
//	                                                    └─▶ plan.woken ──▶ queue ──settled──▶ scope ──▶ bus
//
// Observing is pure. The queue holds one pending evaluation for each profile, strategy and scope key, however many
// deltas wake it, and lets it settle for a moment so that changes that belong together are seen together. The scope is
// built from the informers' caches at the moment it is published, so it is never older than the delta that woke it.
//
// # Level-triggered
//
// A delta says where to look, never what to do. On start and every resync interval all scopes are evaluated, so
// whatever was missed is found then. A pod whose move was deferred is looked at again when the budget that held it
// allows a disruption, and after a growing delay in any case.
//
// # Roles
//
// [Watcher.Run] keeps the caches warm, on every replica. [Watcher.Lead] publishes, on one of them. The watcher gets,
// lists and watches nodes, pods and PodDisruptionBudgets; it changes nothing.
package watcher
