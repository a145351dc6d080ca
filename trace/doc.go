// Package trace exports the events of Rehome as OpenTelemetry spans: one trace per chain of events, one span per event.
//
// # Spans
//
// The traceparent of an event carries its trace ID and span ID. [Exporter.Emitted] exports the span of an event that this
// process published. The span has these IDs, and the event's cause as its parent. It starts when this process received the
// cause and ends now. Each process exports its own spans, and the tracing backend assembles the chain: a delta, its scope, the
// answer, the verdict, and the result of the move.
//
//	dev.rehome.delta.v1 node      ▏
//	dev.rehome.scope.v1 node      ▕█▏
//	dev.rehome.intents.v1 node       ▕▏
//	dev.rehome.verdict.v1 pod          ▕███▏
//	dev.rehome.verdict.v1 pod               ▕██████████████████████▏   settled
//
// A gap between two spans is time on the bus. The start and end of a span come from the clock of one process.
//
// # Limits
//
// Exporting never blocks work. When the bounded queue is full, spans are dropped. The log has one line when sending fails for
// the first time and one when it works again.
package trace
