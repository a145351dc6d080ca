// Package simulate decides about everything: what a policy would move in a cluster that is given as objects. It is
// the one place where watcher, functions and actuator meet without a bus and without a cluster.
//
// # The round
//
// Strategies have their turns as in a cycle of kubernetes-sigs/descheduler: all profiles in order with the strategies that
// they enable under deschedule, in order, then all profiles with those under balance. A strategy sees the cluster without
// the pods that were moved in the turns before, and a pod is moved once.
//
// In a turn every scope of the strategy is answered, in the order of their keys. Each intent of the answers passes the
// actuator's gates, the limits of the policy, and whoever carries it out, and gets one verdict. Nobody replaces the pods
// that are moved, so nothing is decided about replacements.
//
// # Several rounds
//
// [Settle] decides again and again, until no pod moves. Between two rounds package fit/score predicts the nodes of the
// replacements.
//
// # Candidates
//
// A pod that a strategy would move if nothing protected it is a candidate. It gets a verdict too: rejected, Protected, with
// the protections as the message. Candidates are found by asking the strategy about the same scope again, without the
// protections. A strategy that chooses among the pods of a group can so name a pod that it would not have chosen first.
//
// # Same input, same output
//
// Everything derives from the objects, the policy and the time. What differs between two runs, such as the IDs of events,
// is in no verdict.
package simulate
