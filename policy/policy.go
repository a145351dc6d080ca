// Package policy is the policy file, and the rules in it that more than one role applies: what is enabled, with which
// arguments, and what protects a pod.
//
// Everything here is a pure function of the file and of the objects it is asked about. A [Policy] is never changed
// after it was read, so it may be shared by any number of goroutines.
//
// # Files
//
//	policy.go     Policy, Strategy, Traits; what a strategy needs to know
//	parse.go      Parse: version, sections; package strict finds line and field of each mistake
//	profile.go    profiles and their plugins           older.go     descheduler/v1alpha1
//	arguments.go  what arguments of strategies share   preset.go    presets; package openshift has them as data
//	outside.go    functions outside of the process     format.go    Policy.Format: written back as a file
//	evictor.go    Evictor: what is protected           protect.go   Evictor.Protects: one pod, and Facts around it
//	signal.go     marks of other systems               requests.go  senders of requests
//	limits.go     rate, limits, circuit breakers       moves.go     restarts, and pods of nodes under maintenance
//	metrics.go    where real usage comes from
//
// Package words says in words what a policy does.
//
// # The file
//
// descheduler/v1alpha2 as kubernetes-sigs/descheduler reads it, or rehome.dev/v1alpha1: the same with Rehome's
// additions. descheduler/v1alpha1, its map of strategies, is read as what it means in the newer version.
//
// Reading is strict everywhere. An unknown field, a wrong type, a value out of range: each is one [Problem] with line,
// field and what would be right, and all of them are reported at once. What the peer can do and this version cannot is
// refused by name: a limit or a protection that is silently ignored would move the wrong pods.
//
// # Presets
//
// A file of rehome.dev/v1alpha1 may name profiles of OpenShift's descheduler operator. Each becomes an ordinary [Profile]
// while the file is read, so nobody else has to know of them; [Policy.Presets] is for people.
//
// # Functions
//
// A file of rehome.dev/v1alpha1 may declare strategies of its own, which are asked over HTTP or NATS, and say of built-in
// ones that they are asked there: [Policy.Outside]. A profile enables both like any other.
//
// # Protections
//
// [Evictor.Protects] looks at one pod, and at what [Facts] say about the cluster around it. The watcher asks it when it
// makes a scope. The actuator asks again before it moves the pod, about the pod alone.
//
// [Signals] are the marks of other systems. Those on pods protect, so they are part of the Evictor. Those on nodes are
// asked for by the watcher when it makes a scope.
package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rehome-dev/rehome/policy/strict"
	"github.com/rehome-dev/rehome/schemas"
)

// Point is the extension point that a strategy is enabled under.
type Point string

// The extension points that strategies of Rehome can be enabled under. DefaultEvictor is always on for filter and
// preevictionfilter.
const (
	Deschedule Point = "deschedule"
	Balance    Point = "balance"
)

// Args are the arguments of a strategy: a pointer to a struct with json tags.
type Args interface {
	// Validate says what is wrong; each error in it is a *[FieldError]. nil: nothing.
	Validate() error
}

// Strategy describes a strategy to the policy: the names that may stand in the file, and what they mean.
type Strategy struct {
	Name  string
	Point Point
	// Summary says in one sentence which pods it moves.
	Summary string
	// Scope is the kind of scope that it decides on.
	Scope schemas.ScopeKind
	// Wakes are the deltas that can change its answer.
	Wakes []schemas.DeltaKind
	Traits
	// NewArgs returns new arguments with their defaults.
	NewArgs func() Args
}

// Policy is a whole policy file, validated, with defaults filled in.
type Policy struct {
	// NodeSelector limits which nodes are looked at, in label selector syntax. Empty: all.
	NodeSelector string
	// GracePeriodSeconds is asked for in every eviction. nil: the pod's own.
	GracePeriodSeconds *int64
	// Rate is how fast pods are moved, Limits how many within a window of time.
	Rate   Rate
	Limits Limits
	// Brakes stop moving what does not get better by it. The zero value has none; a file that says nothing gets
	// [DefaultBrakes].
	Brakes Brakes
	// Restart lets workloads make a replacement first.
	Restart Restart
	// EvictionRequests is how long an EvictionRequest may remain without an answer before the pod is evicted. 0: none is made.
	EvictionRequests time.Duration
	// Requests says who may ask for what. nil: [DefaultRequests].
	Requests *Requests
	// Maintenance says how pods move from nodes that are worked on.
	Maintenance Maintenance
	// FailureEvents: an eviction that fails or is refused is a Kubernetes Event of the type Warning with the reason
	// EvictionFailed.
	FailureEvents bool
	// Metrics says where real usage can be read.
	Metrics Metrics
	// Deltas says which deltas are published. The zero value is [DeltasNeeded].
	Deltas Deltas
	// Known are the traits of all strategies that the file may name: the built-in ones, and those that it declares.
	Known map[string]Traits
	// Outside are the strategies that are asked outside of this process, whether a profile enables them or not.
	Outside []Outside
	// Signals are the marks of other systems on pods and nodes that are honoured. Those of pods are also a part of every
	// [Evictor].
	Signals Signals
	// Profiles are those that the presets of the file mean, then those that it writes out.
	Profiles []Profile
	// Presets are what the file said instead of some of Profiles. [Policy.Format] writes them as the profiles that they mean.
	Presets []Preset
}

// Deltas says which deltas about pods are published. Those about nodes always are.
type Deltas string

// What can be published.
const (
	DeltasNeeded Deltas = "Needed" // those that wake a strategy: the causes of decisions, not the noise of the cluster
	DeltasAll    Deltas = "All"    // every one, for listeners that want to know
)

// Profile is a set of strategies that share one set of protections.
type Profile struct {
	Name       string
	Evictor    Evictor
	Strategies []Enabled
}

// Enabled is one strategy that is switched on.
type Enabled struct {
	Strategy
	// Args are its arguments with defaults filled in, as JSON, the way they travel in a scope.
	Args json.RawMessage
}

// Values reads Args back. It fails only when Args are not those of the strategy, which [Parse] sees to.
func (e Enabled) Values() (Args, error) {
	values := e.NewArgs()
	if described, ok := values.(interface{ own() *ownArguments }); ok {
		described.own().fields = nil // Args are all of them: a default that is not there was taken away
	}
	if err := json.Unmarshal(e.Args, values); err != nil {
		return nil, fmt.Errorf("arguments of %s: %w", e.Name, err)
	}
	return values, nil
}

// Profile returns the profile of that name, and whether there is one.
func (p Policy) Profile(name string) (Profile, bool) {
	for _, profile := range p.Profiles {
		if profile.Name == name {
			return profile, true
		}
	}
	return Profile{}, false
}

// Selector is NodeSelector, compiled. It is compiled anew in each call, so call it once and keep the answer. A
// NodeSelector that cannot be read, which [Parse] never returns, selects nothing.
func (p Policy) Selector() labels.Selector {
	selector, err := labels.Parse(p.NodeSelector)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

// A mistake in a value or in a file, and where it stands; see package strict.
type (
	FieldError = strict.FieldError
	Findings   = strict.Findings
	Problem    = strict.Problem
	Problems   = strict.Problems
)

// Item is the path of an item of a list, below the list.
func Item(i int) string { return strict.Item(i) }

// Traits are what other roles need to know about a strategy. They are data: no role knows a strategy by its name.
type Traits struct {
	// Priority is which of the pods that wait are moved first.
	Priority Priority
	// RenewsPods: the strategy wants a new pod, not another place. A replacement on the same node is success.
	RenewsPods bool
	// MayReturn: a pod may come back to the node later. The loop breaker ignores such a return. It ignores the returns of a
	// strategy that renews pods, too.
	MayReturn bool
	// Facts are what its scopes hold beyond what their kind implies.
	Facts []Fact
	// Opaque: no changes are known to be irrelevant to it. Each group that exists gets a scope, and so does each change of a
	// pod or a node that is one of its Wakes, whether or not it changes the group.
	Opaque bool
}

// Priority is how urgent the moves of a strategy are.
type Priority string

// The priorities, the most urgent first. A node that fails or is emptied takes its pods with it, and waits for no person.
// A person who asks for a move watches it, asks for few pods, and must not wait behind a thousand violations. Balance is
// never urgent.
const (
	PriorityNode      Priority = "node"      // the node fails, or must be emptied
	PriorityManual    Priority = "manual"    // a person or another program asked
	PriorityViolation Priority = "violation" // the pod must not be where it is, or as it is
	PriorityBalance   Priority = "balance"   // the pod would be better elsewhere
)

// Priorities lists all priorities, the most urgent first.
func Priorities() []Priority {
	return []Priority{PriorityNode, PriorityManual, PriorityViolation, PriorityBalance}
}

// DefaultPriority is the priority of a strategy that declares none.
func DefaultPriority(p Point) Priority {
	if p == Balance {
		return PriorityBalance
	}
	return PriorityViolation
}

// Fact is something that scopes hold only for the strategies that need it.
type Fact string

// The facts.
const (
	// FactDue is when a pod has to move, as long as it does not change: scopes are built by the clock. The arguments are [Timed].
	FactDue Fact = "due"
	// FactElsewhere is where else the pods of a node fit. The arguments are a [Seeker].
	FactElsewhere Fact = "elsewhere"
	// FactConcerned is which pods of a node the strategy could want to move. A scope without such a pod is not published, unless it
	// withdraws an earlier answer. The arguments are [Concerned].
	FactConcerned Fact = "concerned"
)

// RequestTraits are the traits of the function that answers requests.
func RequestTraits() Traits { return Traits{Priority: PriorityManual} }

// MaintenanceTraits are the traits of the function that answers maintenances. The node takes pods again afterwards.
func MaintenanceTraits() Traits { return Traits{Priority: PriorityNode, MayReturn: true} }

// Traits returns the traits of a strategy, which need not be enabled: a move may outlive the policy that asked for it.
func (p Policy) Traits(strategy string) Traits {
	switch strategy {
	case schemas.RequestStrategy:
		return RequestTraits()
	case schemas.MaintenanceStrategy:
		return MaintenanceTraits()
	}
	if t, known := p.Known[strategy]; known {
		return t
	}
	return Traits{Priority: PriorityViolation}
}

// ScopeRules are the questions that the builder of scopes asks an enabled strategy. A nil rule is none.
type ScopeRules struct {
	Timed     Timed
	Seeker    Seeker
	Concerned Concerned
	Spreading Spreading
	Gauged    Gauged
}

// Timed are the arguments of a strategy that needs [FactDue].
type Timed interface {
	// Due returns when the strategy wants the pod moved, which may be in the past. ever is false when it never does, unless
	// the pod changes.
	Due(pod *corev1.Pod) (at time.Time, ever bool)
}

// Seeker are the arguments of a strategy that needs [FactElsewhere].
type Seeker interface {
	// Seeks says whether the strategy needs the fact for this pod on this node.
	Seeks(pod *corev1.Pod, node *corev1.Node) bool
}

// Concerned are the arguments of a strategy that declares [FactConcerned].
type Concerned interface {
	// Concerns says whether the strategy could want to move the pod off this node, whatever protects the pod.
	Concerns(pod *corev1.Pod, node *corev1.Node) bool
}

// Spreading are the arguments of a strategy whose scopes are of the kind [schemas.SpreadKind].
type Spreading interface {
	// Constraints returns the constraints of the pod that the strategy considers. Each makes a group.
	Constraints(pod *corev1.Pod) []corev1.TopologySpreadConstraint
	// NeedsRoom: a pod moves only if it fits into a domain with fewer pods, so the scope has to name those domains.
	NeedsRoom() bool
}

// Gauged are the arguments of a strategy whose scopes are of the kind [schemas.UsageKind].
type Gauged interface {
	// Resources returns the resources whose usage the strategy considers.
	Resources() []corev1.ResourceName
	// Load says where the usage comes from.
	Load() Load
	// Sources returns the names of the nodes whose pods the strategy needs to see. None: it would move nothing.
	Sources(nodes []schemas.NodeUsage) []string
}

// ScopeRules returns the rules that the kind of scope and the facts of the strategy call for. It fails when the arguments
// do not have one of them.
func (e Enabled) ScopeRules() (ScopeRules, error) {
	values, err := e.Values()
	if err != nil {
		return ScopeRules{}, err
	}
	var r ScopeRules
	has := true
	for _, fact := range e.Facts {
		switch fact {
		case FactDue:
			r.Timed, has = values.(Timed)
		case FactElsewhere:
			r.Seeker, has = values.(Seeker)
		case FactConcerned:
			r.Concerned, has = values.(Concerned)
		default:
			has = false
		}
		if !has {
			return ScopeRules{}, fmt.Errorf("strategy %s needs the fact %q, and %T has no rule for it", e.Name, fact, values)
		}
	}
	switch e.Scope {
	case schemas.SpreadKind:
		r.Spreading, has = values.(Spreading)
	case schemas.UsageKind:
		r.Gauged, has = values.(Gauged)
	}
	if !has {
		return ScopeRules{}, fmt.Errorf("strategy %s decides on scopes of kind %s, and %T does not say what they need",
			e.Name, e.Scope, values)
	}
	return r, nil
}

// Needs says whether the strategy needs the fact.
func (t Traits) Needs(f Fact) bool { return slices.Contains(t.Facts, f) }

// Load says where the usage of nodes and pods comes from. The zero value means the requests of pods.
type Load struct {
	Source LoadSource
	// Query is the query for Prometheus, for LoadPrometheus alone. Its result is [schemas.LoadMetric].
	Query string
}

// LoadSource names a source of usage.
type LoadSource string

// The sources of usage.
const (
	LoadRequests   LoadSource = ""                  // the requests of pods
	LoadKubernetes LoadSource = "KubernetesMetrics" // metrics.k8s.io
	LoadPrometheus LoadSource = "Prometheus"
)
