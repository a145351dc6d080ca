// Package actuator turns intents into verdicts. It is the only part of Rehome that changes the cluster.
//
// # The way of an intent
//
//	bus ──answer──▶ table ──turn──▶ Handle ──verdict──▶ report ──▶ bus, metrics, log, Kubernetes Event
//
// The actuator follows the table of answers and keeps one open intent for each pod, in the order in which they arrived.
// An intent's turn comes when there is a token of the rate limit and a place among those worked on in parallel.
// One that a limit of the policy holds is deferred instead, before it takes a token, and holds back no other.
// [Actuator.Handle] looks at the live pod, asks [Gates] in order, and evicts the pod with its UID as a precondition. A
// token that no eviction call was made for is given back.
//
// An answer whose pods all have a verdict is dropped from the bus's table. An answer that is replaced withdraws the
// waiting intents that the new one does not list.
//
// # One intent, one verdict
//
// An intent that a newer answer lists again is the same wish: it keeps its place and the ID under which it was accepted
// first, and takes over the newer reason and expiry. Its verdict names the first ID; the newer ID gets none.
//
// A pod that several answers list is worked on for the first of them. If that one ends without an eviction, it is the
// next one's turn; if it ends with one, the others are rejected with PodTerminating.
//
// # Restarts
//
// The actuator keeps nothing that it cannot read again but what it counts for the limits of the policy. That is in memory:
// a process that is restarted, or takes over from another one, knows nothing of the moves before.
//
// The next leader reads the table anew. An answer in it that was settled in part is worked on as a whole, so a pod that was
// evicted before gets a second verdict under the same intent ID, rejected with PodGone or PodTerminating: of two verdicts
// on one intent, the first counts.
//
// # When others are away
//
// While the API server cannot be asked, intents wait and can still expire or be withdrawn; one at a time tries whether
// it is back. While the bus takes no verdicts, nothing is evicted beyond what is being worked on. Neither loses
// anything.
package actuator
