package actuator

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// Situation is everything the gates look at: the intent, and the cluster as it is now.
type Situation struct {
	Now    time.Time
	Intent Intent
	// Pod is the live pod of the intent's namespace and name. nil: there is none.
	Pod *corev1.Pod
	// Enabled: the policy has the intent's profile, with its strategy.
	Enabled bool
	// Protections are the rules of the profile that protect the pod now.
	Protections []schemas.Protection
}

// Rejection is why an intent is not executed, now or at all.
type Rejection struct {
	Outcome schemas.Outcome
	Reason  schemas.ReasonCode
	Message string
	// Blockers are the objects to wait for.
	Blockers []schemas.ObjectRef
}

// Gate returns a rejection, and whether there is one. It is a pure function.
type Gate func(Situation) (Rejection, bool)

// Gates returns the gates that an intent passes before its pod is moved, in order. The first rejection is the verdict; a gate
// may rely on the ones before it.
func Gates() []Gate {
	return []Gate{
		notExpired,     // nothing stale is done
		enabled,        // the policy may have changed since the strategy decided
		exists,         // the same pod, not another one of its name
		notTerminating, // it leaves by itself
		notEnded,       // a pod that has ended occupies nothing, unless the strategy removes such pods
		notMoved,       // a decision about another node says nothing about this one
		notProtected,   // it may have become protected since the strategy decided
	}
}

// judge asks the gates about an intent and its live pod, nil when there is none, and then reserves capacity for its replacement. It
// returns the first rejection, and whether there is one.
func (a *Actuator) judge(i Intent, pod *corev1.Pod, now time.Time) (Rejection, bool) {
	p := a.policy.Load()
	profile, ok := enables(p, i)
	rules := profile.EvictorFor(i.Strategy)
	s := Situation{Now: now, Intent: i, Pod: pod, Enabled: ok}
	switch {
	case !ok || pod == nil:
	case i.Strategy == schemas.MaintenanceStrategy:
		rules = policy.Evictor{}
		s.Protections = p.Maintenance.Protects(pod, now)
	default:
		but := append(slices.Clone(i.asked().Override), policy.NodeFitRule) // reserve asks that
		s.Protections = rules.ProtectsBut(but, pod, now, a.cfg.Facts)
	}
	for _, gate := range Gates() {
		if r, rejected := gate(s); rejected {
			return r, true
		}
	}
	if a.cfg.Capacity == nil || !p.NeedsCapacity() {
		return Rejection{}, false
	}
	return Reserve(a.cfg.Capacity, rules, i.asked().Override, pod)
}

// Capacity reserves capacity for the replacements of pods, such as [cluster.Cache].
type Capacity interface {
	// Reserve reserves capacity for the replacement of a pod, on another node that is ready and that nodes selects, nil all of
	// them. If there is none, why says so, and by names what may free some. judged is false if the pod cannot be judged.
	Reserve(pod *corev1.Pod, nodes labels.Selector) (fits, judged bool, why string, by []schemas.ObjectRef)
	// ReserveMoved reserves capacity for the replacement of a pod that was moved already.
	ReserveMoved(pod types.UID) bool
	// Release ends a reservation. Without one it does nothing.
	Release(pod types.UID)
}

// Reserve reserves capacity for the replacement of a pod that passed the gates. It returns a rejection, and whether there is one, if
// there is no capacity and the rules ask for it.
func Reserve(c Capacity, rules policy.Evictor, overridden []string, pod *corev1.Pod) (Rejection, bool) {
	holds, nodes := rules.NodeFit()
	if holds = holds && !slices.Contains(overridden, policy.NodeFitRule); !holds {
		nodes = nil
	}
	fits, judged, why, by := c.Reserve(pod, nodes)
	if !holds || !rules.Refuses(fits, judged) {
		return Rejection{}, false
	}
	if len(by) > 0 {
		names := make([]string, len(by))
		for i, p := range by {
			names[i] = p.Namespace + "/" + p.Name
		}
		why += ", while capacity is reserved for the replacements of " + strings.Join(names, ", ")
	}
	return Rejection{schemas.Deferred, schemas.ReasonNodeFit, policy.NodeFitRule + ": " + why, by}, true
}

// enables returns the profile of an intent, and whether the policy has it with the intent's strategy. Requests may name every
// profile, and maintenances need none.
func enables(p *policy.Policy, i Intent) (policy.Profile, bool) {
	profile, ok := p.Profile(i.Profile)
	switch i.Strategy {
	case schemas.RequestStrategy:
		return profile, ok
	case schemas.MaintenanceStrategy:
		return profile, true
	}
	return profile, ok && slices.ContainsFunc(profile.Strategies, func(s policy.Enabled) bool { return s.Name == i.Strategy })
}

func rejected(reason schemas.ReasonCode, format string, args ...any) (Rejection, bool) {
	return Rejection{Outcome: schemas.Rejected, Reason: reason, Message: fmt.Sprintf(format, args...)}, true
}

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func notExpired(s Situation) (Rejection, bool) {
	if !s.Intent.expired(s.Now) {
		return Rejection{}, false
	}
	message := "expired at " + clock(s.Intent.Expires) + " before its turn came"
	return Rejection{Outcome: schemas.Expired, Reason: schemas.ReasonExpired, Message: message}, true
}

func enabled(s Situation) (Rejection, bool) {
	if s.Enabled {
		return Rejection{}, false
	}
	return rejected(schemas.ReasonProfileUnknown, "the policy has no profile %q with strategy %q",
		s.Intent.Profile, s.Intent.Strategy)
}

func exists(s Situation) (Rejection, bool) {
	switch {
	case s.Pod == nil:
		return rejected(schemas.ReasonPodGone, "the pod is gone")
	case s.Pod.UID != s.Intent.Pod.UID:
		return rejected(schemas.ReasonPodGone, "the pod is gone; another one of its name has UID %s", s.Pod.UID)
	}
	return Rejection{}, false
}

func notTerminating(s Situation) (Rejection, bool) {
	if s.Pod.DeletionTimestamp == nil {
		return Rejection{}, false
	}
	return rejected(schemas.ReasonPodTerminating, "the pod is being deleted, until %s", clock(s.Pod.DeletionTimestamp.Time))
}

func notEnded(s Situation) (Rejection, bool) {
	if s.Intent.Ended || !schemas.Ended(s.Pod) {
		return Rejection{}, false
	}
	return rejected(schemas.ReasonPodEnded, "the pod has %s", strings.ToLower(string(s.Pod.Status.Phase)))
}

func notMoved(s Situation) (Rejection, bool) {
	if s.Pod.Spec.NodeName == s.Intent.Node {
		return Rejection{}, false
	}
	return rejected(schemas.ReasonPodMoved, "the pod is on node %q, not on %q", s.Pod.Spec.NodeName, s.Intent.Node)
}

func notProtected(s Situation) (Rejection, bool) {
	if len(s.Protections) == 0 {
		return Rejection{}, false
	}
	rules := make([]string, len(s.Protections))
	for i, p := range s.Protections {
		rules[i] = p.Rule + ": " + p.Detail
	}
	return rejected(schemas.ReasonProtected, "%s", strings.Join(rules, "; "))
}
