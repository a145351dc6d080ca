// Package explain reconstructs the history of a pod from the events on the bus: the change that began each chain, the intents
// of strategies, the verdicts of the actuator, and the replacement.
//
// [Read] reads only the necessary events, by subject where the subject contains the pod or its node. The bus does not keep
// scopes, so the history has answers but not the scopes that they answered.
package explain

import (
	"time"

	"github.com/rehome-dev/rehome/schemas"
)

// Life is the history of one pod. Several pods can have had the same name, one after the other.
type Life struct {
	Pod schemas.PodRef `json:"pod"`
	// CameFor is the moved pod that this pod replaced. It is nil if no such move was read.
	CameFor *schemas.PodRef `json:"cameFor,omitempty"`
	// Chains are sorted by their first event.
	Chains []Chain `json:"chains"`
	// Changes are the changes of the pod that began no chain, one entry per kind, sorted by the first of each.
	Changes []Changes `json:"changes,omitempty"`
}

// Changes counts deltas of one kind on the pod.
type Changes struct {
	Kind  schemas.DeltaKind `json:"kind"`
	Times int               `json:"times"`
	First time.Time         `json:"first"`
	Last  time.Time         `json:"last"`
}

// Chain is everything that followed from one change. Consecutive chains without a change and with equal steps are merged.
type Chain struct {
	// ID is the correlation ID. A merged chain has the ID of its first one.
	ID    string    `json:"id"`
	Began time.Time `json:"began"`
	// Delta is the change. If it is nil, Without is the reason.
	Delta   *schemas.Delta `json:"delta,omitempty"`
	Without string         `json:"without,omitempty"`
	Steps   []Step         `json:"steps"`
}

// Step is an intent and its verdict. Consecutive steps with equal verdicts are merged.
type Step struct {
	// Time is the time of the answer, or of the verdict if the answer is unknown.
	Time     time.Time `json:"time"`
	Profile  string    `json:"profile"`
	Strategy string    `json:"strategy"`
	Scope    string    `json:"scope"` // KIND/KEY
	Node     string    `json:"node"`  // where the pod ran
	Why      string    `json:"why"`
	// Outcome is the outcome of the verdict. It is empty if there is no verdict yet.
	Outcome schemas.Outcome    `json:"outcome,omitempty"`
	Reason  schemas.ReasonCode `json:"reason,omitempty"`
	Message string             `json:"message,omitempty"`
	// Times is the number of merged steps, Said the time of the first verdict, and Last the time of the last one. All other
	// fields except Time are from the last step.
	Times   int                 `json:"times"`
	Said    time.Time           `json:"said,omitzero"`
	Last    time.Time           `json:"last,omitzero"`
	Again   time.Time           `json:"again,omitzero"` // see [schemas.Verdict]
	Expires time.Time           `json:"expires,omitzero"`
	Method  schemas.Method      `json:"method,omitempty"`
	Instead *schemas.Instead    `json:"instead,omitempty"`
	Blocked []schemas.ObjectRef `json:"blockers,omitempty"`
	DryRun  bool                `json:"dryRun,omitempty"`
	Settled *Settled            `json:"settled,omitempty"`
}

// Settled is the end of a move.
type Settled struct {
	Time    time.Time          `json:"time"`
	Reason  schemas.ReasonCode `json:"reason"`
	Message string             `json:"message"`
	schemas.Settlement
}

// Moves reports whether the verdict began a move.
func (s Step) Moves() bool { return s.Outcome.Moves() }

// Values of Chain.Without.
const (
	withoutChange = "no change: a full evaluation, or a time was reached"
	askedFor      = "requested: "
	notKept       = "the change that started it is no longer stored"
)
