package simulate

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator"
	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/schemas"
)

// ask evaluates one scope. candidates are protected pods that the strategy would move without the protection.
func ask(f functions.Function, scope schemas.Payload) (wanted, candidates []*wish, err error) {
	answer, err := f.EvaluateInPlace(scope, scope.About())
	if err != nil {
		return nil, nil, err
	}
	for _, intent := range answer.Intents {
		wanted = append(wanted, &wish{open: open(answer, intent)})
	}
	protected := map[types.UID][]schemas.Protection{}
	for _, p := range pods(scope) {
		if len(p.Protected) > 0 {
			protected[p.Pod.UID] = p.Protected
		}
	}
	if len(protected) == 0 {
		return wanted, nil, nil
	}
	freely, err := f.EvaluateInPlace(unprotected(scope), scope.About())
	if err != nil {
		return nil, nil, err
	}
	for _, intent := range freely.Intents {
		if rules := protected[intent.Pod.UID]; len(rules) > 0 {
			w := &wish{open: open(freely, intent)}
			w.decide(actuator.Rejection{Outcome: schemas.Rejected, Reason: schemas.ReasonProtected, Message: words(rules)})
			candidates = append(candidates, w)
		}
	}
	return wanted, candidates, nil
}

func open(a schemas.Intents, intent schemas.Intent) actuator.Intent {
	return actuator.Intent{Profile: a.Profile, Strategy: a.Strategy, Scope: a.Scope, Intent: intent}
}

func words(rules []schemas.Protection) string {
	all := make([]string, len(rules))
	for i, p := range rules {
		all[i] = p.Rule + ": " + p.Detail
	}
	return strings.Join(all, "; ")
}
