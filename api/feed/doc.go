// Package feed sends the nodes and pods of a cluster, and their changes, to clients as rows.
//
//	handlers of cluster.Cache ──keys──▶ changed ──every 100 ms──▶ Feed.Run: rows now, compared with the rows before
//	    changed.go                                                   │ feed.go
//	                                                                 ├─▶ View of clients with the same rights: messages   view.go
//	                                                                 │      └─▶ queue of each Client
//	Feed.Join ──▶ a snapshot, and a Client with the changes since then
//
// The goroutine of [Feed.Run] owns the rows, the views, and the clients. It waits for no client: when the queue of a client is
// full, it closes the queue, and the client joins again. Without clients there are no rows, and handlers do nothing.
//
// A message is encoded, and compressed, once for all clients of a view.
package feed
