package policy

import (
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// DefaultWindow is the [Limits.Window] of a file that says nothing. The peer counts anew in each of its cycles, which come
// every five minutes where it runs on as a Deployment.
const DefaultWindow = 5 * time.Minute

// Limits are how many pods may be moved within a window of time, and at once. The zero value limits nothing but
// Unavailable.
type Limits struct {
	// PerNode, PerNamespace and Total bound the pods moved off one node, out of one namespace, and at all. nil: no limit.
	// 0: none is moved.
	PerNode, PerNamespace, Total *uint
	// Window is how long a move counts. 0: [DefaultWindow].
	Window time.Duration
	// InFlight bounds the moves that have begun and are not settled, which a replacement that is ready ends.
	InFlight InFlight
	// Unavailable is how many pods of a workload that no PodDisruptionBudget selects may be unavailable at once, whatever
	// the cause: as many pods, or a percentage of what it wants, rounded down and at least one. nil: [DefaultUnavailable].
	Unavailable *intstr.IntOrString
	// Pause is the least time between the beginnings of two moves of one workload. 0: none.
	Pause time.Duration
}

// InFlight is how many moves may be in flight at once. nil: any number. 0: none.
type InFlight struct {
	PerNode      *uint `json:"perNode,omitzero"`
	PerNamespace *uint `json:"perNamespace,omitzero"`
	PerWorkload  *uint `json:"perWorkload,omitzero"`
	Total        *uint `json:"total,omitzero"`
}

// DefaultUnavailable is what a file that says nothing gets: as much as a Deployment's own rolling update takes by default.
func DefaultUnavailable() intstr.IntOrString { return intstr.FromString("25%") }

// MayBeUnavailable is how many pods of a workload that wants so many may be unavailable.
func (l Limits) MayBeUnavailable(wanted int) int {
	share := DefaultUnavailable()
	if l.Unavailable != nil {
		share = *l.Unavailable
	}
	if share.Type == intstr.Int {
		return share.IntValue()
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(&share, wanted, false)
	if err != nil || share.StrVal == "0%" {
		return 0 // Parse lets nothing else through
	}
	return max(n, 1)
}

// Any says whether there is a limit within a window of time.
func (l Limits) Any() bool { return l.PerNode != nil || l.PerNamespace != nil || l.Total != nil }

// Over is Window with its default filled in.
func (l Limits) Over() time.Duration {
	if l.Window == 0 {
		return DefaultWindow
	}
	return l.Window
}
