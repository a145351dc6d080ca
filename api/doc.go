// Package api takes requests over HTTP, from users of the cluster: who asks is who the API server says that the
// token belongs to, and what that user may ask for is what RBAC says.
//
// # A request and its answer
//
//	POST /   an event of type dev.rehome.request.v1   202 and the receipt, one of type dev.rehome.receipt.v1
//	         Authorization: Bearer TOKEN
//
// Both are CloudEvents in binary or in structured mode. The sender becomes http, the requester the user, and a request
// without a name gets one, which the header Rehome-Request of the answer names. Without a receipt within five seconds the
// answer is 202 without a body: the request is on the bus, and whoever works on requests is away.
//
// # The rights
//
// The verb create for the resource requests of the group rehome.dev, in the namespace of everything that is asked for; for
// nodes, for labels in all namespaces and for evaluations in all namespaces. Who overrides rules or lifts guards needs the same
// for requests/override. To cordon, drain, or give back a node also needs the verb create for nodemaintenances, as the object
// that does the same. To cancel a request needs what the request did.
//
// # What is refused
//
//	400  no valid CloudEvent, or of another type
//	401  no token, or one that the API server does not know
//	403  a right is missing; the text names it
//	405  another method than POST
//	409  a request of that name is open; or rejected by the policy, for the stage of the node, or since another user's
//	     request or one with other content has had the name, with the receipt
//	413  larger than a request may be
//	415  a content type that is not read
//	422  not what the contract asks for, or rejected for what it asks for, with the receipt
//	429  the user, or all of them together, ask too often: after Retry-After
//	503  the bus or the API server is away, or takes no more: after Retry-After
//
// A refusal without a receipt is one line of text.
package api
