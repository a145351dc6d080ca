package actuator

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/rehome-dev/rehome/schemas"
)

// CheckRequested returns an error that wraps [schemas.ErrInvalid] if the intents of a request differ from the request as its
// sender stored it, or from the receipt with which the watcher accepted it. Overrides so rest on the request, which has been
// checked against the policy, and never on the word of the process that answers its scopes.
func CheckRequested(a schemas.Intents, request schemas.Request, accepted schemas.Receipt) error {
	if a.Profile != accepted.Profile {
		return fmt.Errorf("%w: its profile is %q, and the request was accepted for %q", schemas.ErrInvalid, a.Profile, accepted.Profile)
	}
	for i, intent := range a.Intents {
		if !slices.ContainsFunc(accepted.Pods, func(p schemas.RequestedPod) bool { return p.Pod == intent.Pod }) {
			return fmt.Errorf("%w: intents[%d].pod is not among the pods of the accepted request", schemas.ErrInvalid, i)
		}
		if !reflect.DeepEqual(intent.Asked, request.Asked()) {
			return fmt.Errorf("%w: intents[%d].asked is not what the accepted request asks for", schemas.ErrInvalid, i)
		}
	}
	return nil
}
