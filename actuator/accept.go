package actuator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rehome-dev/rehome/schemas"
)

// longestIntent limits the time until an intent expires. A resync evaluates everything twice an hour.
const longestIntent = time.Hour

// Accept turns the intents of a message into entries and enqueues their pods.
func (s *session) Accept(_ context.Context, e schemas.Event) error {
	now := s.cfg.Now()
	a, err := readMessage(e, now)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancelUnlisted(a)
	s.entries.accept(a, e, now)
	return nil
}

// readMessage reads the message in e. The error wraps [schemas.ErrInvalid]; one invalid intent makes the whole message
// invalid. The data must match the subject, because NATS permissions restrict only subjects, and the pods must match
// the scope.
func readMessage(e schemas.Event, now time.Time) (schemas.Intents, error) {
	a, err := schemas.Decode[schemas.Intents](e)
	if err != nil {
		return a, err
	}
	if err := checkMessage(a, e, now); err != nil {
		return a, fmt.Errorf("event %s: %w: %w", e.ID, schemas.ErrInvalid, err)
	}
	return a, nil
}

func checkMessage(a schemas.Intents, e schemas.Event, now time.Time) error {
	switch {
	case a.Profile == "" || a.Strategy == "" || a.Scope.Kind == "" || a.Scope.Key == "":
		return errors.New("an intents message needs profile, strategy, scope.kind and scope.key")
	case e.Channel != a.Channel():
		return fmt.Errorf("the subject is %s, want %s for its profile, strategy, scope.kind and scope.key", e.Channel, a.Channel())
	case len(a.Intents) > schemas.MostIntents:
		return fmt.Errorf("it has %d intents, want at most %d", len(a.Intents), schemas.MostIntents)
	}
	if (a.Strategy == schemas.MaintenanceStrategy) != (a.Scope.Kind == schemas.MaintenanceKind) {
		return fmt.Errorf("strategy %s does not use scopes of kind %s", a.Strategy, a.Scope.Kind)
	}
	ids, uids := make(map[string]bool, len(a.Intents)), make(map[types.UID]bool, len(a.Intents))
	for i, intent := range a.Intents {
		switch {
		case intent.ID == "":
			return fmt.Errorf("intents[%d] has no id", i)
		case ids[intent.ID]:
			return fmt.Errorf("intents[%d] has a duplicate id, %s", i, intent.ID)
		case len(validation.IsDNS1123Label(intent.Pod.Namespace)) > 0,
			len(validation.IsDNS1123Subdomain(intent.Pod.Name)) > 0:
			return fmt.Errorf("intents[%d].pod has the invalid name %q", i, intent.Pod)
		case intent.Pod.UID == "":
			return fmt.Errorf("intents[%d].pod has no uid", i)
		case uids[intent.Pod.UID]:
			return fmt.Errorf("intents[%d] lists pod %s again", i, intent.Pod)
		case intent.Node == "":
			return fmt.Errorf("intents[%d] has no node", i)
		case intent.Expires.IsZero():
			return fmt.Errorf("intents[%d] never expires", i)
		case intent.Expires.After(now.Add(longestIntent)): // not after e.Time, which is by the clock of a host
			return fmt.Errorf("intents[%d].expires is %s, want at most %v after %s", i, clock(intent.Expires), longestIntent, clock(now))
		}
		if err := belongs(intent, a.Scope); err != nil {
			return fmt.Errorf("intents[%d]%w", i, err)
		}
		ids[intent.ID], uids[intent.Pod.UID] = true, true
	}
	return nil
}

// belongs returns an error if the pod of an intent cannot be in the scope, judging by the key of the scope.
func belongs(intent schemas.Intent, scope schemas.ScopeRef) error {
	namespace, _, _ := strings.Cut(scope.Key, "/")
	switch scope.Kind {
	case schemas.NodeKind:
		if intent.Node != scope.Key {
			return fmt.Errorf(".node is %s, but the scope is node %s", intent.Node, scope.Key)
		}
	case schemas.PodKind:
		if intent.Pod.String() != scope.Key {
			return fmt.Errorf(".pod is %s, but the scope is pod %s", intent.Pod, scope.Key)
		}
	case schemas.WorkloadKind, schemas.SpreadKind:
		if intent.Pod.Namespace != namespace {
			return fmt.Errorf(".pod is %s, but the scope is in namespace %s", intent.Pod, namespace)
		}
	case schemas.DomainKind, schemas.UsageKind, schemas.RequestKind, schemas.MaintenanceKind: // pods of any node and namespace
	}
	return nil
}
