package policy

import (
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rehome-dev/rehome/policy/strict"
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

// fileLimits is what only OwnVersion says about limits.
type fileLimits struct {
	Window      *metav1.Duration    `json:"window,omitzero"`
	InFlight    InFlight            `json:"inFlight,omitzero"`
	Unavailable *intstr.IntOrString `json:"unavailable,omitzero"`
	Pause       metav1.Duration     `json:"pause,omitzero"`
}

func (f fileLimits) validate() error {
	var found Findings
	if f.Window != nil {
		found.Above("window", *f.Window, strict.Longest)
	}
	if f.Unavailable != nil {
		found.Join("unavailable", validateUnavailable(*f.Unavailable))
	}
	found.From0("pause", f.Pause)
	return found.Err()
}

func validateUnavailable(u intstr.IntOrString) error {
	var found Findings
	share, isShare := strict.ParsePercent(u.StrVal)
	_, notNumber := strconv.Atoi(u.StrVal)
	switch {
	case u.Type == intstr.Int && u.IntVal < 0:
		found.Add("", u.IntVal, "must not be negative", "")
	case u.Type == intstr.Int:
	case isShare:
		found.Share("", strict.Percent(share))
	case notNumber == nil:
		found.Add("", u.StrVal, "is text and no percentage", "write it without quotes: "+u.StrVal)
	default:
		found.Add("", u.StrVal, "is neither a whole number nor a percentage", `write how many pods, or a share such as "25%"`)
	}
	return found.Err()
}

// limits is what the file says about limits, all of it together.
func (f file) limits() Limits {
	l := Limits{
		PerNode: f.MaxNoOfPodsToEvictPerNode, PerNamespace: f.MaxNoOfPodsToEvictPerNamespace, Total: f.MaxNoOfPodsToEvictTotal,
		InFlight: f.Limits.InFlight, Unavailable: f.Limits.Unavailable, Pause: f.Limits.Pause.Duration,
	}
	if f.Limits.Window != nil {
		l.Window = f.Limits.Window.Duration
	}
	if l.Unavailable != nil && l.Unavailable.Type == intstr.String {
		share, _ := strict.ParsePercent(l.Unavailable.StrVal)
		l.Unavailable = new(intstr.FromString(strict.Percent(share).String())) // 025% is 25%, and 00% is 0%
	}
	return l
}

// written is the part of the limits that only OwnVersion has, as it stands in a file. nil: there is none.
func (l Limits) written() *fileLimits {
	f := fileLimits{InFlight: l.InFlight, Unavailable: l.Unavailable, Pause: metav1.Duration{Duration: l.Pause}}
	if l.Window != 0 {
		f.Window = &metav1.Duration{Duration: l.Window}
	}
	if f == (fileLimits{}) {
		return nil
	}
	return &f
}

// Rate is how fast pods are moved.
type Rate struct {
	// EvictionsPerSecond is the long-term mean, greater than 0.
	EvictionsPerSecond float64 `json:"evictionsPerSecond"`
	// Burst is how many may be moved at once after a pause, at least 1.
	Burst int `json:"burst"`
	// PerNamespace is a rate that holds for each namespace by itself. nil: none.
	PerNamespace *NamespaceRate `json:"perNamespace,omitzero"`
}

// NamespaceRate is how fast pods of one namespace are moved. Its fields are those of [Rate].
type NamespaceRate struct {
	EvictionsPerSecond float64 `json:"evictionsPerSecond"`
	Burst              int     `json:"burst"`
}

// DefaultRate is what a file that says nothing gets. Ten a second moves all pods of a full node, 110 by default in the
// kubelet, in about ten seconds, and is far below what an API server answers in parallel.
func DefaultRate() Rate { return Rate{EvictionsPerSecond: 10, Burst: 10} }

// setDefaults makes what the file does not say about a namespace that of [DefaultRate].
func (r *NamespaceRate) SetDefaults() {
	all := DefaultRate()
	*r = NamespaceRate{EvictionsPerSecond: all.EvictionsPerSecond, Burst: all.Burst}
}

// Validate says what is wrong with the rate; each error in it is a *[FieldError].
func (r Rate) Validate() error {
	var found Findings
	found.Join("", NamespaceRate{r.EvictionsPerSecond, r.Burst}.Validate())
	if r.PerNamespace != nil {
		found.Join("perNamespace", r.PerNamespace.Validate())
	}
	return found.Err()
}

// Validate says what is wrong with the rate; each error in it is a *[FieldError].
func (r NamespaceRate) Validate() error {
	var found Findings
	if !(r.EvictionsPerSecond > 0) {
		found.Add("evictionsPerSecond", r.EvictionsPerSecond, "must be greater than 0", "")
	}
	if r.Burst < 1 {
		found.Add("burst", r.Burst, "must be at least 1", "")
	}
	return found.Err()
}

// Brakes stop moving what does not get better by being moved.
type Brakes struct {
	Loop  Loop
	Storm Storm
}

// Loop is the loop breaker: a workload whose pods come back to a node that a strategy moved them from is left alone there,
// for Delay after the first return, doubled with each further one, at most MaxDelay. Delay 0 switches it off.
type Loop struct {
	Delay, MaxDelay time.Duration
}

// Storm is the storm brake: nothing is moved while one of its conditions holds. 0 switches a condition off.
type Storm struct {
	// Nodes is the share of all nodes, in percent, that went bad within [StormMemory]: they are not ready, or got a taint
	// that keeps pods away, and still have it. Below [StormLeast] nodes it never holds. Those that a maintenance holds are none of
	// them.
	Nodes int
	// Pending is how many replacements have been waiting for PendingFor or longer to become ready.
	Pending    int
	PendingFor time.Duration
	// Failures is the share of the latest [StormCalls] eviction calls, in percent, that failed for other reasons than a
	// budget.
	Failures int
}

// What the storm brake goes by that no file says.
const (
	// StormMemory is how long a node that is ready counts as gone bad after it got a taint. A taint that was put there for
	// good, such as that of a pool, stops nothing for longer.
	StormMemory = 10 * time.Minute
	// StormLeast is how many nodes have to be bad at least: one of three is not a storm.
	StormLeast = 3
	// StormCalls is how many calls are looked at, and StormPause how long nothing is tried when too many of them failed.
	StormCalls = 20
	StormPause = 30 * time.Second
)

// DefaultBrakes is what a file that says nothing gets. A pod that always comes back is moved five times in the first hour:
// after 0, 2, 6, 14 and 30 minutes.
func DefaultBrakes() Brakes {
	return Brakes{
		Loop:  Loop{Delay: 2 * time.Minute, MaxDelay: 4 * time.Hour},
		Storm: Storm{Nodes: 30, Pending: 10, PendingFor: 2 * time.Minute, Failures: 50},
	}
}

// fileBrakes is what a policy file says about brakes. What it does not say is as [DefaultBrakes] have it.
type fileBrakes struct {
	Loop  *fileLoop  `json:"loop,omitzero"`
	Storm *fileStorm `json:"storm,omitzero"`
}

type fileLoop struct {
	Delay    metav1.Duration `json:"delay"`
	MaxDelay metav1.Duration `json:"maxDelay"`
}

type fileStorm struct {
	Nodes      strict.Percent  `json:"nodes"`
	Pending    uint32          `json:"pending"`
	PendingFor metav1.Duration `json:"pendingFor"`
	Failures   strict.Percent  `json:"failures"`
}

func (f *fileLoop) SetDefaults() { *f = DefaultBrakes().Loop.written() }

func (f *fileStorm) SetDefaults() { *f = DefaultBrakes().Storm.written() }

func (f fileBrakes) validate() error {
	var found Findings
	if f.Loop != nil {
		found.Join("loop", f.Loop.validate())
	}
	if f.Storm != nil {
		found.Join("storm", f.Storm.validate())
	}
	return found.Err()
}

func (f fileLoop) validate() error {
	var found Findings
	found.From0("delay", f.Delay)
	found.From0("maxDelay", f.MaxDelay)
	if len(found) == 0 && f.MaxDelay.Duration < f.Delay.Duration {
		found.Add("maxDelay", f.MaxDelay, fmt.Sprintf("must be at least delay, %v", f.Delay.Duration),
			fmt.Sprintf("it is %v when it is not given", DefaultBrakes().Loop.MaxDelay))
	}
	return found.Err()
}

func (f fileStorm) validate() error {
	var found Findings
	found.Share("nodes", f.Nodes)
	if f.Pending == 0 {
		found.From0("pendingFor", f.PendingFor)
	} else if f.PendingFor.Duration <= 0 || f.PendingFor.Duration > strict.Longest {
		found.Add("pendingFor", f.PendingFor, "must be greater than 0 and at most "+strict.Longest.String(),
			"pending: 0 switches the condition off")
	}
	found.Share("failures", f.Failures)
	return found.Err()
}

// brakes is what the file says, over the defaults.
func (f fileBrakes) brakes() Brakes {
	b := DefaultBrakes()
	if l := f.Loop; l != nil {
		b.Loop = Loop{Delay: l.Delay.Duration, MaxDelay: l.MaxDelay.Duration}
	}
	if s := f.Storm; s != nil {
		b.Storm = Storm{
			Nodes: int(s.Nodes), Pending: int(s.Pending), PendingFor: s.PendingFor.Duration, Failures: int(s.Failures),
		}
	}
	return b
}

// written is what differs from the defaults, as it stands in a file. nil: nothing.
func (b Brakes) written() *fileBrakes {
	var f fileBrakes
	if b.Loop != DefaultBrakes().Loop {
		f.Loop = new(b.Loop.written())
	}
	if b.Storm != DefaultBrakes().Storm {
		f.Storm = new(b.Storm.written())
	}
	if f == (fileBrakes{}) {
		return nil
	}
	return &f
}

func (l Loop) written() fileLoop {
	return fileLoop{Delay: metav1.Duration{Duration: l.Delay}, MaxDelay: metav1.Duration{Duration: l.MaxDelay}}
}

func (s Storm) written() fileStorm {
	return fileStorm{
		Nodes: strict.Percent(s.Nodes), Pending: uint32(s.Pending), PendingFor: metav1.Duration{Duration: s.PendingFor},
		Failures: strict.Percent(s.Failures),
	}
}
