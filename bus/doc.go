// Package bus carries the events of Rehome over NATS JetStream: a server of package embed in the process, or an external cluster.
//
//	          nouns.go     the table: subjects, stream, type, and roles of each noun
//	     ┌────────┴────────────────────────┐
//	streams.go  streams, consumers            rights.go  rights    filter/  subjects of the events that a user selects
//
//	publish.go     Publish, PublishAll, Answer                  one message, stored when the call returns
//	consume.go     Work                                         durable consumers: several handlers, ack, retry, dead letters
//	listen.go      Listen                                       the same, for events of the history under a name
//	history.go     Events, Proofread, Subscribe                 one event at a time, in order; live messages
//	read.go        list, follow                                 the readers of streams, with a consumer; poll.go without one
//	status.go      Status                                       the content of the streams
//	tables.go      FollowIntents, FollowRequests, Receipt       tables: the newest message of each key
//	kv.go          Ledger, Maintenances                         key-value buckets
//	dead.go        Bury, DeadLetter, RetryDead, DropDead        messages that could not be read or handled
//	ask.go         Ask                                          functions in other programs
//	message.go     CloudEvents in NATS messages
//	connect.go     Connect, Now       health.go  Ready, Space, errors, and reconnecting
//
// # Guarantees
//
// An event is stored when [Bus.Publish] returns. A scope is delivered to a function at least once, and again until the
// function is done with it. Of two waiting scopes of one key, the older one is dropped. Two scopes of one key can be
// handled at the same time; an answer in the table is never replaced by the answer to an older scope, see [Bus.Answer].
//
// A message that cannot be read, or that its handler calls invalid, is stored as a dead letter with the error before it
// is removed, and never blocks the others.
//
// The bus can be lost as a whole: the watcher's next resync recreates everything on it from the cluster, except
// requests and the maintenances of the bus, which must be made again.
//
// All methods are safe for concurrent use. [Bus.FollowIntents], [Bus.FollowRequests], and [Bus.Events] deliver one
// event at a time in the order of their stream, [Bus.Work] and [Bus.Listen] several in parallel in no particular order.
// These survive any loss of the connection and end with their context; nothing keeps running after they have returned.
//
// A server that distinguishes participants refuses everything that [RightsOf] does not list. The error is
// [ErrNotPermitted], and the process is not ready. Package credentials writes keys and rights for servers. Package
// bustest runs real servers for tests.
package bus
