// Package trace exports what happens in Rehome as OpenTelemetry spans: one trace a chain of events, one span an event.
//
// # What a span is
//
// An event carries its trace and its span in traceparent already. [Exporter.Emitted] exports the span of an event that
// this process made: with these very IDs, below the span of the event that led to it, from when the process had that one
// until now. Each process exports its own, and a backend puts a chain together across all of them: a delta, the scope that
// it woke, the answer, the verdict, and what came of the move.
//
//	dev.rehome.delta.v1 node      ▏
//	dev.rehome.scope.v1 node      ▕█▏
//	dev.rehome.intents.v1 node       ▕▏
//	dev.rehome.verdict.v1 pod          ▕███▏
//	dev.rehome.verdict.v1 pod               ▕██████████████████████▏   settled
//
// A gap between two spans is time on the bus. A span begins and ends by the clock of one process.
//
// # What it does not
//
// It never holds up work: what cannot be sent is dropped, beyond a queue of bounded length. Whether spans arrive is said
// in the log once, and once more when it changes.
package trace
