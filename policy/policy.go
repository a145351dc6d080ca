// Package policy is the policy file, and the rules in it that more than one role applies: what is enabled, with which
// arguments, and what protects a pod.
//
// Everything here is a pure function of the file and of the objects it is asked about. A [Policy] is never changed
// after it was read, so it may be shared by any number of goroutines.
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
	"time"

	"k8s.io/apimachinery/pkg/labels"

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
