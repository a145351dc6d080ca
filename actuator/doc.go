// Package actuator turns intents into verdicts. It is the only part of Rehome that changes the cluster.
//
// # The way of an intent
//
//	bus ──answer──▶ table ──turn──▶ Handle ──verdict──▶ report ──▶ bus, metrics, log, Kubernetes Event
//	                                  │                                ▲
//	                                  └──move──▶ follow ───settled─────┘
//
// The actuator follows the table of answers and keeps one open intent for each pod. An answer whose pods all have a verdict
// is dropped from the bus's table. An answer that is replaced withdraws the waiting intents that the new one does not list.
//
// # Maintenances
//
// An answer about a maintenance can want more than moves: a status, and changes of nodes. Package [maintenance] carries that
// out, for each maintenance in a goroutine of its own, and only then the intents of the answer enter the table. When the answer
// does not hold any more, it is dropped with its intents. Such answers are never taken from the history, since the bus's table
// has them until all of that is done.
//
// A change of a node that fails is tried again by itself, until it is done or a newer answer comes. The intents do not wait for
// it, unless one of them is about a pod on that node and it was to be cordoned or given back. When the status or the finalizer
// cannot be written, nothing else is done.
//
// Before the intents, a [schemas.Maintenance] goes to the bus with what the status says and was not told yet. What was told is
// known to the process alone: the next leader tells of each maintenance as a whole.
//
// # Lanes and holds
//
// Intents wait in lanes, by the [policy.Priority] of their strategy: failing nodes and nodes under maintenance, requests,
// violations, balance. Within a lane low priority comes first, then the lower quality of
// service, then who has waited longer. A lane in which somebody waits gets one turn after eight of others, so none starves.
//
// When an intent's turn comes, it is asked in this order whether it may go:
//
//   - While the storm brake is open, a loop breaker holds or the limit of a window is reached, it is deferred at once: it has
//     to be verdictOn about again. So it has when its decision counted pods together, such as the replicas in a zone, and
//     another one of them was moved since its scope was made.
//   - When too much of its node, namespace or workload is on the move, its workload is in a pause or has too few pods
//     available, or its namespace has no token, it waits beside the lanes until that changes. Most of it passes within
//     seconds. After a minute it is deferred, which says why.
//   - Then it needs a place among all moves in flight and among those worked on in parallel, and a token of the rate. While
//     there is none, all intents wait.
//
// [Actuator.Handle] then looks at the live pod, asks [Gates] in order, and moves the pod by the method that the policy wants:
// the eviction API with the pod's UID as a precondition, or a [move.Method] that takes several steps. A token is given back
// when nothing was asked of the API server but a look.
//
// # Moves and their end
//
// A move counts against what may be in flight from before it is asked for until it is over: when its replacement is ready,
// when there is none to wait for, when its method has taken it back, or ten minutes after it was accepted, unless its method
// is not done by then. A move that was accepted has two
// verdicts, the one that began it and the one with the outcome [schemas.Settled], whose cause is the first. What is known of
// replacements comes from a [View]. Without one, and in a dry run, moves are over when they are accepted, and no verdict says
// so.
//
// # One intent, one verdict
//
// An intent that a newer answer lists again is the same wish: it keeps its place and the ID under which it was accepted
// first, and takes over the newer reason and expiry. Its verdict names the first ID; the newer ID gets none.
//
// A pod that several answers list is worked on for the first of them. If that one ends without a move, it is the next one's
// turn; if it ends with one, the others are rejected with PodTerminating or Moving.
//
// # What is remembered
//
// The [Ledger] has what must outlive the process: each move, from before anything is changed until it neither is in flight
// nor counts against a limit or a pause; the loop breakers; and the storm brake, for people to see. [ReadLedger] reads it.
// Lead changes nothing before the ledger has it. In a dry run the ledger is in memory. Handle by itself and [Batches]
// remember nothing.
//
// A new leader reads the ledger, and then the table of intents messages; it replays no stream. A move that was begun and not
// accepted, as far as the ledger says, is looked into: if its pod is gone or terminating, or its method has more steps to take,
// it gets the verdict that may be lost; if not, it was never made, and the intent is tried again. The ID of a verdict's event is
// that of the intent with the outcome, so that a verdict which is stored twice is one event. An intent of which the message is
// still in the table, and which did not begin a move, is tried again: it may get a second verdict with another outcome.
// An intents message that was replaced before the actuator read it needs no verdict.
//
// A record of the ledger that cannot be read is set aside, named in the log, in a metric and in [Actuator.Ready]; everything else
// continues.
//
// # When others are away
//
// While the API server cannot be asked, intents wait and can still expire or be withdrawn; one at a time tries whether it is
// back. While the bus takes no verdicts or the ledger takes no entries, nothing is moved beyond what is being worked on.
// Neither loses anything.
package actuator
