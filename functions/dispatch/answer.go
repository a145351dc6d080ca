package dispatch

import (
	"fmt"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
)

// mostReason is the longest reason in bytes. Verdicts and Kubernetes Events contain it, and the note of a Kubernetes Event is
// limited to 1 kB.
const mostReason = 500

// check returns the intents of a reply to the scope. It takes only the pod and the reason of each intent. Its error wraps
// [schemas.ErrInvalid].
func check(scope schemas.Event, head schemas.ScopeHead, reply schemas.Event) ([]schemas.Intent, error) {
	answer, err := schemas.Decode[schemas.Intents](reply)
	if err != nil {
		return nil, err
	}
	for _, c := range []struct{ field, got, want string }{
		{"strategy", answer.Strategy, head.Strategy},
		{"profile", answer.Profile, head.Profile},
		{"scope.kind", string(answer.Scope.Kind), string(head.Kind)},
		{"scope.key", answer.Scope.Key, head.Key},
		{"scope.event", answer.Scope.Event, scope.ID},
	} {
		if c.got != c.want {
			return nil, fmt.Errorf("%w: %s: want %q, got %.200q", schemas.ErrInvalid, c.field, c.want, c.got)
		}
	}
	switch {
	case answer.Intents == nil:
		return nil, fmt.Errorf("%w: intents: want a list, empty if no pod should move, got none", schemas.ErrInvalid)
	case len(answer.Intents) == 0:
		return nil, nil
	}
	asked, err := schemas.DecodeScope(scope, head.Kind)
	if err != nil {
		return nil, err
	}
	return pick(asked.ScopedPods(), answer)
}

// pick returns the intents for the listed pods.
func pick(pods []schemas.ScopedPod, answer schemas.Intents) ([]schemas.Intent, error) {
	if len(answer.Intents) > len(pods) {
		return nil, fmt.Errorf("%w: intents: want at most the %d pods of the scope, got %d", schemas.ErrInvalid, len(pods),
			len(answer.Intents))
	}
	byUID := make(map[types.UID]schemas.ScopedPod, len(pods))
	for _, p := range pods {
		byUID[p.Pod.UID] = p
	}
	moves := make([]schemas.Intent, 0, len(answer.Intents))
	for i, intent := range answer.Intents {
		pod, listed := byUID[intent.Pod.UID]
		delete(byUID, intent.Pod.UID) // a pod may be listed once
		if err := allowed(pod, listed, intent); err != nil {
			return nil, fmt.Errorf("%w: intents[%d]: %w", schemas.ErrInvalid, i, err)
		}
		moves = append(moves, pod.Move(reasonOf(intent.Reason, answer.Strategy)))
	}
	return moves, nil
}

// allowed returns an error if the intent does not match the pod with its UID. listed reports whether the scope has such a pod.
func allowed(pod schemas.ScopedPod, listed bool, intent schemas.Intent) error {
	meta := pod.Pod.ObjectMeta
	switch {
	case !listed:
		return fmt.Errorf("the pod %.100q/%.300q with the UID %.100q is not in the scope, or is listed twice",
			intent.Pod.Namespace, intent.Pod.Name, intent.Pod.UID)
	case intent.Pod.Namespace != meta.Namespace || intent.Pod.Name != meta.Name:
		return fmt.Errorf("the pod with the UID %s is %s/%s, not %.100q/%.300q", meta.UID, meta.Namespace, meta.Name,
			intent.Pod.Namespace, intent.Pod.Name)
	case intent.Node != pod.Pod.Spec.NodeName:
		return fmt.Errorf("the pod %s/%s is on %s, not on %.300q", meta.Namespace, meta.Name, pod.Pod.Spec.NodeName, intent.Node)
	case len(pod.Protected) > 0:
		return fmt.Errorf("the pod %s/%s is protected: %s: %s", meta.Namespace, meta.Name, pod.Protected[0].Rule,
			pod.Protected[0].Detail)
	}
	return nil
}

// reasonOf returns the reason on one line of limited length.
func reasonOf(text, strategy string) string {
	text = strings.ToValidUTF8(text[:min(len(text), 4*mostReason)], "")
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	switch {
	case text == "":
		return strategy + " gave no reason"
	case len(text) > mostReason:
		return strings.ToValidUTF8(text[:mostReason], "") + "…"
	}
	return text
}
