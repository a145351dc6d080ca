// Package policy reads the policy file, and applies the rules in it that more than one role needs.
//
//	file ─ Parse ─▶ strict.Decoder.Document ▶ Decode into file ▶ Validate methods ▶ functions ▶ presets ▶ profiles ─▶ Policy
//	Policy ─ Format ─▶ strict.Encode ─▶ file
//
//	policy.go     Policy: one tagged struct per section; Default    strategy.go    Strategy, Traits, namespaces, selectors
//	parse.go      Parse: version, sections, problems with lines;    older.go       descheduler/v1alpha1
//	              Policy.Format: back to a file                     cost.go        MoveCost: which pods move first
//	profile.go    profiles and their plugins                        functions.go   strategies outside of the process
//	presets.go    profiles of OpenShift                             requests.go    senders of requests
//	evictor.go    Evictor: the protections of a profile             protect.go     Evictor.Protects: one pod
//	signal.go     annotations, labels, and taints of other systems  metrics.go     sources of real usage
//	limits.go     rate, limits, circuit breakers                    maintenance.go pods of nodes under maintenance; replacements
//	                                                                               before evictions
//
// Package strict decodes and encodes by tags. Package words explains a policy in sentences.
//
// A struct of a section is the form in the file and the model at once. json tags name its fields, other tags bound them
// (see package strict), a SetDefaults method fills in a section that is absent by default, and a Validate method checks
// what tags cannot. An unknown field, a wrong type, or a value out of range is a [Problem] with its line and field; all
// problems are reported at once. Fields of the descheduler that Rehome does not have are refused: to ignore a limit or a
// protection would move the wrong pods.
//
// The comment of a field is also its description in policy.schema.json and in docs/policy.md, so it is for users. Links of
// Markdown are only for the page, and so are the lines //page:type and //page:default, for a type or a default that the field
// does not show. A note for developers stands behind the field.
//
// The file is descheduler/v1alpha2, or rehome.dev/v1alpha1, which adds Rehome's sections. descheduler/v1alpha1 is read as
// the newer version. Presets become ordinary profiles, and functions become strategies that a profile can enable.
//
// A [Policy] does not change after [Parse], so any number of goroutines may share it.
package policy

import (
	"fmt"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/rehome-dev/rehome/fit/score"
	"github.com/rehome-dev/rehome/policy/strict"
	"github.com/rehome-dev/rehome/schemas"
)

// Policy is a complete policy file, validated, with defaults. [Parse] sets the fields that are not in a file.
type Policy struct {
	// The nodes to consider. Rehome never moves pods on other nodes.
	//
	//page:type string, in label selector syntax
	//page:default all
	NodeSelector string `json:"nodeSelector"`
	// How long a pod may take to stop. 0 kills it at once.
	//
	//page:default the pod's own
	GracePeriodSeconds *int64 `json:"gracePeriodSeconds" min:"0"`
	// The rate of moves.
	Rate Rate `json:"rate"`

	// How many pods of one node may move within the window; with 0, no pod may move.
	//
	//page:default no limit
	MaxPerNode *uint `json:"maxNoOfPodsToEvictPerNode"` // in a file; otherwise Limits has this and the next two
	// The same limit for one namespace.
	//
	//page:default no limit
	MaxPerNamespace *uint `json:"maxNoOfPodsToEvictPerNamespace"`
	// The same limit for the cluster.
	//
	//page:default no limit
	MaxTotal *uint `json:"maxNoOfPodsToEvictTotal"`

	// Limits of moves within a window of time, and in flight.
	Limits Limits `json:"limits"`
	// Circuit breakers stop moves that make things worse.
	CircuitBreakers CircuitBreakers `json:"circuitBreakers" old:"brakes"` // the zero value has none
	// Which Deployments create a replacement before their pod leaves.
	Restart Restart `json:"restart"`
	// A request to other programs before a pod is evicted.
	EvictionRequests EvictionRequests `json:"evictionRequests"`
	// The senders that may make requests.
	Requests *Requests `json:"requests"` // nil means DefaultRequests
	// How pods leave nodes under maintenance.
	Maintenance Maintenance `json:"maintenance"`
	// The scheduler of the cluster, to predict where it places replacements.
	Scheduler Scheduler `json:"scheduler"`
	// A failed eviction creates a Kubernetes Event of type Warning, with the reason EvictionFailed, on the pod.
	FailureEvents bool `json:"evictionFailureEventNotification"`
	// The sources of real usage.
	Metrics Metrics `json:"metricsProviders"`
	// Which changes of pods the watcher publishes: the kinds that an enabled strategy needs, or all.
	Deltas Deltas `json:"deltas" enum:"Needed,All"` // the zero value is DeltasNeeded
	// The annotations, labels, taints, and conditions of other systems that Rehome honors.
	Signals Signals `json:"signals"` // Evictors have a copy
	// The strategies that run outside of Rehome.
	Functions []Function `json:"functions"`

	// Outside are the strategies of Functions, even if no profile enables them.
	Outside []Outside `json:"-"`
	// Known are the traits of all strategies that the file may name: the built-in ones and the functions.
	Known map[string]Traits `json:"-"`
	// Profiles are the profiles of the presets in the file, then its own.
	Profiles []Profile `json:"-"`
	// Presets are the presets in the file. [Policy.Format] writes them as profiles.
	Presets []Preset `json:"-"`
}

// Default returns the policy of a file that sets nothing. It has no profile, so it moves no pod.
func Default() Policy {
	return Policy{
		Rate: DefaultRate(), Limits: Limits{InFlight: DefaultInFlight()}, CircuitBreakers: DefaultCircuitBreakers(),
		Deltas: DeltasNeeded,
	}
}

// Deltas selects the published deltas about pods. Deltas about nodes are always published.
type Deltas string

// The choices.
const (
	DeltasNeeded Deltas = "Needed" // deltas that can change the answer of a strategy
	DeltasAll    Deltas = "All"    // all deltas, for other programs
)

// Profile is a set of strategies that share one set of protections.
type Profile struct {
	Name       string
	Evictor    Evictor
	Strategies []Enabled
}

// EvictorFor returns the rules that protect pods from a strategy of the profile, or from a request.
func (p Profile) EvictorFor(strategy string) Evictor {
	if e, found := first(p.Strategies, func(e Enabled) bool { return e.Name == strategy }); found && e.MustFit() {
		return p.Evictor.WithFit()
	}
	return p.Evictor
}

// Enabled returns a strategy of a profile, and whether the profile has it.
func (p Policy) Enabled(profile, strategy string) (Enabled, bool) {
	of, _ := p.Profile(profile)
	for _, e := range of.Strategies {
		if e.Name == strategy {
			return e, true
		}
	}
	return Enabled{}, false
}

// NeedsCapacity reports whether a profile or a strategy depends on where pods fit. Only strategies that renew pods, or
// whose pods may return, do not.
func (p Policy) NeedsCapacity() bool {
	return slices.ContainsFunc(p.Profiles, func(p Profile) bool {
		return p.Evictor.Needs().Room || slices.ContainsFunc(p.Strategies, func(e Enabled) bool {
			return e.Needs(FactElsewhere) || e.Needs(FactFit) || e.StaysAway()
		})
	})
}

// Validate checks the values; each error is a *[FieldError].
func (p Policy) Validate() error { return validateNodeSelector(p.NodeSelector) }

// Profile returns the profile of that name, and whether there is one.
func (p Policy) Profile(name string) (Profile, bool) {
	return first(p.Profiles, func(profile Profile) bool { return profile.Name == name })
}

// first returns the first matching item of a list, and whether there is one.
func first[T any](list []T, wanted func(T) bool) (item T, found bool) {
	if i := slices.IndexFunc(list, wanted); i >= 0 {
		return list[i], true
	}
	return item, false
}

// Selector returns the compiled NodeSelector. Each call compiles it again, so call it once and keep the result. An
// invalid NodeSelector, which [Parse] never returns, selects nothing.
func (p Policy) Selector() labels.Selector {
	selector, err := labels.Parse(p.NodeSelector)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}

// Traits returns the traits of a strategy, even if it is disabled, because a move may outlive its policy.
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

// Scheduler describes the scheduler of the cluster. The zero value is its default profile.
type Scheduler struct {
	// How the kube-scheduler scores nodes, to [predict where it places a replacement](#scheduler): the scoring strategy of its
	// plugin NodeResourcesFit, or the path of its KubeSchedulerConfiguration.
	//
	//page:type `LeastAllocated`, `MostAllocated`, or a path
	//page:default `LeastAllocated`
	Profile string `json:"profile"`
}

// builtInProfiles are the scoring profiles that need no file.
func builtInProfiles() map[string]func() *score.Profile {
	return map[string]func() *score.Profile{
		"": score.Default, "LeastAllocated": score.Default, "MostAllocated": score.MostAllocated,
	}
}

// File returns the path that Profile names, or "" if it names a profile without a file.
func (s Scheduler) File() string {
	if builtInProfiles()[s.Profile] != nil {
		return ""
	}
	return s.Profile
}

// Load returns the profile that Profile names. The error names the path.
func (s Scheduler) Load() (*score.Profile, error) {
	if profile := builtInProfiles()[s.Profile]; profile != nil {
		return profile(), nil
	}
	data, err := os.ReadFile(s.Profile)
	if err != nil {
		return nil, fmt.Errorf("scheduler.profile: %w", err)
	}
	profile, err := score.Read(data)
	if err != nil {
		return nil, fmt.Errorf("scheduler.profile: %s: %w", s.Profile, err)
	}
	return profile, nil
}

// Warnings returns warnings about parts of the policy that are valid but conflict, or that cannot be checked here.
func (p Policy) Warnings() []string {
	profile, err := p.Scheduler.Load()
	if err != nil {
		return []string{err.Error()}
	}
	var all []string
	for _, of := range p.Profiles {
		for _, s := range of.Strategies {
			if s.EmptiesNodes && profile.PrefersEmptyNodes() {
				all = append(all, fmt.Sprintf("profile %s: %s empties nodes that the scheduler fills again, because it "+
					"prefers the least allocated nodes; use the scoring strategy MostAllocated in the scheduler, and set "+
					"scheduler.profile", of.Name, s.Name))
			}
		}
	}
	return all
}

// Types of package strict that other packages use.
type (
	// FieldError is one error in a value.
	FieldError = strict.FieldError
	// Findings are the errors that a Validate method finds.
	Findings = strict.Findings
	// Problem is one error in a file.
	Problem = strict.Problem
	// Problems are the error of [Parse].
	Problems = strict.Problems
)

// Item returns the path of an item of a list, below the list.
func Item(i int) string { return strict.Item(i) }
