// Package functions holds the strategies: pure functions that answer one scope with the pods that should move.
//
// # Adding a strategy
//
// A strategy is one folder and one line. The folder exports a type Args with two methods:
//
//	Validate() error                          what is wrong with the arguments, each error a *policy.FieldError
//	Decide(scope S) []schemas.Intent          the pods that should move; S is the kind of scope it needs
//
// The line in [All] is data about the strategy: its name, the deltas that can change its answer, and its [policy.Traits], such
// as its priority and the facts that its scopes have to hold. A fact needs one more method of Args, such as Due of
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
	"encoding/json"
	"fmt"
	"time"

	"github.com/rehome-dev/rehome/functions/duplicates"
	"github.com/rehome-dev/rehome/functions/failedpods"
	"github.com/rehome-dev/rehome/functions/highnodeutilization"
	"github.com/rehome-dev/rehome/functions/lownodeutilization"
	"github.com/rehome-dev/rehome/functions/nodeaffinity"
	"github.com/rehome-dev/rehome/functions/nodetaints"
	"github.com/rehome-dev/rehome/functions/podantiaffinity"
	"github.com/rehome-dev/rehome/functions/podlifetime"
	"github.com/rehome-dev/rehome/functions/request"
	"github.com/rehome-dev/rehome/functions/toomanyrestarts"
	"github.com/rehome-dev/rehome/functions/topologyspread"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// IntentTTL is how long an intent stays true without being renewed: the time after which a decision about a cluster
// that has moved on is worth less than a new one.
const IntentTTL = 10 * time.Minute

// Hosted lists every function that answers scopes: the strategies and [Request].
func Hosted() []Function { return append(All(), Request()) }

// Request is the function that answers the scopes of requests. No policy enables it: everybody whom the policy lets ask gets
// an answer.
func Request() Function {
	return function(request.Args{}, policy.Strategy{
		Name: schemas.RequestStrategy, Point: policy.Deschedule, Traits: policy.RequestTraits(),
		Summary: "Moves pods that a person or another program asked for.",
	})
}

// All lists every strategy of this binary.
func All() []Function {
	violation := policy.Traits{Priority: policy.PriorityViolation}
	balance := policy.Traits{Priority: policy.PriorityBalance}
	renewal := policy.Traits{Priority: policy.PriorityViolation, RenewsPods: true, Facts: []policy.Fact{policy.FactDue}}
	return []Function{
		function(nodetaints.Args{}, policy.Strategy{
			Name: "RemovePodsViolatingNodeTaints", Point: policy.Deschedule,
			Traits:  policy.Traits{Priority: policy.PriorityNode, Facts: []policy.Fact{policy.FactConcerned}},
			Summary: "Moves pods from a node that has a taint they do not tolerate.",
			Wakes:   onChanges(schemas.NodeTaints, schemas.PodScheduled, schemas.PodLabels),
		}),
		function(toomanyrestarts.Args{}, policy.Strategy{
			Name: "RemovePodsHavingTooManyRestarts", Point: policy.Deschedule, Traits: renewal,
			Summary: "Moves pods whose containers were restarted too often.",
			Wakes:   onChanges(schemas.PodScheduled, schemas.PodLabels, schemas.PodRestarted, schemas.PodStatus),
		}),
		function(podlifetime.Args{}, policy.Strategy{
			Name: "PodLifeTime", Point: policy.Deschedule, Traits: renewal,
			Summary: "Moves pods that have lived too long, or too long as they are.",
			Wakes:   onChanges(schemas.PodScheduled, schemas.PodLabels, schemas.PodStatus),
		}),
		function(failedpods.Default(), policy.Strategy{
			Name: "RemoveFailedPods", Point: policy.Deschedule, Traits: renewal,
			Summary: "Moves pods that have failed, so that what owns them replaces them.",
			Wakes:   onChanges(schemas.PodScheduled, schemas.PodLabels, schemas.PodFailed, schemas.PodStatus),
		}),
		function(duplicates.Args{}, policy.Strategy{
			Name: "RemoveDuplicates", Point: policy.Balance, Traits: balance,
			Summary: "Moves replicas of one owner that crowd on a node to others that could run them.",
			Wakes: onChanges(schemas.NodeRemoved, schemas.NodeTaints,
				schemas.PodScheduled, schemas.PodDeleted, schemas.PodLabels),
		}),
		function(podantiaffinity.Args{}, policy.Strategy{
			Name: "RemovePodsViolatingInterPodAntiAffinity", Point: policy.Deschedule, Traits: violation,
			Summary: "Moves pods that are beside a pod which their required anti-affinity forbids.",
			Wakes:   onChanges(schemas.NodeRemoved, schemas.PodScheduled, schemas.PodDeleted, schemas.PodLabels),
		}),
		function(nodeaffinity.Args{}, policy.Strategy{
			Name: "RemovePodsViolatingNodeAffinity", Point: policy.Deschedule,
			Traits:  policy.Traits{Priority: policy.PriorityViolation, Facts: []policy.Fact{policy.FactElsewhere, policy.FactConcerned}},
			Summary: "Moves pods from a node that their node affinity forbids, or likes less than another that takes them.",
			Wakes: onChanges(schemas.NodeTaints, schemas.NodeUnschedulable, schemas.NodeAllocatable,
				schemas.PodScheduled, schemas.PodLabels),
		}),
		function(topologyspread.Args{}, policy.Strategy{
			Name: "RemovePodsViolatingTopologySpreadConstraint", Point: policy.Balance, Traits: balance,
			Summary: "Moves pods that are spread more unevenly than their topology spread constraint allows.",
			Wakes: onChanges(schemas.NodeRemoved, schemas.NodeTaints, schemas.NodeUnschedulable,
				schemas.PodScheduled, schemas.PodDeleted, schemas.PodLabels),
		}),
		function(lownodeutilization.Args{}, policy.Strategy{
			Name: "LowNodeUtilization", Point: policy.Balance, Traits: balance,
			Summary: "Moves pods from nodes that are used too much while others are hardly used.",
			Wakes: onChanges(schemas.NodeRemoved, schemas.NodeTaints, schemas.NodeUnschedulable, schemas.NodeAllocatable,
				schemas.NodeLoad, schemas.PodScheduled, schemas.PodDeleted, schemas.PodStatus),
		}),
		function(highnodeutilization.Args{}, policy.Strategy{
			Name: "HighNodeUtilization", Point: policy.Balance, Traits: balance,
			Summary: "Moves pods from nodes that are hardly used, so that they can be switched off.",
			Wakes: onChanges(schemas.NodeRemoved, schemas.NodeTaints, schemas.NodeUnschedulable, schemas.NodeAllocatable,
				schemas.PodScheduled, schemas.PodDeleted, schemas.PodStatus),
		}),
	}
}

// onChanges are the given deltas, and the three that can change the answer of every strategy: they make a node one that the
// policy looks at.
func onChanges(wakes ...schemas.DeltaKind) []schemas.DeltaKind {
	return append([]schemas.DeltaKind{schemas.NodeAdded, schemas.NodeReady, schemas.NodeLabels}, wakes...)
}

// Function is one strategy, ready to be hosted.
type Function struct {
	// Strategy describes it to the policy.
	Strategy policy.Strategy

	decide func(scope schemas.Event) (schemas.ScopeHead, decision, error)
	answer func(scope schemas.Payload, id string) (schemas.ScopeHead, decision, error)
}

// decision is what a function says about one scope.
type decision struct {
	intents []schemas.Intent
}

// scope is any kind of scope.
type scope interface {
	schemas.Payload
	Head() schemas.ScopeHead
}

// arguments is what the folder of a strategy exports.
type arguments[S scope] interface {
	checked
	Decide(S) []schemas.Intent
}

// checked is arguments that say what is wrong with them.
type checked interface{ Validate() error }

// function is the line of one strategy. The type of args says which kind of scope it gets. Arguments in the policy are decoded
// over args.
func function[A arguments[S], S scope](args A, line policy.Strategy) Function {
	return hosted(args, line, func(a A, s S) decision { return decision{intents: a.Decide(s)} })
}

// hosted is a function that decides as decide does, under arguments like defaults.
func hosted[A checked, S scope](defaults A, strategy policy.Strategy, decide func(A, S) decision) Function {
	var s S
	strategy.Scope = kindOf(s)
	strategy.NewArgs = func() policy.Args {
		a := defaults
		return any(&a).(policy.Args) // *A has the methods of A, which the compiler does not know of a type parameter
	}
	return Function{
		Strategy: strategy,
		decide: func(e schemas.Event) (schemas.ScopeHead, decision, error) {
			s, err := schemas.Decode[S](e)
			if err != nil {
				return schemas.ScopeHead{}, decision{}, err
			}
			return answer(strategy, s, e.ID, defaults, decide)
		},
		answer: func(p schemas.Payload, id string) (schemas.ScopeHead, decision, error) {
			s, ok := p.(S)
			if !ok {
				return schemas.ScopeHead{}, decision{}, fmt.Errorf("scope %s: %T is not the kind that %s decides on: %w",
					id, p, strategy.Name, schemas.ErrInvalid)
			}
			return answer(strategy, s, id, defaults, decide)
		},
	}
}

// kindOf says which kind of scope S is. It is a property of the type, so it is found out from the zero value.
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

// answer decides on the scope that is known by id, if it is one of the strategy.
func answer[A checked, S scope](
	strategy policy.Strategy, s S, id string, args A, decide func(A, S) decision,
) (schemas.ScopeHead, decision, error) {
	head, none := s.Head(), decision{}
	if head.Strategy != strategy.Name {
		return head, none, fmt.Errorf("scope %s is for %q, not for %q: %w", id, head.Strategy, strategy.Name, schemas.ErrInvalid)
	}
	if head.Kind != strategy.Scope {
		return head, none, fmt.Errorf("scope %s is of the kind %q, and %s decides on the kind %q: %w",
			id, head.Kind, strategy.Name, strategy.Scope, schemas.ErrInvalid)
	}
	if len(head.Args) > 0 {
		d := json.NewDecoder(bytes.NewReader(head.Args))
		d.DisallowUnknownFields()
		if err := d.Decode(&args); err != nil {
			return head, none, fmt.Errorf("scope %s: arguments of %s: %w: %w", id, head.Strategy, schemas.ErrInvalid, err)
		}
	}
	if err := args.Validate(); err != nil {
		return head, none, fmt.Errorf("scope %s: arguments of %s: %w: %w", id, head.Strategy, schemas.ErrInvalid, err)
	}
	return head, decide(args, s), nil
}

// Evaluate answers one scope. The answer names the scope's event, so evaluating the same event again gives an answer
// with the same intents and IDs.
//
// It fails with an error that wraps [schemas.ErrInvalid] when the event is not a scope of this strategy, and never
// otherwise.
func (f Function) Evaluate(scope schemas.Event) (schemas.Intents, error) {
	head, d, err := f.decide(scope)
	if err != nil {
		return schemas.Intents{}, err
	}
	return complete(head, d, scope.ID, scope.Sequence), nil
}

// EvaluateInPlace is [Function.Evaluate] for a scope that did not travel in an event: id stands for the event's, and the
// sequence is 0. The scope is not changed.
func (f Function) EvaluateInPlace(scope schemas.Payload, id string) (schemas.Intents, error) {
	head, d, err := f.answer(scope, id)
	if err != nil {
		return schemas.Intents{}, err
	}
	return complete(head, d, id, 0), nil
}

func complete(head schemas.ScopeHead, d decision, event string, sequence uint64) schemas.Intents {
	return Complete(head, d.intents, event, sequence)
}

// Complete makes the answer of what a strategy decided on the scope of that head, event and sequence. It fills in the IDs of
// intents and when they expire.
func Complete(head schemas.ScopeHead, intents []schemas.Intent, event string, sequence uint64) schemas.Intents {
	if intents == nil {
		intents = []schemas.Intent{} // an empty list in JSON: the answer that withdraws all, not an answer that is missing
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
