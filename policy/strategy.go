package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

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
	// Validate checks the values; each error is a *[FieldError]. nil: nothing.
	Validate() error
}

// Strategy describes a strategy to the policy.
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

// Enabled is one strategy that is switched on.
type Enabled struct {
	Strategy
	// Args are its arguments with defaults filled in, as JSON, the way they travel in a scope.
	Args json.RawMessage
}

// Values reads Args back. It fails only when Args belong to another strategy, which [Parse] prevents.
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

// Traits describe a strategy to other roles. They are data: no role knows a strategy by its name.
type Traits struct {
	// Priority is which of the pods that wait are moved first.
	Priority Priority
	// RenewsPods: the strategy wants a new pod, not another place. A replacement on the same node is success.
	RenewsPods bool
	// MayReturn: a pod may come back to the node later. The workload circuit breaker ignores such a return. It ignores the
	// returns of a strategy that renews pods, too.
	MayReturn bool
	// EmptiesNodes: the strategy works only with a scheduler that prefers nodes with pods. [Policy.Warnings] checks this.
	EmptiesNodes bool
	// SpreadsReplicas: a pod moves only to a node with fewer pods of its controller than its own node has.
	SpreadsReplicas bool
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
	// FactFit is that the replacement of a pod fits on another node: a pod for which that is not so counts as protected by NodeFit,
	// whether or not the policy asks for nodeFit.
	FactFit Fact = "fit"
)

// RequestTraits are the traits of the function that answers requests.
func RequestTraits() Traits { return Traits{Priority: PriorityManual} }

// MaintenanceTraits are the traits of the function that answers maintenances. The node takes pods again afterwards.
func MaintenanceTraits() Traits { return Traits{Priority: PriorityNode, MayReturn: true} }

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
		case FactFit:
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

// MustFit says whether the strategy moves a pod only if its replacement fits on another node.
func (e Enabled) MustFit() bool {
	if !e.Needs(FactFit) || e.Scope != schemas.SpreadKind {
		return e.Needs(FactFit)
	}
	values, _ := e.Values()
	spreading, ok := values.(Spreading)
	return ok && spreading.NeedsRoom()
}

// StaysAway says whether the strategy moves a pod in vain if the replacement comes back to the node.
func (t Traits) StaysAway() bool { return !t.RenewsPods && !t.MayReturn }

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

// Namespaces limits a strategy to some namespaces. The zero value is all namespaces.
//
// An entry is the exact name of a namespace, or the beginning of names with a * behind it. The second is not part of the
// descheduler's versions of the file, under which [Parse] refuses it.
type Namespaces struct {
	// Include names the only namespaces to look at; Exclude those not to look at. At most one of them may be used.
	Include []string `json:"include,omitzero" pattern:"namespace"`
	Exclude []string `json:"exclude,omitzero" pattern:"namespace"`
}

// Has says whether pods of the namespace are looked at.
func (n Namespaces) Has(namespace string) bool {
	if len(n.Include) > 0 {
		return anyMatches(n.Include, namespace)
	}
	return !anyMatches(n.Exclude, namespace)
}

// anyMatches runs for every pod of a cluster, so it compares in place.
func anyMatches(entries []string, namespace string) bool {
	for _, e := range entries {
		if e == namespace {
			return true
		}
		if last := len(e) - 1; last > 0 && e[last] == '*' && strings.HasPrefix(namespace, e[:last]) {
			return true
		}
	}
	return false
}

// Validate checks the values; each error is a *[FieldError].
func (n Namespaces) Validate() error {
	var found Findings
	if len(n.Include) > 0 && len(n.Exclude) > 0 {
		found.Add("", nil, "has both include and exclude", "keep one")
	}
	found.Join("include", validateNames(n.Include))
	found.Join("exclude", validateNames(n.Exclude))
	return found.Err()
}

func validateNames(namespaces []string) error {
	var found Findings
	for i, name := range namespaces {
		found.Join(Item(i), strict.Match("namespace", name))
	}
	return found.Err()
}

// validateNodeSelector checks a label selector of nodes, as text.
func validateNodeSelector(text string) error {
	if _, err := labels.Parse(text); err != nil {
		return &FieldError{Field: "nodeSelector", Value: text, Reason: err.Error(),
			Right: `write a label selector, such as "pool=web,!gpu"`}
	}
	return nil
}

// patterns finds the patterns in the arguments of a strategy, as JSON. Each becomes an error.
func patterns(args json.RawMessage) error {
	var found Findings
	for _, field := range namespaceFields() {
		var n Namespaces
		if json.Unmarshal(strict.Object(args)[field], &n) != nil {
			continue // no such argument, or nothing that a pattern could stand in
		}
		for _, list := range []struct {
			name    string
			entries []string
		}{{"include", n.Include}, {"exclude", n.Exclude}} {
			for i, e := range list.entries {
				if strings.HasSuffix(e, "*") {
					found.Add(field+"."+list.name+Item(i), e, "is a pattern, which only "+Version+" has",
						"write exact names, or apiVersion: "+Version)
				}
			}
		}
	}
	return found.Err()
}

// namespaceFields are the arguments that are [Namespaces], by the names that the descheduler gave them.
func namespaceFields() []string { return []string{"namespaces", "evictableNamespaces"} }

// Selects compiles a label selector. nil, and one that [ValidateSelector] refuses, behave as in the descheduler: the first
// selects everything, the second nothing.
func Selects(selector *metav1.LabelSelector) labels.Selector {
	if selector == nil {
		return labels.Everything()
	}
	compiled, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return labels.Nothing()
	}
	return compiled
}

// ValidateSelector checks a label selector by the rules of the API server; each error is a *[FieldError]. nil is valid.
func ValidateSelector(selector *metav1.LabelSelector) error {
	var found Findings
	for _, e := range metavalidation.ValidateLabelSelector(selector, metavalidation.LabelSelectorValidationOptions{}, nil) {
		value := e.BadValue
		if value == "" || e.Type == field.ErrorTypeRequired || e.Type == field.ErrorTypeForbidden {
			value = nil // the error is about a missing value
		}
		found.Add(e.Field, value, e.Detail, "")
	}
	return found.Err()
}
