// Package actuator turns intents into verdicts. It is the only part of Rehome that evicts pods and restarts Deployments. It is a
// controller keyed by pod UID:
//
//	Accept (accept.go) ──▶ entries.accept (entries.go) ──▶ queue (queue.go)
//	  ──▶ Reconcile (reconcile.go) ──▶ admit (admit.go) ──▶ begin ──▶ work ──▶ executeOpen (execute.go)
//	  ──▶ Gates (gates.go) ──▶ moveBy (methods.go) ──▶ save (ledger) ──▶ move.Method.Start ──▶ conclude (publish.go)
//
//	Changed ──▶ learn (track.go) ──▶ queue ──▶ Reconcile ──▶ track ──▶ Step or Cancel, arrive ──▶ publishEnd (publish.go)
//
// # Intents
//
// The actuator follows the table of intents messages and keeps one open intent for each pod. A message whose intents all have
// a verdict is dropped from the table. A newer message of the same scope withdraws the waiting intents that it does not list,
// and cancels moves in flight whose method has more steps to take. An intent that it lists again keeps the ID under which it was
// accepted first.
//
// # Admission
//
// The queue orders pods by the [policy.Priority] of the strategy, then low pod priority first, then the lower quality of service.
// An intent is deferred at once while a circuit breaker is open, the limit of a window is reached, or its decision is stale. It is
// parked, for at most a minute, while too many moves of its node, namespace or workload are in flight, its workload is cooling
// down or has too few pods available, or its namespace has no token. Otherwise it waits for a token of the rate. Package
// [github.com/rehome-dev/rehome/actuator/limit] counts.
//
// # Moves
//
// Right before a move, the actuator reads the live pod, applies every gate again, and stores a record in the [Ledger]. It asks
// [Config.LeaseValid] between the record and the call. A move is in flight until its replacement is ready, until there is none to
// wait for, or for ten minutes; then a second verdict, [schemas.Settled], says how it ended. Moves are followed by what a [View]
// knows. Without a View, and in a dry run, moves are over when they are accepted.
//
// # Recovery
//
// A new leader reads the ledger, and then the table of intents messages; it replays no stream. A move that was begun and not
// accepted, as far as the ledger says, is looked into: if its pod is gone or terminating, or its method has more steps to take,
// it gets the verdict that may be lost; if not, it was never made, and the intent is tried again. The ID of a verdict's event is
// that of the intent with the outcome, so a verdict that is stored twice is one event. An intent whose message is still in the
// table, and which did not begin a move, is tried again: it may get a second verdict with another outcome. An intents message that
// was replaced before the actuator read it needs no verdict.
//
// A record of the ledger that cannot be read is set aside, named in the log, in a metric and in [Actuator.Ready]; everything else
// continues.
//
// # Outages
//
// While the API server cannot be asked, intents wait and can still expire or be withdrawn; one at a time tries whether it is back.
// While the bus takes no verdicts or the ledger takes no records, nothing is moved beyond what is being executed.
package actuator
