// Package request moves the pods of a request.
package request

import "github.com/rehome-dev/rehome/schemas"

// Args has no fields: everything is in the request.
type Args struct{}

// Validate finds nothing wrong.
func (Args) Validate() error { return nil }

// Decide wants every pod of the request moved that nothing protects, in the order of the scope.
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
