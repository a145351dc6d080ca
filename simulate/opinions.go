package simulate

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// Opinion is what one enabled strategy says about one pod, by itself: as if no other had its turn before.
type Opinion struct {
	Profile  string `json:"profile"`
	Strategy string `json:"strategy"`
	// Wants: it wants the pod moved now. Else Protected may say that it would, if nothing protected the pod.
	Wants     bool `json:"wants"`
	Protected bool `json:"protected,omitempty"`
	// Scope is the KIND/KEY of what it was asked about, and Reason why it wants the pod moved, or would.
	Scope  string `json:"scope,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Due is when it is to want the pod moved unless the pod changes. Zero: at no time that is known, or now.
	Due time.Time `json:"due,omitzero"`
	// Unknown says why it could not be asked. Empty: it was.
	Unknown string `json:"unknown,omitempty"`
}

// Guard is what protects a pod by the rules of a profile. Without rules nothing does.
type Guard struct {
	Profile string               `json:"profile"`
	Rules   []schemas.Protection `json:"rules"`
}

// Opinions asks every strategy of the policy, in the order of the file, about one pod among the objects, which are changed
// as by [Run]. Nothing is carried out. Guards are those of all profiles. Of c it needs what Run needs.
func Opinions(c Config, objects []metav1.Object, pod types.UID) ([]Opinion, []Guard, error) {
	r, err := filled(c, objects)
	if err != nil {
		return nil, nil, err
	}
	asked := r.pods[pod]
	if asked == nil {
		return nil, nil, nil
	}
	guards, err := r.guards(asked)
	if err != nil {
		return nil, nil, err
	}
	var opinions []Opinion
	for _, p := range c.Policy.Profiles {
		for _, s := range p.Strategies {
			o, err := r.opinion(p.Name, s, asked)
			if err != nil {
				return nil, nil, err
			}
			opinions = append(opinions, o)
		}
	}
	return opinions, guards, nil
}

// GuardedPod is a pod and what protects it by the rules of each profile.
type GuardedPod struct {
	Pod    *corev1.Pod
	Guards []Guard
}

// GuardsOn returns the pods of a node, by namespace and name. Of c it needs what [Run] needs.
func GuardsOn(c Config, objects []metav1.Object, node string) ([]GuardedPod, error) {
	r, err := filled(c, objects)
	if err != nil {
		return nil, err
	}
	var all []GuardedPod
	for _, p := range r.pods {
		if p.Spec.NodeName != node {
			continue
		}
		guards, err := r.guards(p)
		if err != nil {
			return nil, err
		}
		all = append(all, GuardedPod{p, guards})
	}
	slices.SortFunc(all, func(a, b GuardedPod) int {
		return cmp.Or(cmp.Compare(a.Pod.Namespace, b.Pod.Namespace), cmp.Compare(a.Pod.Name, b.Pod.Name))
	})
	return all, nil
}

func (r *round) guards(pod *corev1.Pod) (guards []Guard, err error) {
	for _, p := range r.Policy.Profiles {
		rules, err := r.offline.Protects(p.Name, pod.Namespace, pod.Name, r.now())
		if err != nil {
			return nil, err
		}
		guards = append(guards, Guard{Profile: p.Name, Rules: append([]schemas.Protection{}, rules...)})
	}
	return guards, nil
}

func (r *round) opinion(profile string, s policy.Enabled, pod *corev1.Pod) (Opinion, error) {
	o := Opinion{Profile: profile, Strategy: s.Name}
	at := slices.IndexFunc(r.Functions, func(f functions.Function) bool { return f.Strategy.Name == s.Name })
	if at < 0 {
		o.Unknown = "it is asked outside of this program"
		return o, nil
	}
	now := r.now()
	scopes, err := r.offline.Payloads(profile, s.Name, now)
	if err != nil {
		return o, err
	}
	for _, scope := range scopes {
		if !slices.ContainsFunc(pods(scope), func(p schemas.ScopedPod) bool { return p.Pod.UID == pod.UID }) {
			continue
		}
		wanted, candidates, err := ask(r.Functions[at], scope)
		if err != nil {
			return o, err
		}
		if w := of(wanted, pod.UID); w != nil {
			o.Wants, o.Protected, o.Scope, o.Reason = true, false, scope.About(), w.open.Intent.Reason
			return o, nil
		}
		if w := of(candidates, pod.UID); w != nil && !o.Protected {
			o.Protected, o.Scope, o.Reason = true, scope.About(), w.open.Intent.Reason
		}
	}
	if o.Protected {
		return o, nil
	}
	rules, err := s.ScopeRules()
	if rules.Timed != nil {
		if due, ever := rules.Timed.Due(pod); ever && due.After(now) {
			o.Due = due.UTC()
		}
	}
	return o, err
}

func of(wishes []*wish, pod types.UID) *wish {
	for _, w := range wishes {
		if w.open.Intent.Pod.UID == pod {
			return w
		}
	}
	return nil
}
