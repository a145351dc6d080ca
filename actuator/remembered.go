package actuator

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator/limit"
	"github.com/rehome-dev/rehome/schemas"
)

// Remembered is what a [Ledger] has, for people to look at. It changes while it is read: each part is true by itself.
type Remembered struct {
	// Moves are those in flight and those that are settled and still matter to a limit or a pause, by when they were begun.
	Moves []Move
	// Loops are the loop breakers that hold or have held a short time ago, by workload, strategy and node.
	Loops []LoopBreaker
	// Storm are the conditions of the storm brake that hold. None: it is closed, or nobody leads.
	Storm []StormCondition
}

// Move is a move that was begun.
type Move struct {
	Pod      schemas.PodRef     `json:"pod"`
	Node     string             `json:"node"` // that it leaves
	Workload *schemas.ObjectRef `json:"workload,omitempty"`
	Profile  string             `json:"profile"`
	Strategy string             `json:"strategy"`
	Intent   string             `json:"intent"` // its ID
	Method   schemas.Method     `json:"method"`
	Begun    time.Time          `json:"begun"`
	// Moved is when it was accepted, from which on it counts against the limits of a window. Zero: it is not, yet.
	Moved time.Time `json:"moved,omitzero"`
	// WaitsFor is what has to happen next, in words. Empty: the move is settled.
	WaitsFor string `json:"waitsFor,omitempty"`
}

// InFlight says whether the move is not settled.
func (m Move) InFlight() bool { return m.WaitsFor != "" }

// LoopBreaker keeps the pods of a workload on a node from a strategy.
type LoopBreaker struct {
	limit.BreakerEntry
	// Name is the workload of the UID. nil: it is not known.
	Name *schemas.ObjectRef `json:"name,omitempty"`
}

// StormCondition is why nothing is moved.
type StormCondition struct {
	Reason  schemas.ReasonCode `json:"reason"`
	Message string             `json:"message"`
	Since   time.Time          `json:"since"`
}

// ReadLedger reads what [Ledger.Entries] returned. What cannot be read is left out, and named in the errors.
func ReadLedger(entries map[string][]byte) (Remembered, []error) {
	moves, loops, storm, bad := readLedger(entries)
	out := Remembered{Storm: storm.Conditions}
	for _, r := range moves {
		out.Moves = append(out.Moves, r.move())
	}
	slices.SortFunc(out.Moves, func(a, b Move) int {
		return cmp.Or(a.Begun.Compare(b.Begun), cmp.Compare(a.Intent, b.Intent))
	})
	for _, l := range loops {
		if l.Returns > 0 { // else pods were moved off the node, and none came back
			out.Loops = append(out.Loops, LoopBreaker(l))
		}
	}
	slices.SortFunc(out.Loops, func(a, b LoopBreaker) int {
		return cmp.Or(cmp.Compare(a.Workload, b.Workload), cmp.Compare(a.Strategy, b.Strategy), cmp.Compare(a.Node, b.Node))
	})
	slices.SortFunc(bad, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return out, bad
}

// move is the record as people see it.
func (r record) move() Move {
	m := Move{
		Pod: r.Open.Intent.Pod, Node: r.Open.Intent.Node, Workload: r.Workload, Profile: r.Open.Profile, Strategy: r.Open.Strategy,
		Intent: r.Open.Intent.ID, Method: r.Method, Begun: r.Begun, Moved: r.Moved,
	}
	if !r.Settled {
		m.WaitsFor = r.waitsFor()
	}
	return m
}

func (r record) waitsFor() string {
	switch {
	case r.State != nil && (r.Method == schemas.MethodRestart || r.Method == schemas.MethodSurge):
		return "the replacement that comes first"
	case r.State != nil && r.Method == schemas.MethodBackground:
		return "the webhook that took over the eviction"
	case r.State != nil:
		return "an answer to the EvictionRequest"
	case r.Moved.IsZero():
		return "the API server"
	case r.Workload == nil:
		return "the pod to be gone"
	}
	return "a replacement that is ready"
}

// ClearKey is the key of a [Ledger] under which anything is put to have the loop breakers of a workload cleared, or all of
// them for the empty UID. The actuator that leads deletes the key when it has cleared them.
func ClearKey(workload types.UID) string {
	if workload == "" {
		workload = everyWorkload
	}
	return keyClear + string(workload)
}
