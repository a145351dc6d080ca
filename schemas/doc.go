// Package schemas is the public contract of Rehome: the events on the bus as Go types, JSON Schemas, examples, and an AsyncAPI
// document. All other code may change as long as these events stay compatible.
//
// # Events
//
// A [Delta] is a change in the cluster. A scope, such as [NodeScope], has everything that a function needs to decide about one
// thing. [Intents] is the answer to a scope: the pods that should move. A [Verdict] is the result of one intent.
//
//	watcher ──Delta──▶ everyone      watcher ──Scope──▶ function ──Intents──▶ actuator ──Verdict──▶ everyone
//
// A [Request] asks to move pods, and a [Receipt] is the answer.
//
//	people and programs ──Request──▶ watcher ──Receipt──▶ everyone
//
// A [Maintenance] is a change in the status of a NodeMaintenance.
//
//	maintenance ──Maintenance──▶ everyone
//
// Each of them is the data of a CloudEvent, an [Event]. Its correlationid is the ID of the first event of the chain and its
// causationid the ID of the previous one, so you can trace a verdict back to the change that caused it.
//
// # Compatibility
//
// Only fields and values are added: outcomes, reason codes, methods, and kinds of deltas, scopes, and causes. Readers ignore
// unknown fields and values. The published JSON Schemas are open, so an event of a newer version is also valid with an older
// schema. Tests of Rehome use their closed form, see package validation. An incompatible change needs a new event type with a
// higher version, next to the old one. A test compares every change with the schemas and examples of the last release, in
// testdata/released.
//
// # Dependencies
//
// This package imports only the standard library, k8s.io/api, and the packages of k8s.io/apimachinery whose types k8s.io/api
// uses, so programs outside of Rehome can import it.
package schemas
