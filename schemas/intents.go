package schemas

import "time"

// IntentsType is the CloudEvents type of [Intents].
const IntentsType = "dev.rehome.intents.v1"

// Intents is what a function answers to one scope: every pod of the scope that should move. It replaces the answer to
// any earlier scope of the same profile, strategy, kind and key: a pod that is no longer listed is withdrawn, and an
// empty list withdraws all.
type Intents struct {
	Profile  string   `json:"profile"`
	Strategy string   `json:"strategy"`
	Scope    ScopeRef `json:"scope"`
	// Intents is in the order in which the pods should move.
	Intents []Intent `json:"intents"`
}

// ScopeRef names the scope that an answer comes from.
type ScopeRef struct {
	Kind ScopeKind `json:"kind"`
	Key  string    `json:"key"`
	// Event is the ID of the scope's event.
	Event string `json:"event"`
	// Sequence orders the evaluations of one scope: an answer never replaces one with a higher sequence.
	Sequence uint64 `json:"sequence"`
	// Since is when the oldest cause of the evaluation was observed.
	Since time.Time `json:"since"`
	// Now is the time of the scope: what happened later was not known when the answer was decided. Zero: not told, and
	// nothing is concluded from it.
	Now time.Time `json:"now,omitzero"`
}

// Intent says that one pod should leave its node.
type Intent struct {
	// ID is unique: the scope's event and the pod's UID. A strategy leaves it empty; the host of the strategy sets it.
	ID  string `json:"id"`
	Pod PodRef `json:"pod"`
	// Node is where the pod ran when the strategy decided. A pod that runs elsewhere by now is not moved.
	Node string `json:"node"`
	// Ended: the pod had ended when the strategy decided, and is to be removed. A pod that ends later by itself needs no
	// move.
	Ended bool `json:"ended,omitempty"`
	// Reason says in words why, for people: "does not tolerate dedicated=gpu:NoSchedule".
	Reason string `json:"reason"`
	// Expires is when the intent stops being true without anybody saying so. A strategy leaves it zero; the host sets it.
	Expires time.Time `json:"expires"`
	// Asked is what was asked for about the move. It counts for the strategy [RequestStrategy] alone. nil: nothing but the move.
	Asked *Asked `json:"asked,omitempty"`
}

// Asked is what a request says about how its pods are to be moved.
type Asked struct {
	// Method is how. Empty: as the policy says.
	Method RequestMethod `json:"method,omitempty"`
	// DryRun: nothing is to be changed; the verdict says what would have happened.
	DryRun bool `json:"dryRun,omitempty"`
	// Override lists the rules of protection that do not hold, as [Protection] names them.
	Override []string `json:"override,omitempty"`
}

// EventType returns [IntentsType].
func (Intents) EventType() string { return IntentsType }

// About is KIND/KEY of the scope.
func (a Intents) About() string { return string(a.Scope.Kind) + "/" + a.Scope.Key }

// Channel is rehome.intents.STRATEGY.PROFILE.KIND.KEY.
func (a Intents) Channel() string {
	return channel("intents", a.Strategy, a.Profile, string(a.Scope.Kind), a.Scope.Key)
}
