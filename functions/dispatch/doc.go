// Package dispatch asks strategies outside of this process: it takes their scopes from the bus, asks, holds each answer
// against its scope and stores it. What carries a question is somebody else's business, see [Asker].
//
// # What becomes of a scope
//
//	the function                        the scope
//	answers with intents                is done when the answer is stored; one that a newer scope overtook is dropped
//	answers with nothing                is done: no pod should move, which withdraws the answer before
//	answers with what cannot be         goes to the dead letters
//	refuses it for good                 goes to the dead letters
//	asks to be asked later              is asked again, some times, and goes to the dead letters after the last
//	is not there, or lets nobody in     is asked again; after three of these in a row all scopes wait
//
// # A function that is not there
//
// After three questions in a row that nobody answered, or that were refused because of who asked, no further scope is taken:
// they stay in the stream, where a newer one of the same key takes the place of an older one. Those in hand, at most as many
// as are asked at once, stay in hand and take turns at asking again, after a second, then after up to a minute. The first that
// is answered, or refused for what it is, ends the wait for all. None of this counts as a try of a scope.
//
// # What an answer may say
//
// A function names pods of its scope that are not protected, each once, on the node where the scope has them, and a reason for
// each. It names the strategy, the profile, the kind, the key and the event of the scope. Everything else in its answer is
// filled in here: what it says of IDs, sequence and times is not looked at.
//
// # Concurrency
//
// Each strategy is asked on its own: one whose function is slow or away holds up no other. Scopes of one key are asked one
// after the other.
package dispatch
