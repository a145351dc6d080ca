// Package functions holds the strategies: pure functions that answer one scope with the pods that should move.
//
// # Adding a strategy
//
// A strategy is one folder and one line. The folder exports a type Args with two methods:
//
//	Validate() error                          what is wrong with the arguments, each error a *policy.FieldError
//	Decide(scope S) []schemas.Intent          the pods that should move; S is the kind of scope it needs
//
// A strategy that decides about single pods has a third:
//
//	Due(pod *corev1.Pod) (at time.Time, ever bool)
//
// the moment from which on the pod, as it is now, is to move, or that it never is unless it changes. The watcher asks for
// an evaluation at that moment, and never for pods that are not due.
//
// Further methods say what else the scope has to hold; they are the interfaces Seeker, Spreading and Gauged of package
// policy.
//
// The line in [All] names the strategy, says in a sentence which pods it moves, and lists the deltas that wake it. What
// scope it gets follows from the type of Decide; a type that does not fit does not compile.
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

	"github.com/rehome-dev/rehome/functions/drain"
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

// Hosted lists every function that answers scopes: the strategies, [Request] and [Maintenance].
func Hosted() []Function { return append(All(), Request(), Maintenance()) }

// Request is the function that answers the scopes of requests. It is no strategy that a policy enables: whoever the policy
// lets ask is answered.
func Request() Function {
	return function(schemas.RequestStrategy, policy.Deschedule, "Moves pods that somebody asked for.", request.Args{})
}

// Maintenance is the function that answers the scopes of maintenances. It is no strategy that a policy enables: whoever may
// make a maintenance is answered.
func Maintenance() Function {
	return hosted(schemas.MaintenanceStrategy, policy.Deschedule, "Moves pods from nodes that are to be worked on.", drain.Args{},
		func(a drain.Args, s schemas.MaintenanceScope) decision {
			intents, steps := a.Decide(s)
			return decision{intents, &steps}
		})
}

// All lists every strategy of this binary.
func All() []Function {
	return []Function{
		function("RemovePodsViolatingNodeTaints", policy.Deschedule, "Moves pods from a node that has a taint they do not tolerate.",
			nodetaints.Args{},
			schemas.NodeAdded, schemas.NodeReady, schemas.NodeLabels, schemas.NodeTaints, schemas.PodScheduled, schemas.PodLabels),
		function("RemovePodsHavingTooManyRestarts", policy.Deschedule, "Moves pods whose containers were restarted too often.",
			toomanyrestarts.Args{},
			schemas.NodeAdded, schemas.NodeReady, schemas.NodeLabels,
			schemas.PodScheduled, schemas.PodLabels, schemas.PodRestarted, schemas.PodStatus),
		function("PodLifeTime", policy.Deschedule, "Moves pods that have lived too long, or too long as they are.",
			podlifetime.Args{},
			schemas.NodeAdded, schemas.NodeReady, schemas.NodeLabels,
			schemas.PodScheduled, schemas.PodLabels, schemas.PodStatus),
		function("RemoveFailedPods", policy.Deschedule, "Moves pods that have failed, so that what owns them replaces them.",
			failedpods.Default(),
			schemas.NodeAdded, schemas.NodeReady, schemas.NodeLabels,
			schemas.PodScheduled, schemas.PodLabels, schemas.PodFailed, schemas.PodStatus),
		function("RemoveDuplicates", policy.Balance, "Moves replicas of one owner that crowd on a node to others that could run them.",
			duplicates.Args{},
			schemas.NodeAdded, schemas.NodeRemoved, schemas.NodeReady, schemas.NodeLabels, schemas.NodeTaints,
			schemas.PodScheduled, schemas.PodDeleted, schemas.PodLabels),
		function("RemovePodsViolatingInterPodAntiAffinity", policy.Deschedule,
			"Moves pods that are beside a pod which their required anti-affinity forbids.",
			podantiaffinity.Args{},
			schemas.NodeAdded, schemas.NodeRemoved, schemas.NodeReady, schemas.NodeLabels,
			schemas.PodScheduled, schemas.PodDeleted, schemas.PodLabels),
		function("RemovePodsViolatingNodeAffinity", policy.Deschedule,
			"Moves pods from a node that their node affinity forbids, or likes less than another that takes them.",
			nodeaffinity.Args{},
			schemas.NodeAdded, schemas.NodeReady, schemas.NodeLabels, schemas.NodeTaints, schemas.NodeUnschedulable,
			schemas.NodeAllocatable, schemas.PodScheduled, schemas.PodLabels),
		function("RemovePodsViolatingTopologySpreadConstraint", policy.Balance,
			"Moves pods that are spread more unevenly than their topology spread constraint allows.",
			topologyspread.Args{},
			schemas.NodeAdded, schemas.NodeRemoved, schemas.NodeReady, schemas.NodeLabels, schemas.NodeTaints,
			schemas.NodeUnschedulable, schemas.PodScheduled, schemas.PodDeleted, schemas.PodLabels),
		function("LowNodeUtilization", policy.Balance,
			"Moves pods from nodes that are used too much while others are hardly used.",
			lownodeutilization.Args{},
			schemas.NodeAdded, schemas.NodeRemoved, schemas.NodeReady, schemas.NodeLabels, schemas.NodeTaints,
			schemas.NodeUnschedulable, schemas.NodeAllocatable, schemas.NodeLoad,
			schemas.PodScheduled, schemas.PodDeleted, schemas.PodStatus),
		function("HighNodeUtilization", policy.Balance,
			"Moves pods from nodes that are hardly used, so that they can be switched off.",
			highnodeutilization.Args{},
			schemas.NodeAdded, schemas.NodeRemoved, schemas.NodeReady, schemas.NodeLabels, schemas.NodeTaints,
			schemas.NodeUnschedulable, schemas.NodeAllocatable,
			schemas.PodScheduled, schemas.PodDeleted, schemas.PodStatus),
	}
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
	steps   *schemas.MaintenanceSteps // nil, but of a maintenance
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

// function is the line of one strategy. summary says in one sentence which pods it moves. Its arguments in the policy are
// decoded over defaults.
func function[A arguments[S], S scope](
	name string, point policy.Point, summary string, defaults A, wakes ...schemas.DeltaKind,
) Function {
	decide := func(a A, s S) decision { return decision{intents: a.Decide(s)} }
	return hosted(name, point, summary, defaults, decide, wakes...)
}

// hosted is a function that decides as decide does, under arguments like defaults.
func hosted[A checked, S scope](
	name string, point policy.Point, summary string, defaults A, decide func(A, S) decision, wakes ...schemas.DeltaKind,
) Function {
	var s S
	strategy := policy.Strategy{
		Name: name, Point: point, Summary: summary, Scope: kindOf(s), Wakes: wakes,
		NewArgs: func() policy.Args {
			a := defaults
			return any(&a).(policy.Args) // *A has the methods of A, which the compiler does not know of a type parameter
		},
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
				return schemas.ScopeHead{}, decision{}, fmt.Errorf("scope %s: %T is not the kind that %s decides on: %w", id, p, name,
					schemas.ErrInvalid)
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
	case schemas.MaintenanceScope:
		return schemas.MaintenanceKind
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
	answer := Complete(head, d.intents, event, sequence)
	answer.Maintenance = d.steps
	return answer
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
