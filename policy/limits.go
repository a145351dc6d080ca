package policy

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rehome-dev/rehome/policy/strict"
)

// Rate is the rate of moves.
type Rate struct {
	// How many pods move per second on average.
	EvictionsPerSecond float64 `json:"evictionsPerSecond" above:"0"`
	// How many pods may move at once after a pause.
	Burst int `json:"burst" min:"1"`
	// An additional rate for each namespace. Without it there is none.
	PerNamespace *NamespaceRate `json:"perNamespace,omitzero"`
}

// NamespaceRate is the rate of moves of one namespace. Its fields are the same as in [Rate].
type NamespaceRate struct {
	// How many pods of one namespace move per second on average. Without `perNamespace` there is no limit for one namespace.
	EvictionsPerSecond float64 `json:"evictionsPerSecond" above:"0"`
	// How many pods of one namespace may move at once after a pause.
	Burst int `json:"burst" min:"1"`
}

// DefaultRate returns the rate of a file without one. Ten per second moves all pods of a full node, by default 110, in
// about ten seconds, and is far below the capacity of an API server.
func DefaultRate() Rate { return Rate{EvictionsPerSecond: 10, Burst: 10} }

// SetDefaults sets the defaults of a file with a part of the section.
func (r *NamespaceRate) SetDefaults() {
	all := DefaultRate()
	*r = NamespaceRate{EvictionsPerSecond: all.EvictionsPerSecond, Burst: all.Burst}
}

// DefaultWindow is the [Limits.Window] of a file without one. The descheduler starts a new count in each cycle, which
// is every five minutes when it runs as a Deployment.
const DefaultWindow = 5 * time.Minute

// Limits limit the moves within a window of time, and in flight. The zero value limits only Unavailable.
type Limits struct {
	// PerNode, PerNamespace, and Total limit the pods moved off one node, out of one namespace, and in total. nil means
	// no limit. 0 moves none. In a file they are maxNoOfPodsToEvictPerNode and so on, as in the descheduler.
	PerNode      *uint `json:"-"`
	PerNamespace *uint `json:"-"`
	Total        *uint `json:"-"`
	// The window of the limits `maxNoOfPodsToEvictPerNode`, `maxNoOfPodsToEvictPerNamespace`, and `maxNoOfPodsToEvictTotal`. For
	// `rehome once` and `rehome simulate` the window is their single round.
	Window time.Duration `json:"window" above:"0" max:"24h0m0s"` // 0 means DefaultWindow
	// How many moves may be in flight at the same time, each until its replacement is ready.
	InFlight InFlight `json:"inFlight"`
	// How many pods of a workload may be unavailable at once, whatever the cause, if no PodDisruptionBudget selects them. A
	// percentage refers to the desired number of pods, rounded down, and allows at least one pod; 0 and `0%` allow none.
	Unavailable *intstr.IntOrString `json:"unavailable"` // nil means DefaultUnavailable
	// The minimum time between two moves of one workload.
	Pause time.Duration `json:"pause" min:"0" max:"24h0m0s"`
}

// InFlight is the number of moves that may be in flight at once. nil means any number, 0 none. [DefaultInFlight] is the
// default in a file.
type InFlight struct {
	// How many pods of one node may be in flight at the same time, each until its replacement is ready. With 0, no pod may move;
	// with `null`, there is no limit.
	PerNode *uint `json:"perNode,omitzero"`
	// The same limit for one namespace; `null` means no limit.
	PerNamespace *uint `json:"perNamespace,omitzero"`
	// The same limit for one workload, such as a Deployment.
	//
	//page:default no limit
	PerWorkload *uint `json:"perWorkload,omitzero"`
	// The same limit for the cluster; `null` means no limit.
	Total *uint `json:"total,omitzero"`
}

// DefaultInFlight returns the default of [Limits.InFlight]. It limits the damage if replacements no longer become
// ready: without it, [DefaultRate] moves 1,200 pods in the two minutes until the circuit breaker of the cluster opens.
// A hundred in flight do not delay pods that start within ten seconds. Half of them for one namespace leave room for
// others, and half of them for one node allow two nodes to drain in parallel.
func DefaultInFlight() InFlight {
	return InFlight{PerNode: new(uint(50)), PerNamespace: new(uint(50)), Total: new(uint(100))}
}

// DefaultUnavailable returns the default of [Limits.Unavailable]: the default of a rolling update of a Deployment.
func DefaultUnavailable() intstr.IntOrString { return intstr.FromString("25%") }

// MayBeUnavailable returns how many pods of a workload with that many replicas may be unavailable.
func (l Limits) MayBeUnavailable(replicas int) int {
	share := DefaultUnavailable()
	if l.Unavailable != nil {
		share = *l.Unavailable
	}
	if share.Type == intstr.Int {
		return share.IntValue()
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(&share, replicas, false)
	if err != nil || share.StrVal == "0%" {
		return 0 // Parse accepts nothing else
	}
	return max(n, 1)
}

// Any reports whether there is a limit within a window of time.
func (l Limits) Any() bool { return l.PerNode != nil || l.PerNamespace != nil || l.Total != nil }

// WithoutWindows returns the limits that do not depend on a window of time.
func (l Limits) WithoutWindows() Limits {
	l.PerNode, l.PerNamespace, l.Total = nil, nil, nil
	return l
}

// Over returns Window, or its default.
func (l Limits) Over() time.Duration {
	if l.Window == 0 {
		return DefaultWindow
	}
	return l.Window
}

// CircuitBreakers are the circuit breakers. The zero value has none.
type CircuitBreakers struct {
	Workload WorkloadBreaker `json:"workload" old:"loop"`
	Cluster  ClusterBreaker  `json:"cluster" old:"storm"`
}

// WorkloadBreaker is the circuit breaker of a workload. When pods return to a node that a strategy moved them off, the
// strategy leaves the workload there for Delay after the first return, and twice as long after each further one, at
// most MaxDelay. Delay 0 disables it.
type WorkloadBreaker struct {
	// How long Rehome leaves a workload alone on a node after one of its pods moved off the node and came back; the time doubles
	// with each further return. 0 disables the circuit breaker.
	Delay time.Duration `json:"delay" min:"0" max:"24h0m0s"`
	// The maximum of this time; not less than `delay`.
	MaxDelay time.Duration `json:"maxDelay" min:"0" max:"24h0m0s"`
}

// ClusterBreaker is the circuit breaker of the cluster: all moves stop while one of its conditions holds. 0 disables a
// condition.
type ClusterBreaker struct {
	// Nothing moves while this share of the nodes, and at least three nodes, are not ready or got a taint that repels pods in the
	// last ten minutes; nodes under [maintenance](maintenance.md) do not count. `0%` disables the condition.
	Nodes strict.Percent `json:"nodes"` // see ClusterBreakerMemory and ClusterBreakerLeast
	// Nothing moves while this many replacements have not become ready for `pendingFor`. 0 disables the condition.
	Pending uint32 `json:"pending"`
	// How long a replacement must have been waiting to count; more than 0.
	//
	//page:type duration, at most `24h`
	PendingFor time.Duration `json:"pendingFor"`
	// Nothing moves for half a minute when the API server failed this share of the latest 20 evictions, in at least two
	// namespaces. No pod of a namespace moves for half a minute when this share of its latest 20 evictions failed or were
	// permanently refused. `0%` disables the condition.
	Failures strict.Percent `json:"failures"` // see ClusterBreakerCalls and ClusterBreakerPause
}

// The parts of [ClusterBreaker] that no file sets.
const (
	// ClusterBreakerMemory is how long a ready node counts as bad after it got a taint. A permanent taint, such as the
	// taint of a pool, has no longer effect.
	ClusterBreakerMemory = 10 * time.Minute
	// ClusterBreakerLeast is the minimum number of bad nodes: one of three opens no circuit breaker.
	ClusterBreakerLeast = 3
	// ClusterBreakerCalls is the number of calls that count, and ClusterBreakerPause the pause after too many of them
	// failed.
	ClusterBreakerCalls = 20
	ClusterBreakerPause = 30 * time.Second
)

// DefaultCircuitBreakers returns the circuit breakers of a file that sets none. A pod that always returns is moved five
// times in the first hour: after 0, 2, 6, 14, and 30 minutes.
func DefaultCircuitBreakers() CircuitBreakers {
	return CircuitBreakers{
		Workload: WorkloadBreaker{Delay: 2 * time.Minute, MaxDelay: 4 * time.Hour},
		Cluster:  ClusterBreaker{Nodes: 30, Pending: 10, PendingFor: 2 * time.Minute, Failures: 50},
	}
}

// Validate checks the values; each error is a *[FieldError].
func (l WorkloadBreaker) Validate() error {
	if l.MaxDelay >= l.Delay || l.MaxDelay < 0 {
		return nil
	}
	return &FieldError{Field: "maxDelay", Value: l.MaxDelay, Reason: fmt.Sprintf("must be at least delay, %v", l.Delay),
		Right: fmt.Sprintf("it is %v when it is not given", DefaultCircuitBreakers().Workload.MaxDelay)}
}

// Validate checks the values; each error is a *[FieldError].
func (s ClusterBreaker) Validate() error {
	const most = 24 * time.Hour
	if s.PendingFor < 0 || s.PendingFor > most || s.PendingFor == 0 && s.Pending > 0 {
		return &FieldError{Field: "pendingFor", Value: s.PendingFor, Reason: fmt.Sprintf("must be greater than 0 and at most %v", most),
			Right: "pending: 0 switches the condition off"}
	}
	return nil
}
