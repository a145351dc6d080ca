// Package simulate evaluates a policy on given objects. It is the one place where watcher, functions, and actuator work
// together without a bus or a cluster.
//
// # The round
//
// Strategies run in turns, like in a cycle of kubernetes-sigs/descheduler: first the deschedule strategies of all
// profiles in order, then the balance strategies of all profiles. A strategy sees the cluster without the pods that
// moved in earlier turns, and a pod moves once.
//
// In a turn the strategy answers each of its scopes, in the order of their keys. Each intent passes the actuator's
// gates, the limits of the policy, and the executor, and gets one verdict. Moved pods are not replaced during a round,
// so nothing is decided about replacements.
//
// # Several rounds
//
// [Settle] repeats rounds until no pod moves. Between two rounds package fit/score predicts the nodes of the
// replacements.
//
// # Candidates
//
// A pod that a strategy would move if nothing protected it is a candidate. It gets a verdict too: rejected, Protected,
// with the protections as the message. To find candidates, the strategy decides on the same scope again without the
// protections. A strategy that chooses among the pods of a group can name a pod that it would not have chosen first.
//
// # Determinism
//
// The result depends only on the objects, the policy, and the time. No verdict contains random values such as event
// IDs.
package simulate
