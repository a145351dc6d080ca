package actuator

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// Situation is everything the gates look at: the intent, and the cluster as it is now.
type Situation struct {
	Now  time.Time
	Open Open
	// Pod is the live pod of the intent's namespace and name. nil: there is none.
	Pod *corev1.Pod
	// Enabled: the policy has the intent's profile, with its strategy.
	Enabled bool
	// Protections are the rules of the profile that protect the pod now.
	Protections []schemas.Protection
}

// Objection is why an intent is not carried out.
type Objection struct {
	Outcome schemas.Outcome
	Reason  schemas.ReasonCode
	Message string
}

// Gate says whether something speaks against the intent. It is a pure function.
type Gate func(Situation) (Objection, bool)

// Gates are what an intent passes before its pod is evicted, in this order. The first objection is the verdict; a gate
// may rely on the ones before it.
func Gates() []Gate {
	return []Gate{
		notExpired,     // nothing stale is done
		enabled,        // the policy may have changed since the strategy verdictOn
		exists,         // the same pod, not another one of its name
		notTerminating, // it leaves by itself
		notEnded,       // a pod that ended by itself occupies nothing, unless just that is why it is to go
		notMoved,       // a decision about another node says nothing about this one
		notProtected,   // it may have become protected since the strategy verdictOn
	}
}

// ask returns the first objection, and whether there is one.
func ask(gates []Gate, s Situation) (Objection, bool) {
	for _, gate := range gates {
		if objection, objects := gate(s); objects {
			return objection, true
		}
	}
	return Objection{}, false
}

// expired says whether the intent's time is over: at the moment it expires, and after.
func expired(i schemas.Intent, now time.Time) bool { return !now.Before(i.Expires) }

func expiredMessage(i schemas.Intent) string {
	return "expired at " + clock(i.Expires) + " before its turn came"
}

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func notExpired(s Situation) (Objection, bool) {
	if !expired(s.Open.Intent, s.Now) {
		return Objection{}, false
	}
	return Objection{schemas.Expired, schemas.ReasonExpired, expiredMessage(s.Open.Intent)}, true
}

func enabled(s Situation) (Objection, bool) {
	if s.Enabled {
		return Objection{}, false
	}
	return Objection{schemas.Rejected, schemas.ReasonProfileUnknown,
		fmt.Sprintf("the policy has no profile %q with strategy %q", s.Open.Profile, s.Open.Strategy)}, true
}

func exists(s Situation) (Objection, bool) {
	switch want := s.Open.Intent.Pod; {
	case s.Pod == nil:
		return Objection{schemas.Rejected, schemas.ReasonPodGone, "the pod is gone"}, true
	case s.Pod.UID != want.UID:
		return Objection{schemas.Rejected, schemas.ReasonPodGone,
			fmt.Sprintf("the pod is gone; another one of its name has UID %s", s.Pod.UID)}, true
	}
	return Objection{}, false
}

func notTerminating(s Situation) (Objection, bool) {
	if s.Pod.DeletionTimestamp == nil {
		return Objection{}, false
	}
	return Objection{schemas.Rejected, schemas.ReasonPodTerminating,
		"the pod is being deleted, until " + clock(s.Pod.DeletionTimestamp.Time)}, true
}

func notEnded(s Situation) (Objection, bool) {
	if s.Open.Intent.Ended || !schemas.Ended(s.Pod) {
		return Objection{}, false
	}
	return Objection{schemas.Rejected, schemas.ReasonPodEnded,
		"the pod has " + strings.ToLower(string(s.Pod.Status.Phase))}, true
}

func notMoved(s Situation) (Objection, bool) {
	if s.Pod.Spec.NodeName == s.Open.Intent.Node {
		return Objection{}, false
	}
	return Objection{schemas.Rejected, schemas.ReasonPodMoved,
		fmt.Sprintf("the pod is on node %q, not on %q", s.Pod.Spec.NodeName, s.Open.Intent.Node)}, true
}

func notProtected(s Situation) (Objection, bool) {
	if len(s.Protections) == 0 {
		return Objection{}, false
	}
	rules := make([]string, len(s.Protections))
	for i, p := range s.Protections {
		rules[i] = p.Rule + ": " + p.Detail
	}
	if len(s.Protections) == 1 && s.Protections[0].Rule == policy.NodeFitRule {
		// There was room on another node when the strategy decided, and there may be again: it decides anew.
		return Objection{schemas.Deferred, schemas.ReasonOutdated, rules[0]}, true
	}
	return Objection{schemas.Rejected, schemas.ReasonProtected, strings.Join(rules, "; ")}, true
}
