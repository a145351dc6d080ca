// Package explain tells what became of a pod, from the events of the bus: chains from the change that began each of them,
// over what strategies wanted and what the actuator said to that, to where the replacement runs.
//
// [Read] asks for the events that it needs, by their subjects where these name the pod or its node, and orders them.
// Scopes are not kept on the bus: that one lies between a change and an answer is known, and what it held is not.
package explain

import (
	"time"

	"github.com/rehome-dev/rehome/schemas"
)

// Life is what happened to one pod. A name can have had several pods, one after the other.
type Life struct {
	Pod schemas.PodRef `json:"pod"`
	// CameFor is the pod whose replacement it is. nil: none that was moved in the time that was read.
	CameFor *schemas.PodRef `json:"cameFor,omitempty"`
	// Chains are in the order in which they began.
	Chains []Chain `json:"chains"`
	// Changes are those of the pod that led to nothing, by kind, in the order of the first of each.
	Changes []Changes `json:"changes,omitempty"`
}

// Changes are deltas of one kind about the pod itself.
type Changes struct {
	Kind  schemas.DeltaKind `json:"kind"`
	Times int               `json:"times"`
	First time.Time         `json:"first"`
	Last  time.Time         `json:"last"`
}

// Chain is what followed from one change. Several that began without any, one after the other, and say the same, are one.
type Chain struct {
	// ID is the correlation ID, of the first if they are several.
	ID    string    `json:"id"`
	Began time.Time `json:"began"`
	// Delta is the change. nil: Without says why there is none.
	Delta   *schemas.Delta `json:"delta,omitempty"`
	Without string         `json:"without,omitempty"`
	Steps   []Step         `json:"steps"`
}

// Step is one wish of a strategy and what came of it. Several that were answered in the same way, one after the other, are
// one.
type Step struct {
	// Time is when the strategy answered; when the verdict was made, if the answer is not known.
	Time     time.Time `json:"time"`
	Profile  string    `json:"profile"`
	Strategy string    `json:"strategy"`
	Scope    string    `json:"scope"` // KIND/KEY
	Node     string    `json:"node"`  // that the pod was to leave
	Why      string    `json:"why"`
	// Outcome is that of the verdict. Empty: there is none yet.
	Outcome schemas.Outcome    `json:"outcome,omitempty"`
	Reason  schemas.ReasonCode `json:"reason,omitempty"`
	Message string             `json:"message,omitempty"`
	// Times is how many wishes in a row got this verdict, Said when the first did, and Last when the last one did. Everything
	// else is of the last one, but Time.
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

// Settled is how a move ended.
type Settled struct {
	Time    time.Time          `json:"time"`
	Reason  schemas.ReasonCode `json:"reason"`
	Message string             `json:"message"`
	schemas.Settlement
}

// Moves says whether the step is a move that began.
func (s Step) Moves() bool { return s.Outcome.Moves() }

// What a chain without a change says about it.
const (
	withoutChange = "no change: everything was evaluated anew, or a time was reached"
	askedFor      = "it was asked for: request "
	notKept       = "the change that began it is not kept any more"
)
