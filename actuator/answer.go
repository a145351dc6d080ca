package actuator

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rehome-dev/rehome/schemas"
)

// readAnswer reads the answer that e carries. It fails with an error that wraps [schemas.ErrInvalid] when e is not an
// answer that can be worked on; one wrong intent spoils the whole answer, since a strategy that writes one is broken.
func readAnswer(e schemas.Event) (schemas.Intents, error) {
	a, err := schemas.Decode[schemas.Intents](e)
	if err != nil {
		return a, err
	}
	if err := checkAnswer(a); err != nil {
		return a, fmt.Errorf("event %s: %w: %w", e.ID, schemas.ErrInvalid, err)
	}
	return a, nil
}

func checkAnswer(a schemas.Intents) error {
	if a.Profile == "" || a.Strategy == "" || a.Scope.Kind == "" || a.Scope.Key == "" {
		return errors.New("an answer needs profile, strategy, scope.kind and scope.key")
	}
	ids := make(map[string]bool, len(a.Intents))
	uids := make(map[types.UID]bool, len(a.Intents))
	for i, intent := range a.Intents {
		switch {
		case intent.ID == "":
			return fmt.Errorf("intents[%d] has no id", i)
		case ids[intent.ID]:
			return fmt.Errorf("intents[%d] has the id of another one, %s", i, intent.ID)
		case len(validation.IsDNS1123Label(intent.Pod.Namespace)) > 0,
			len(validation.IsDNS1123Subdomain(intent.Pod.Name)) > 0:
			return fmt.Errorf("intents[%d].pod is named %q, which no pod can be", i, intent.Pod)
		case intent.Pod.UID == "":
			return fmt.Errorf("intents[%d].pod has no uid", i)
		case uids[intent.Pod.UID]:
			return fmt.Errorf("intents[%d] lists pod %s again", i, intent.Pod)
		case intent.Node == "":
			return fmt.Errorf("intents[%d] has no node", i)
		case intent.Expires.IsZero():
			return fmt.Errorf("intents[%d] never expires", i)
		}
		ids[intent.ID], uids[intent.Pod.UID] = true, true
	}
	return nil
}
