// Package functions holds the strategies: pure functions that answer one scope with the pods that should move.
//
//	bus.Work ──scope──▶ typed.answer ──▶ Args.Decide
//	                         └──intents──▶ Bus.Answer
//
//	functions.go  All: one line for each strategy; Function.Evaluate, for scopes from elsewhere
//	host.go       Host: typed.answer, for scopes from the bus
//	candidate/    what strategies share: Selection, the order of pods, Intents
//	utilization/  LowNodeUtilization and HighNodeUtilization; each other strategy has a folder
//	dispatch/     sends scopes to functions outside of this process
//	httpfunction/ answers scopes over HTTP
//
// # Adding a strategy
//
// CONTRIBUTING.md lists all steps. The code of a strategy is one folder and one line. The folder exports a type for its
// arguments, which may embed candidate.Selection, with two methods:
//
//	Validate() error                          an error for each wrong field, a *policy.FieldError
//	Decide(scope S) []schemas.Intent          the pods that should move; S is the kind of scope it needs
//
// The line in [All] is data about the strategy: its name, the deltas that can change its answer, and its [policy.Traits], such
// as its priority and the facts that its scopes have to hold. Most facts need one more method of Args, such as Due of
// [policy.Timed]. The kind of scope follows from the type of Decide; a type that does not fit does not compile.
//
// # What a strategy may do
//
// Decide is a function of the scope alone: no clock, no client, no randomness, no state, no error. Two calls with the
// same scope give the same intents, so a decision can be replayed from the stream, made in another process, or checked
// against a program in another language. Anything that it needs to know becomes a field of its scope.
//
// # Concurrency
//
// A [Function] is a value without state. All of its methods may be called from many goroutines at once.
package functions

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rehome-dev/rehome/functions/duplicates"
	"github.com/rehome-dev/rehome/functions/failedpods"
	"github.com/rehome-dev/rehome/functions/nodeaffinity"
	"github.com/rehome-dev/rehome/functions/nodetaints"
	"github.com/rehome-dev/rehome/functions/podantiaffinity"
	"github.com/rehome-dev/rehome/functions/podlifetime"
	"github.com/rehome-dev/rehome/functions/request"
	"github.com/rehome-dev/rehome/functions/toomanyrestarts"
	"github.com/rehome-dev/rehome/functions/topologyspread"
	"github.com/rehome-dev/rehome/functions/utilization"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// IntentTTL is how long an intent is valid unless a new answer renews it.
const IntentTTL = 10 * time.Minute

// Hosted returns every function that answers scopes: the strategies and [Request].
func Hosted() []Function { return append(All(), Request()) }

// Names returns the names of the functions.
func Names(all []Function) (names []string) {
	for _, f := range all {
		names = append(names, f.Strategy.Name)
	}
	return names
}

// Request returns the function that answers the scopes of requests. No policy enables it: each sender in the policy
// gets an answer.
func Request() Function {
	return function(request.Args{}, policy.Strategy{
		Name: schemas.RequestStrategy, Point: policy.Deschedule, Traits: policy.RequestTraits(),
		Summary: "Moves pods that a user or another program requested.",
	})
}

// All returns every strategy of this binary.
//
//nolint:funlen // a table
func All() []Function {
	apart := policy.Traits{Priority: policy.PriorityViolation, Facts: []policy.Fact{policy.FactFit}}
	// A pod that fits nowhere else would return or stay Pending, so these strategies move only pods whose replacements
	// fit.
	balance := policy.Traits{Priority: policy.PriorityBalance, Facts: []policy.Fact{policy.FactFit}}
	emptying, spreading := balance, balance
	emptying.EmptiesNodes, spreading.SpreadsReplicas = true, true
	renewal := policy.Traits{Priority: policy.PriorityViolation, RenewsPods: true, Facts: []policy.Fact{policy.FactDue}}
	return []Function{
		function(nodetaints.Args{}, policy.Strategy{
			Name: "RemovePodsViolatingNodeTaints", Point: policy.Deschedule,
			Traits:  policy.Traits{Priority: policy.PriorityNode, Facts: []policy.Fact{policy.FactConcerned}},
			Summary: "Moves pods from a node that has a taint they do not tolerate.",
			Wakes:   onChanges(schemas.NodeTaints, schemas.NodeUnschedulable, schemas.PodScheduled, schemas.PodLabels),
		}),
		function(toomanyrestarts.Args{}, policy.Strategy{
			Name: "RemovePodsHavingTooManyRestarts", Point: policy.Deschedule, Traits: renewal,
			Summary: "Moves pods whose containers were restarted too often.",
			Wakes:   onChanges(schemas.PodScheduled, schemas.PodLabels, schemas.PodRestarted, schemas.PodStatus),
		}),
		function(podlifetime.Args{}, policy.Strategy{
			Name: "PodLifeTime", Point: policy.Deschedule, Traits: renewal,
			Summary: "Moves pods that are too old, or too long in a state or condition.",
			Wakes:   onChanges(schemas.PodScheduled, schemas.PodLabels, schemas.PodStatus),
		}),
		function(failedpods.Default(), policy.Strategy{
			Name: "RemoveFailedPods", Point: policy.Deschedule, Traits: renewal,
			Summary: "Moves pods that have failed, so that their owners replace them.",
			Wakes:   onChanges(schemas.PodScheduled, schemas.PodLabels, schemas.PodFailed, schemas.PodStatus),
		}),
		function(duplicates.Args{}, policy.Strategy{
			Name: "RemoveDuplicates", Point: policy.Balance, Traits: spreading,
			Summary: "Moves replicas of one owner that share a node, if other nodes could run them.",
			Wakes: onChanges(schemas.NodeRemoved, schemas.NodeTaints,
				schemas.PodScheduled, schemas.PodDeleted, schemas.PodLabels),
		}),
		function(podantiaffinity.Args{}, policy.Strategy{
			Name: "RemovePodsViolatingInterPodAntiAffinity", Point: policy.Deschedule, Traits: apart,
			Summary: "Moves pods that violate their required anti-affinity to another pod.",
			Wakes:   onChanges(schemas.NodeRemoved, schemas.PodScheduled, schemas.PodDeleted, schemas.PodLabels),
		}),
		function(nodeaffinity.Args{}, policy.Strategy{
			Name: "RemovePodsViolatingNodeAffinity", Point: policy.Deschedule,
			Traits: policy.Traits{
				Priority: policy.PriorityViolation, Facts: []policy.Fact{policy.FactElsewhere, policy.FactConcerned, policy.FactFit},
			},
			Summary: "Moves pods from a node that their node affinity forbids, or to a node that it prefers.",
			Wakes: onChanges(schemas.NodeTaints, schemas.NodeUnschedulable, schemas.NodeAllocatable,
				schemas.PodScheduled, schemas.PodLabels),
		}),
		function(topologyspread.Args{}, policy.Strategy{
			Name: "RemovePodsViolatingTopologySpreadConstraint", Point: policy.Balance, Traits: balance,
			Summary: "Moves pods that are spread more unevenly than their topology spread constraint allows.",
			Wakes: onChanges(schemas.NodeRemoved, schemas.NodeTaints, schemas.NodeUnschedulable,
				schemas.PodScheduled, schemas.PodDeleted, schemas.PodLabels),
		}),
		// Of the changes of the status of a pod, only its end changes a scope of usage.
		function(utilization.LowArgs{}, policy.Strategy{
			Name: "LowNodeUtilization", Point: policy.Balance, Traits: balance,
			Summary: "Moves pods from over-used nodes while other nodes are under-used.",
			Wakes: onChanges(schemas.NodeRemoved, schemas.NodeTaints, schemas.NodeUnschedulable, schemas.NodeAllocatable,
				schemas.NodeLoad, schemas.PodScheduled, schemas.PodDeleted, schemas.PodStatus),
		}),
		function(utilization.HighArgs{}, policy.Strategy{
			Name: "HighNodeUtilization", Point: policy.Balance, Traits: emptying,
			Summary: "Moves pods from under-used nodes, so that the nodes can be removed.",
			Wakes: onChanges(schemas.NodeRemoved, schemas.NodeTaints, schemas.NodeUnschedulable, schemas.NodeAllocatable,
				schemas.PodScheduled, schemas.PodDeleted, schemas.PodStatus),
		}),
	}
}

// onChanges returns the deltas and the three that can change the answer of every strategy because they add a node to
// the policy.
func onChanges(wakes ...schemas.DeltaKind) []schemas.DeltaKind {
	return append([]schemas.DeltaKind{schemas.NodeAdded, schemas.NodeReady, schemas.NodeLabels}, wakes...)
}

// Function is one strategy, ready to be hosted.
type Function struct {
	// Strategy describes the function to the policy.
	Strategy policy.Strategy
	decider
}

// decider is the untyped interface of a strategy. typed implements it for each strategy.
type decider interface {
	// evaluate answers the scope in e, or p if e has no data.
	evaluate(e schemas.Event, p schemas.Payload) (schemas.Intents, error)
	// answer answers the scope in e, and stores the answer on the bus of the host.
	answer(ctx context.Context, h Host, e schemas.Event) error
}

// scope is any kind of scope.
type scope interface {
	schemas.Payload
	Head() schemas.ScopeHead
}

// arguments is the type that the folder of a strategy exports.
type arguments[S scope] interface {
	policy.Args
	Decide(S) []schemas.Intent
}

// function returns a strategy. S, the kind of scope, follows from the type of defaults. Arguments in the policy are
// decoded over defaults.
func function[A arguments[S], S scope](defaults A, strategy policy.Strategy) Function {
	var s S
	strategy.Scope = kindOf(s)
	strategy.NewArgs = func() policy.Args {
		a := defaults
		return any(&a).(policy.Args) // *A has the methods of A, which the compiler cannot infer for a type parameter
	}
	return Function{strategy, typed[A, S]{strategy.Name, strategy.Scope, defaults}}
}

// typed is a strategy with the types of its arguments and of its scopes.
type typed[A arguments[S], S scope] struct {
	name     string
	kind     schemas.ScopeKind
	defaults A
}

// read returns the scope in e, or p if there is one, and the arguments in it.
func (t typed[A, S]) read(e schemas.Event, p schemas.Payload) (s S, args A, err error) {
	args = t.defaults
	if p == nil {
		s, err = schemas.Decode[S](e)
	} else if of, ok := p.(S); ok {
		s = of
	} else {
		err = fmt.Errorf("scope %s: %T is not the kind of scope that %s decides on: %w", e.ID, p, t.name, schemas.ErrInvalid)
	}
	if err != nil {
		return s, args, err
	}
	head := s.Head()
	if head.Strategy != t.name {
		return s, args, fmt.Errorf("scope %s is for %q, not for %q: %w", e.ID, head.Strategy, t.name, schemas.ErrInvalid)
	}
	if head.Kind != t.kind {
		return s, args, fmt.Errorf("scope %s is of the kind %q, and %s decides on the kind %q: %w",
			e.ID, head.Kind, t.name, t.kind, schemas.ErrInvalid)
	}
	if len(head.Args) > 0 {
		d := json.NewDecoder(bytes.NewReader(head.Args))
		d.DisallowUnknownFields()
		err = d.Decode(&args)
	}
	if err == nil {
		err = args.Validate()
	}
	if err != nil {
		err = fmt.Errorf("scope %s: arguments of %s: %w: %w", e.ID, t.name, schemas.ErrInvalid, err)
	}
	return s, args, err
}

func (t typed[A, S]) evaluate(e schemas.Event, p schemas.Payload) (schemas.Intents, error) {
	s, args, err := t.read(e, p)
	if err != nil {
		return schemas.Intents{}, err
	}
	return Complete(s.Head(), args.Decide(s), e.ID, e.Sequence), nil
}

// kindOf returns the kind of scope for the type of s.
func kindOf(s scope) schemas.ScopeKind {
	switch s.(type) {
	case schemas.NodeScope:
		return schemas.NodeKind
	case schemas.PodScope:
		return schemas.PodKind
	case schemas.WorkloadScope:
		return schemas.WorkloadKind
	case schemas.SpreadScope:
		return schemas.SpreadKind
	case schemas.DomainScope:
		return schemas.DomainKind
	case schemas.UsageScope:
		return schemas.UsageKind
	case schemas.RequestScope:
		return schemas.RequestKind
	}
	panic(fmt.Sprintf("functions: %T is not a kind of scope", s))
}

// Evaluate answers one scope. The answer names the event of the scope, so evaluating the same event again gives the
// same intents and IDs. It fails only with an error that wraps [schemas.ErrInvalid]: the event is not a scope of this
// strategy, or the strategy panicked.
func (f Function) Evaluate(e schemas.Event) (answer schemas.Intents, err error) {
	defer recovered(f.Strategy.Name, e.ID, &err)
	return f.evaluate(e, nil)
}

// EvaluateInPlace is [Function.Evaluate] for a scope without an event: id stands for the ID of the event, and the
// sequence is 0. It does not change the scope, and does not recover a panic of the strategy.
func (f Function) EvaluateInPlace(p schemas.Payload, id string) (schemas.Intents, error) {
	return f.evaluate(schemas.Event{ID: id}, p)
}

// ErrPanicked is wrapped by the error for a strategy that panicked.
var ErrPanicked = errors.New("panicked")

// recovered converts a panic to an error. It wraps [ErrPanicked] and [schemas.ErrInvalid], because the same scope would
// panic again.
func recovered(strategy, scope string, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("strategy %s %w at scope %s: %w: %v", strategy, ErrPanicked, scope, schemas.ErrInvalid, p)
	}
}

// Complete returns the answer to a scope: it sets the IDs and the expiry of the intents.
func Complete(head schemas.ScopeHead, intents []schemas.Intent, event string, sequence uint64) schemas.Intents {
	if intents == nil {
		intents = []schemas.Intent{} // an empty list in JSON, which withdraws all earlier intents
	}
	for i := range intents {
		intents[i].ID = event + "." + string(intents[i].Pod.UID)
		intents[i].Expires = head.Now.Add(IntentTTL)
	}
	return schemas.Intents{
		Profile: head.Profile, Strategy: head.Strategy,
		Scope:   schemas.ScopeRef{Kind: head.Kind, Key: head.Key, Event: event, Sequence: sequence, Since: head.Since, Now: head.Now},
		Intents: intents,
	}
}
