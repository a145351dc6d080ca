// Package api serves the state of the cluster and of Rehome over HTTP, takes requests, and serves the page.
//
//	loopback address ▶ Server.Operator ─┐
//	network address  ▶ Server.Network  ─┴▶ user.go ▶ server.go ▶ one handler for each route ▶ rights.go
//
//	GET  /                                        the page, see package page
//	GET  /v1/openapi.json                         this API, generated from the types
//	GET  /v1/state                                state.go     at most once a second for all clients
//	GET  /v1/watch                                watch.go     nodes and pods, and their changes
//	GET  /v1/events                               events.go    the history and new events; history.go follows the bus for all
//	GET  /v1/pods, /v1/nodes, /v1/workloads       explain.go   what package explain knows about one object
//	POST /v1/simulate                             simulate.go  the moves of a policy
//	GET  /v1/requests                             requests.go  the open requests of that state
//	GET  /v1/requests/{sender}/{name}             requests.go  one request and its receipt
//	POST /v1/requests                             requests.go  a CloudEvent, answered with the receipt
//
// # Users
//
// The network address needs a bearer token. A TokenReview returns its user, and a SubjectAccessReview says what the user may see:
// with the right to get pods in a namespace its pods, with the right to get nodes the nodes, and with both rights in all
// namespaces everything. Reviews are cached for ten seconds, except for requests. Streams check the rights again every ten
// seconds.
//
// The loopback address needs no token and serves the operator with all rights. Pages of other sites cannot use it, because it
// refuses other names in the header Host, and other origins.
//
// # Errors
//
// A response with an error has the type application/problem+json. Responses to POST /v1/requests can have a receipt instead.
//
//	400, 422  the call violates the contract          401  no token, or an unknown one
//	403       a right is missing; the text names it   404  there is no such object, or the user may not see it
//	409       a request with that name is open        413, 415  the body is too large, or of another type
//	429       a limit is reached                      503  the bus or the API server is unavailable
package api
