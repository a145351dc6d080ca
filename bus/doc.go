// Package bus carries the events of Rehome over NATS JetStream: an embedded server, or an external cluster.
//
// # Streams
//
//	REHOME_SCOPES    rehome.scope.>    work: the newest scope of each key; gone when it is answered
//	REHOME_INTENTS   rehome.intents.>  a table: the newest answer of each key; dropped when it is settled
//	REHOME_REQUESTS  rehome.request.>  a table: one request of each sender and name; dropped when it is finished
//	REHOME_EVENTS    rehome.delta.>, rehome.verdict.>, rehome.receipt.>, rehome.maintenance.>
//	                                   history, 72 h, with a copy of rehome.intents.>
//	REHOME_DEAD      rehome.dead.>     what could not be read or worked on, with its error, 7 days
//	KV_REHOME_LEDGER                   what the actuator remembers, 25 h
//	KV_REHOME_MAINTENANCES             the maintenances that were asked for here; each until its node is given back
//
// # Usage
//
// [StartServer] runs a server in this process; without one, [Options] name a server elsewhere. [Connect] never waits:
// [Bus.Ready] says how it stands. One process calls [Bus.Setup], all others find what it made.
//
//	watcher    Publish, PublishAll    deltas and scopes        Events         verdicts
//	functions  Work                   scopes of one strategy   Answer         the answer to each
//	dispatcher Ask                    functions elsewhere
//	actuator   FollowIntents          the table of answers     DropIntents    Publish, verdicts and maintenances
//	watcher    FollowRequests         what is asked for        DropRequest    Receipt, and Publish receipts
//	watcher    Proofread              the history: what is wrong in it is buried
//	watcher    Maintenances           what is wanted of nodes  actuator       how far they are
//	who asks   Publish                requests                 Events         receipts and verdicts
//	people     DeadNumbers            what died, DeadLetter    RetryDead      DropDead
//	others     Listen                 all of the history, under a name that lasts
//
// # What is promised
//
// An event is stored when [Bus.Publish] returns. A scope is handed to a function at least once, and again when the
// function did not say that it is done. Of two scopes of one key that wait, the older one is dropped. Two scopes of one
// key can be worked on at the same time by two processes; an answer in the table is never replaced by the answer to an
// older scope, see [Bus.Answer].
//
// A message that cannot be read, or that its handler calls invalid, is stored as a dead letter with the error before it
// is removed, and never stops the line.
//
// The bus can be lost as a whole: everything on it is made again from the cluster by the watcher's next resync, but for
// requests and the maintenances of the bus, which have to be asked for again.
//
// # Rights
//
// [RightsOf] is what each participant needs the right to, on servers that tell participants apart. What a server refuses
// fails at once with [ErrNotPermitted] and is no longer ready; package credentials writes keys and rights for servers.
//
// # Ordering and concurrency
//
// All methods may be called from many goroutines. [Bus.FollowIntents], [Bus.FollowRequests] and [Bus.Events] hand over one
// event at a time in the order of their stream, [Bus.Work] and [Bus.Listen] several at once in no particular order. These
// survive any loss of the connection and end with their context; nothing keeps running after they have returned.
//
// # Testing
//
// Package bustest runs real servers, one in this process or a cluster on the loopback interface.
package bus
