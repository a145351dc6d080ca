// Package move is what the ways of moving a pod that take longer than one call have in common. Each is a [Method]: it plans
// a move, and then takes it on step by step, by what it was told to remember and by the cluster as it is. It remembers
// nothing itself, so a move outlives the process that began it.
package move

import (
	"context"
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/schemas"
)

// Method moves pods. Its methods may be called from several goroutines at once, though not for the same pod.
type Method interface {
	// Plan says how the pod, as it is now, would be moved, and changes nothing. What it returns is remembered before the
	// first step. A pod that cannot be moved this way gets a refusal. An error means that the cluster could not be asked.
	Plan(ctx context.Context, pod *corev1.Pod, now time.Time) (State, *Refusal, error)
	// Step takes the move on from where it is, which is found out from the cluster: a step that is repeated, because the
	// process was killed before its outcome was remembered, changes nothing twice. The first one begins the move. An error
	// means that the cluster could not be asked; the step is then tried again.
	Step(ctx context.Context, state State, now time.Time) (Progress, error)
}

// State is what a method is to be told again at the next step, as JSON.
type State = json.RawMessage

// Refusal says why a pod cannot be moved in one way. Outcome is what becomes of the intent when there is no other.
type Refusal struct {
	Outcome schemas.Outcome // deferred, rejected or failed
	Reason  schemas.ReasonCode
	Message string
	// Wait: the pod is on its way by what goes on already, and is not to be moved in any other way meanwhile.
	Wait bool
}

// Stage is where a move is.
type Stage int

// The stages.
const (
	Working   Stage = iota // it goes on
	Done                   // the pod is gone or going, and its workload is as it was
	Undone                 // it was given up, and everything is as it was before; the pod still runs
	Released               // it was given up, nothing was changed, and the pod may be moved in another way
	Replanned              // nothing was changed yet: State is a new plan, to be remembered before the next step
)

// Progress is where a move is after a step.
type Progress struct {
	Stage Stage
	// State replaces what was remembered. nil: that stays.
	State State
	// Refusal is why, for Undone and Released, and for Done when the pod went by itself, before anything was changed.
	Refusal *Refusal
	// Message says in words where the move is.
	Message string
	// Look is after what time the next step comes at the latest; it comes earlier when a pod of the workload changes. 0: 10
	// seconds.
	Look time.Duration
}
