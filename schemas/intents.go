package schemas

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// IntentsType is the CloudEvents type of [Intents].
const IntentsType = "dev.rehome.intents.v1"

var _ = define[Intents]("functions, dispatcher, maintenance, operator", nil, Prefix+".intents.STRATEGY.PROFILE.KIND.KEY")

// MostIntents is the largest number of intents in a message. A message with more cannot be decoded.
const MostIntents = 5000

// Intents is the answer of a function to a scope: every pod of the scope that should move. It replaces the previous answer for
// the same profile, strategy, kind, and key, so pods that are no longer listed are withdrawn. An empty list withdraws all.
type Intents struct {
	// Profile and Strategy are copied from the scope.
	Profile  string   `json:"profile"`
	Strategy string   `json:"strategy"`
	Scope    ScopeRef `json:"scope"`
	// Intents are in the order of the moves. The list is never null.
	Intents []Intent `json:"intents"`
}

// ScopeRef identifies the scope of an answer.
type ScopeRef struct {
	Kind ScopeKind `json:"kind"`
	Key  string    `json:"key"`
	// Event is the ID of the event of the scope.
	Event string `json:"event"`
	// Sequence orders the evaluations of a scope: an answer never replaces one with a higher sequence.
	Sequence uint64 `json:"sequence"`
	// Since is when the oldest cause of the evaluation was observed.
	Since time.Time `json:"since"`
	// Now is the time of the scope. The decision ignores later changes. Zero means unknown.
	Now time.Time `json:"now,omitzero"`
}

// Intent is the decision that a pod should leave its node.
type Intent struct {
	// ID is the ID of the scope's event and the UID of the pod. Strategies leave it empty; the host of the strategy sets it.
	ID  string `json:"id"`
	Pod PodRef `json:"pod"`
	// Node is where the pod ran at the time of the decision. A pod that runs elsewhere by now is not moved.
	Node string `json:"node"`
	// Ended reports that the pod had ended at the time of the decision, and has to be removed. A pod that ends later needs no
	// move.
	Ended bool `json:"ended,omitempty"`
	// Reason is a text such as "does not tolerate dedicated=gpu:NoSchedule".
	Reason string `json:"reason"`
	// Weight says how urgently the pod should move, such as the number of its restarts. Among pods of one strategy whose moves
	// cost equally little, pods with the highest weight move first. Zero means unknown.
	Weight int64 `json:"weight,omitempty"`
	// Expires is when the intent becomes invalid. Strategies leave it zero; the host sets it.
	Expires time.Time `json:"expires"`
	// Asked has the options of a request. Only the strategy [RequestStrategy] uses it. nil means the defaults.
	Asked *Asked `json:"asked,omitempty"`
}

// Asked has the options of a request for the moves of its pods.
type Asked struct {
	// Method is the requested method. Empty means the method of the policy.
	Method RequestMethod `json:"method,omitempty"`
	// DryRun changes nothing. The verdict reports the expected result.
	DryRun bool `json:"dryRun,omitempty"`
	// Override lists protection rules to ignore, by their name in [Protection].
	Override []string `json:"override,omitempty"`
}

// EventType returns [IntentsType].
func (Intents) EventType() string { return IntentsType }

// UnmarshalJSON returns an error at the first intent after [MostIntents]: a small compressed message can list millions of empty
// intents, which would fill the memory.
func (a *Intents) UnmarshalJSON(data []byte) error {
	type plain Intents
	type Intents struct { // errors contain this name
		*plain
		Intents *intentList `json:"intents"`
	}
	return json.Unmarshal(data, &Intents{(*plain)(a), (*intentList)(&a.Intents)})
}

// intentList is a list of at most [MostIntents] intents.
type intentList []Intent

func (l *intentList) UnmarshalJSON(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	if start, err := d.Token(); err != nil || start != json.Delim('[') {
		return json.Unmarshal(data, (*[]Intent)(l)) // the error for a value that is no list
	}
	*l = intentList{}
	for d.More() {
		if len(*l) == MostIntents {
			return fmt.Errorf("it has more than %d intents", MostIntents)
		}
		var one Intent
		if err := d.Decode(&one); err != nil {
			return err
		}
		*l = append(*l, one)
	}
	return nil
}

// About returns KIND/KEY of the scope.
func (a Intents) About() string { return string(a.Scope.Kind) + "/" + a.Scope.Key }

// Channel returns rehome.intents.STRATEGY.PROFILE.KIND.KEY.
func (a Intents) Channel() string {
	return channel("intents", a.Strategy, a.Profile, string(a.Scope.Kind), a.Scope.Key)
}

// Describe returns KIND/KEY of the scope, and the first pods that should move.
func (a Intents) Describe() (about, text string) {
	if len(a.Intents) == 0 {
		return a.About(), a.Strategy + ": nothing should move any more"
	}
	var names []string
	for _, i := range a.Intents {
		names = append(names, i.Pod.String())
	}
	const shown = 3
	more := ""
	if len(names) > shown {
		more = fmt.Sprintf(" and %d more", len(names)-shown)
		names = names[:shown]
	}
	return a.About(), fmt.Sprintf("%s: move %d: %s%s", a.Strategy, len(a.Intents), strings.Join(names, ", "), more)
}
