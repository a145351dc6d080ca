package policy

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rehome-dev/rehome/policy/strict"
)

// Rate is how fast pods are moved.
type Rate struct {
	// EvictionsPerSecond is the long-term mean.
	EvictionsPerSecond float64 `json:"evictionsPerSecond" above:"0"`
	// Burst is how many may be moved at once after a pause.
	Burst int `json:"burst" min:"1"`
	// PerNamespace is a rate that holds for each namespace by itself. nil: none.
	PerNamespace *NamespaceRate `json:"perNamespace,omitzero"`
}

// NamespaceRate is how fast pods of one namespace are moved. Its fields are the same as in [Rate].
type NamespaceRate struct {
	EvictionsPerSecond float64 `json:"evictionsPerSecond" above:"0"`
	Burst              int     `json:"burst" min:"1"`
}

// DefaultRate is the rate of a file that has none. Ten per second moves all pods of a full node, 110 by default in the
// kubelet, in about ten seconds, and is far below what an API server answers in parallel.
func DefaultRate() Rate { return Rate{EvictionsPerSecond: 10, Burst: 10} }

// SetDefaults fills in the defaults of a file that has a part of the section.
func (r *NamespaceRate) SetDefaults() {
	all := DefaultRate()
	*r = NamespaceRate{EvictionsPerSecond: all.EvictionsPerSecond, Burst: all.Burst}
}

// DefaultWindow is the [Limits.Window] of a file that has none. The descheduler counts anew in each cycle, every five
// minutes when it runs as a Deployment.
const DefaultWindow = 5 * time.Minute

// Limits are how many pods may be moved within a window of time, and at once. The zero value limits nothing but
// Unavailable.
type Limits struct {
	// PerNode, PerNamespace and Total bound the pods moved off one node, out of one namespace, and at all. nil: no limit.
	// 0: none is moved. In a file they are maxNoOfPodsToEvictPerNode and so on, as in the descheduler.
	PerNode      *uint `json:"-"`
	PerNamespace *uint `json:"-"`
	Total        *uint `json:"-"`
	// Window is how long a move counts. 0: [DefaultWindow].
	Window time.Duration `json:"window" above:"0" max:"24h0m0s"`
	// InFlight bounds the moves that have begun and are not settled, which a replacement that is ready ends.
	InFlight InFlight `json:"inFlight"`
	// Unavailable is how many pods of a workload that no PodDisruptionBudget selects may be unavailable at once, whatever
	// the cause: as many pods, or a percentage of its replicas, rounded down and at least one. nil: [DefaultUnavailable].
	Unavailable *intstr.IntOrString `json:"unavailable"`
	// Pause is the least time between the beginnings of two moves of one workload. 0: none.
	Pause time.Duration `json:"pause" min:"0" max:"24h0m0s"`
}

// InFlight is how many moves may be in flight at once. nil: any number. 0: none. [DefaultInFlight] is the default in a file.
type InFlight struct {
	PerNode      *uint `json:"perNode,omitzero"`
	PerNamespace *uint `json:"perNamespace,omitzero"`
	PerWorkload  *uint `json:"perWorkload,omitzero"`
	Total        *uint `json:"total,omitzero"`
}

// DefaultInFlight is the default of [Limits.InFlight]. It bounds the damage when replacements stop to become ready: without it,
// [DefaultRate] moves 1,200 pods in the two minutes until the circuit breaker of the cluster opens. A hundred in flight slow down
// nothing that starts within ten seconds. Half of them for one namespace leave the others room, and half of them for one node let
// two nodes drain beside each other.
func DefaultInFlight() InFlight {
	return InFlight{PerNode: new(uint(50)), PerNamespace: new(uint(50)), Total: new(uint(100))}
}

// DefaultUnavailable is the default of [Limits.Unavailable]: as much as a rolling update of a Deployment takes by default.
func DefaultUnavailable() intstr.IntOrString { return intstr.FromString("25%") }

// MayBeUnavailable is how many pods of a workload with so many replicas may be unavailable.
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
		return 0 // Parse lets nothing else through
	}
	return max(n, 1)
}

// Any says whether there is a limit within a window of time.
func (l Limits) Any() bool { return l.PerNode != nil || l.PerNamespace != nil || l.Total != nil }

// WithoutWindows returns the limits that do not depend on a window of time.
func (l Limits) WithoutWindows() Limits {
	l.PerNode, l.PerNamespace, l.Total = nil, nil, nil
	return l
}

// Over is Window with its default filled in.
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

// WorkloadBreaker is the circuit breaker of a workload. When pods come back to a node that a strategy moved them from, the
// workload stays there for Delay after the first return, doubled with each further one, at most MaxDelay. Delay 0 switches it
// off.
type WorkloadBreaker struct {
	Delay    time.Duration `json:"delay" min:"0" max:"24h0m0s"`
	MaxDelay time.Duration `json:"maxDelay" min:"0" max:"24h0m0s"`
}

// ClusterBreaker is the circuit breaker of the cluster: nothing is moved while one of its conditions holds. 0 switches a
// condition off.
type ClusterBreaker struct {
	// Nodes is the share of all nodes that went bad within [ClusterBreakerMemory]: they are not ready, or got a taint that keeps
	// pods away, and still have it. Below [ClusterBreakerLeast] nodes it never holds. Nodes under maintenance do not count.
	Nodes strict.Percent `json:"nodes"`
	// Pending is how many replacements have been unready for PendingFor or longer.
	Pending    uint32        `json:"pending"`
	PendingFor time.Duration `json:"pendingFor"`
	// Failures is the share of the latest [ClusterBreakerCalls] eviction calls that failed for other reasons than a budget.
	Failures strict.Percent `json:"failures"`
}

// The parts of [ClusterBreaker] that no file sets.
const (
	// ClusterBreakerMemory is how long a node that is ready counts as gone bad after it got a taint. A permanent taint, such
	// as the taint of a pool, stops nothing for longer.
	ClusterBreakerMemory = 10 * time.Minute
	// ClusterBreakerLeast is how many nodes have to be bad at least: one of three opens no circuit breaker.
	ClusterBreakerLeast = 3
	// ClusterBreakerCalls is the number of calls that count, and ClusterBreakerPause the pause after too many of them failed.
	ClusterBreakerCalls = 20
	ClusterBreakerPause = 30 * time.Second
)

// DefaultCircuitBreakers are the circuit breakers of a file that sets none. A pod that always comes back is moved five
// times in the first hour: after 0, 2, 6, 14 and 30 minutes.
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
