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

// Point is the extension point of a strategy.
type Point string

// The extension points of Rehome's strategies. DefaultEvictor is always enabled for filter and preevictionfilter.
const (
	Deschedule Point = "deschedule"
	Balance    Point = "balance"
)

// Args are the arguments of a strategy: a pointer to a struct with JSON tags.
type Args interface {
	// Validate checks the values; each error is a *[FieldError]. nil means nothing.
	Validate() error
}

// Strategy describes a strategy to the policy.
type Strategy struct {
	Name  string
	Point Point
	// Summary describes in one sentence which pods it moves.
	Summary string
	// Scope is the kind of its scopes.
	Scope schemas.ScopeKind
	// Wakes are the deltas that can change its answer.
	Wakes []schemas.DeltaKind
	Traits
	// NewArgs returns new arguments with their defaults.
	NewArgs func() Args
}

// Enabled is an enabled strategy.
type Enabled struct {
	Strategy
	// Args are its arguments with defaults, as JSON, in the format of a scope.
	Args json.RawMessage
}

// Values reads Args back. It fails only if Args belong to another strategy, which [Parse] prevents.
func (e Enabled) Values() (Args, error) {
	values := e.NewArgs()
	if described, ok := values.(interface{ own() *ownArguments }); ok {
		described.own().fields = nil // Args are complete: a missing default was removed
	}
	if err := json.Unmarshal(e.Args, values); err != nil {
		return nil, fmt.Errorf("arguments of %s: %w", e.Name, err)
	}
	return values, nil
}

// Traits describe a strategy to other roles. They are data: no role knows a strategy by its name.
type Traits struct {
	// Priority decides which waiting pods move first.
	Priority Priority
	// RenewsPods means that the strategy wants a new pod, not another node. A replacement on the same node is a
	// success.
	RenewsPods bool
	// MayReturn means that a pod may return to the node later. The workload circuit breaker ignores such returns, and
	// returns of a strategy that renews pods.
	MayReturn bool
	// EmptiesNodes means that the strategy works only with a scheduler that prefers nodes with pods. [Policy.Warnings]
	// checks this.
	EmptiesNodes bool
	// SpreadsReplicas means that a pod with a controller moves only to a node with fewer pods of the controller than its
	// own node has.
	SpreadsReplicas bool
	// Facts are the contents of its scopes beyond those of their kind.
	Facts []Fact
	// Opaque means that any change may be relevant to it. Each existing group gets a scope, and so does each change of
	// a pod or a node that is one of its Wakes, even if it does not change the group.
	Opaque bool
}

// Priority is the urgency of the moves of a strategy.
type Priority string

// The priorities, the most urgent first. A failing or draining node takes its pods with it, and waits for no user. A
// user who requests a move watches it, requests few pods, and must not wait behind a thousand violations. Balance is
// never urgent.
const (
	PriorityNode      Priority = "node"      // the node fails, or must be emptied
	PriorityManual    Priority = "manual"    // a user or another program requested it
	PriorityViolation Priority = "violation" // the pod violates a rule on its node, or in its state
	PriorityBalance   Priority = "balance"   // the pod would be better elsewhere
)

// Priorities returns all priorities, the most urgent first.
func Priorities() []Priority {
	return []Priority{PriorityNode, PriorityManual, PriorityViolation, PriorityBalance}
}

// DefaultPriority returns the priority of a strategy that declares none.
func DefaultPriority(p Point) Priority {
	if p == Balance {
		return PriorityBalance
	}
	return PriorityViolation
}

// Fact is a content of scopes only for the strategies that need it.
type Fact string

// The facts.
const (
	// FactDue is the time when an unchanged pod must move: scopes are built by the clock. The arguments are [Timed].
	FactDue Fact = "due"
	// FactElsewhere is where else the pods of a node fit. The arguments are a [Seeker].
	FactElsewhere Fact = "elsewhere"
	// FactConcerned is the set of pods of a node that the strategy could want to move. A scope without such a pod is
	// not published, unless it withdraws an earlier answer. The arguments are [Concerned].
	FactConcerned Fact = "concerned"
	// FactFit is that the replacement of a pod fits on another node: other pods count as protected by NodeFit, even if
	// the policy does not enable nodeFit.
	FactFit Fact = "fit"
)

// RequestTraits returns the traits of the function that answers requests.
func RequestTraits() Traits { return Traits{Priority: PriorityManual} }

// MaintenanceTraits returns the traits of the function that answers maintenances. The node takes pods again afterwards.
func MaintenanceTraits() Traits { return Traits{Priority: PriorityNode, MayReturn: true} }

// ScopeRules are the functions of an enabled strategy for the builder of scopes. A nil rule is none.
type ScopeRules struct {
	Timed     Timed
	Seeker    Seeker
	Concerned Concerned
	Spreading Spreading
	Gauged    Gauged
}

// Timed are the arguments of a strategy that needs [FactDue].
type Timed interface {
	// Due returns the time from which the strategy wants to move the pod, which may be in the past. ever is false if it
	// never does until the pod changes.
	Due(pod *corev1.Pod) (at time.Time, ever bool)
}

// Seeker are the arguments of a strategy that needs [FactElsewhere].
type Seeker interface {
	// Seeks reports whether the strategy needs the fact for this pod on this node.
	Seeks(pod *corev1.Pod, node *corev1.Node) bool
}

// Concerned are the arguments of a strategy that declares [FactConcerned].
type Concerned interface {
	// Concerns reports whether the strategy could want to move the pod off this node, regardless of protections.
	Concerns(pod *corev1.Pod, node *corev1.Node) bool
}

// Spreading are the arguments of a strategy whose scopes are of the kind [schemas.SpreadKind].
type Spreading interface {
	// Constraints returns the considered constraints of the pod. Each makes a group.
	Constraints(pod *corev1.Pod) []corev1.TopologySpreadConstraint
	// NeedsRoom means that a pod moves only if it fits into a domain with fewer pods, so the scope must name those
	// domains.
	NeedsRoom() bool
}

// Gauged are the arguments of a strategy whose scopes are of the kind [schemas.UsageKind].
type Gauged interface {
	// Resources returns the considered resources.
	Resources() []corev1.ResourceName
	// Load returns the source of the usage.
	Load() Load
	// Sources returns the names of the nodes whose pods the strategy needs. Without sources, it would move nothing.
	Sources(nodes []schemas.NodeUsage) []string
}

// ScopeRules returns the rules for the kind of scope and the facts of the strategy. It fails if the arguments lack one
// of them.
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
		return ScopeRules{}, fmt.Errorf("strategy %s decides on scopes of kind %s, and %T has no rules for it",
			e.Name, e.Scope, values)
	}
	return r, nil
}

// MustFit reports whether the strategy moves a pod only if its replacement fits on another node.
func (e Enabled) MustFit() bool {
	if !e.Needs(FactFit) || e.Scope != schemas.SpreadKind {
		return e.Needs(FactFit)
	}
	values, _ := e.Values()
	spreading, ok := values.(Spreading)
	return ok && spreading.NeedsRoom()
}

// StaysAway reports whether a move is in vain if the replacement returns to the node.
func (t Traits) StaysAway() bool { return !t.RenewsPods && !t.MayReturn }

// Needs reports whether the strategy needs the fact.
func (t Traits) Needs(f Fact) bool { return slices.Contains(t.Facts, f) }

// Load is the source of the usage of nodes and pods. The zero value means the requests of pods.
type Load struct {
	Source LoadSource
	// Query is the query for Prometheus, only for LoadPrometheus. Its result is [schemas.LoadMetric].
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
// An entry is the exact name of a namespace, or a prefix with a * at the end. The descheduler's versions of the file do
// not have prefixes, so [Parse] rejects them there.
type Namespaces struct {
	// Include lists the only namespaces to consider, and Exclude namespaces to ignore. At most one of them may be used.
	Include []string `json:"include,omitzero" pattern:"namespace"`
	Exclude []string `json:"exclude,omitzero" pattern:"namespace"`
}

// Has reports whether pods of the namespace are considered.
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

// patterns returns an error for each pattern in the arguments of a strategy, as JSON.
func patterns(args json.RawMessage) error {
	var found Findings
	for _, field := range namespaceFields() {
		var n Namespaces
		if json.Unmarshal(strict.Object(args)[field], &n) != nil {
			continue // no such argument, or nothing that could contain a pattern
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

// namespaceFields returns the arguments of type [Namespaces], with the names in the descheduler.
func namespaceFields() []string { return []string{"namespaces", "evictableNamespaces"} }

// Selects compiles a label selector. nil selects everything, and one that [ValidateSelector] rejects selects nothing,
// as in the descheduler.
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
