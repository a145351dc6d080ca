// Package httpfunction answers scopes over HTTP with one strategy, after the binding of CloudEvents to HTTP: the part of
// `rehome serve` that speaks HTTP.
//
// # A request and its answer
//
//	POST /   an event of type dev.rehome.scope.v1   200 and one of type dev.rehome.intents.v1, in the same mode
//
// The mode is binary, structured (application/cloudevents+json) or batched (application/cloudevents-batch+json). The
// answer to a batch is a batch with one answer for each event, in their order; when one of them has no answer, none has. A
// request may be compressed with gzip. The sequence in an answer is 0: who stores it knows the number of the scope.
//
// Everything else is refused with one line of text that says what would be right:
//
//	400  no valid CloudEvent, of another type, or no scope of this strategy   would be refused again
//	405  another method than POST                                             would be refused again
//	408  the request was not read in time
//	413  larger than [Config].MaxBytes                                        would be refused again
//	415  a content type or content encoding that is not read                  would be refused again
//	429  too many requests at once                                            after Retry-After
//	500  the strategy panicked; it is logged, and the process goes on
//	503  the handler drains                                                   after Retry-After
//
// The validation of webhooks, by requests with the method OPTIONS, is not done: those are refused with 405.
//
// # State and concurrency
//
// A [Handler] keeps nothing of a request. It answers several at once, up to a bound, so that memory has one.
package httpfunction
