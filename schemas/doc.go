// Package schemas is the contract of Rehome: what travels on the bus, as Go types, JSON Schemas, examples and an
// AsyncAPI document. Everything else in Rehome may be replaced as long as these events stay what they are.
//
// # The nouns
//
// A [Delta] says that something changed in the cluster. A [NodeScope] (one kind of scope) holds everything one
// function needs to decide about one thing. [Intents] is the function's answer to one scope: the pods that should move.
// A [Verdict] says what became of one intent.
//
//	watcher ──Delta──▶ everyone      watcher ──Scope──▶ function ──Intents──▶ actuator ──Verdict──▶ everyone
//
// A [Request] asks for pods to be moved, and a [Receipt] says what became of it.
//
//	people and programs ──Request──▶ watcher ──Receipt──▶ everyone
//
// A [Maintenance] says what is new about a node maintenance, which is an object of the cluster.
//
//	actuator ──Maintenance──▶ everyone
//
// # The envelope
//
// Each of them travels as the data of one CloudEvent, an [Event]. correlationid names the first event of a chain and
// causationid the event before, so that a verdict can be followed back to the change that led to it.
//
// # Compatibility
//
// Fields are only ever added, and so are values: outcomes, reason codes, methods, kinds of deltas, scopes and causes.
// Readers ignore fields they do not know, and pass over values they do not know. The JSON Schemas are published open, so
// that an event of a newer version is valid by an older schema, too; Rehome itself is tested with their closed form, see
// package validation. A change that would break a reader gets a new event type with a higher version, beside the old one.
// A test holds every change against the schemas and examples of the last release, in testdata/released.
//
// # Dependencies
//
// This package imports the standard library, k8s.io/api and the packages of k8s.io/apimachinery whose types
// k8s.io/api is made of, so that a program outside Rehome can import it without Rehome's machinery.
package schemas
