// Package api accepts requests over HTTP from users of the cluster. The API server authenticates the token, and RBAC decides
// what the user may request.
//
// # Request and response
//
//	POST /   an event of type dev.rehome.request.v1   202 and the receipt, one of type dev.rehome.receipt.v1
//	         Authorization: Bearer TOKEN
//
// Both are CloudEvents in binary or in structured mode. The sender becomes http and the requester the user. A request without a
// name gets a generated one. The response header Rehome-Request has the name. If no receipt arrives within five seconds, the
// response is 202 without a body: the request is on the bus, but no role has answered it yet.
//
// # Rights
//
// A user needs the verb create for the resource requests of the group rehome.dev in each namespace of the request. Nodes,
// labels in all namespaces, and evaluations need it in all namespaces. Overriding rules or guards also needs create for
// requests/override. To cordon, drain, or release a node, the user also needs create for nodemaintenances, because that object
// has the same effect. To cancel a request, the user needs the rights for that request.
//
// # Errors
//
//	400  no valid CloudEvent, or of another type
//	401  no token, or one that the API server does not know
//	403  a right is missing; the text names it
//	405  another method than POST
//	409  a request with that name is open; or, with the receipt: the policy or the stage of the node does not allow it, or the
//	     name belongs to a request of another user or with other content
//	413  the body is too large
//	415  unsupported content type
//	422  the request violates the contract; with the receipt if a role has rejected its content
//	429  too many requests from the user or in total: retry after Retry-After
//	503  the bus or the API server is unavailable or overloaded: retry after Retry-After
//
// A response without a receipt is one line of text.
package api
