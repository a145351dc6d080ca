// Package request is the strategy that moves the pods of a request.
package request

import "github.com/rehome-dev/rehome/schemas"

// Args has no fields, because the request has all options.
type Args struct{}

// Validate returns nil.
func (Args) Validate() error { return nil }

// Decide returns the unprotected pods of the request, in the order of the scope.
func (Args) Decide(scope schemas.RequestScope) []schemas.Intent {
	r := scope.Request
	reason := "asked for by " + r.Sender
	if r.Requester != "" {
		reason += " for " + r.Requester
	}
	reason += ": " + r.Reason
	asked := r.Asked()
	var intents []schemas.Intent
	for _, p := range scope.Pods {
		if len(p.Protected) > 0 {
			continue
		}
		i := p.Move(reason)
		i.Asked = asked
		intents = append(intents, i)
	}
	return intents
}
