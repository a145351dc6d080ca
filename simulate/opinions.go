package simulate

import (
	"cmp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/fit"
	"github.com/rehome-dev/rehome/fit/score"
	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// Opinion is the decision of one enabled strategy about one pod, as if it had the first turn.
type Opinion struct {
	Profile  string `json:"profile"`
	Strategy string `json:"strategy"`
	// Wants means that it wants to move the pod now. Otherwise Protected may report that it would if nothing protected
	// the pod.
	Wants     bool `json:"wants"`
	Protected bool `json:"protected,omitempty"`
	// Vain means that it would move the pod if the replacement had a better place. Only NodeFit, or nothing, protects
	// the pod.
	Vain bool `json:"vain,omitempty"`
	// Scope is KIND/KEY of the scope. Reason is why the strategy wants, or would want, to move the pod.
	Scope  string `json:"scope,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Due is the time when it will want to move the pod if the pod does not change, or zero for now or unknown.
	Due time.Time `json:"due,omitzero"`
	// Unknown is the reason why the strategy cannot be evaluated, or empty.
	Unknown string `json:"unknown,omitempty"`
}

// Guard has the protections of a pod by the rules of a profile.
type Guard struct {
	Profile string               `json:"profile"`
	Rules   []schemas.Protection `json:"rules"`
}

// About describes one pod.
type About struct {
	// Opinions are in the order of the policy, and Guards in the order of its profiles.
	Opinions []Opinion
	Guards   []Guard
	// Replacement predicts where the replacement would run, such as "would run on n2". It is empty if there would be
	// none.
	Replacement string
}

// Opinions evaluates every strategy of the policy for one pod among the objects, which it changes like [Run]. It
// executes nothing. It needs the same parts of c as Run.
//
// A strategy does not want to move a pod if the scheduler would place the replacement where it does not help. So each
// strategy that does not want to move the pod decides again, as if the replacement fit everywhere.
func Opinions(c Config, objects []metav1.Object, pod types.UID) (About, error) {
	r, err := filled(c, objects)
	if err != nil {
		return About{}, err
	}
	asked := r.pods[pod]
	if asked == nil {
		return About{}, nil
	}
	var about About
	if about.Guards, err = r.guards(asked); err != nil {
		return About{}, err
	}
	for _, p := range c.Policy.Profiles {
		for _, s := range p.Strategies {
			o, err := r.opinion(p.Name, s, asked)
			if err != nil {
				return About{}, err
			}
			about.Opinions = append(about.Opinions, o)
		}
	}
	about.Replacement, err = r.replacement(asked)
	return about, err
}

// Places returns for each pod among the objects what protects it, and where its replacement would run, without opinions. Of c it
// needs what [Run] needs.
func Places(c Config, objects []metav1.Object, pods []types.UID) ([]About, error) {
	r, err := filled(c, objects)
	if err != nil {
		return nil, err
	}
	all := make([]About, len(pods))
	for i, uid := range pods {
		p := r.pods[uid]
		if p == nil {
			continue
		}
		if all[i].Guards, err = r.guards(p); err != nil {
			return nil, err
		}
		if all[i].Replacement, err = r.replacement(p); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// replacement predicts where the replacement of a pod would run.
func (r *round) replacement(pod *corev1.Pod) (text string, err error) {
	if pod.Spec.NodeName == "" || len(pod.OwnerReferences) == 0 || schemas.Ended(pod) {
		return "", nil
	}
	scheduler, err := r.Policy.Scheduler.Load()
	if err != nil {
		return "", err
	}
	here := pod.Spec.NodeName
	var nodes []*corev1.Node
	r.offline.Cluster().Ask(pod, func(q *fit.Question) {
		nodes = score.Predict(q, scheduler, cluster.IsReady)
	})
	_, judged, why := r.offline.Cluster().Elsewhere(pod, policy.Targets{Signals: r.Policy.Signals})
	switch {
	case !judged:
		return "cannot be predicted: " + strings.TrimPrefix(why, "not judged: "), nil
	case slices.ContainsFunc(nodes, func(n *corev1.Node) bool { return n.Name == here }) && why != "":
		return "would run on " + here + " again: it " + why, nil
	case slices.ContainsFunc(nodes, func(n *corev1.Node) bool { return n.Name == here }):
		return "would run on " + here + " again", nil
	case len(nodes) == 0:
		return "would be Pending: it " + why, nil
	}
	return "would run on " + nodes[0].Name, nil
}

// GuardedPod is a pod with its protections by the rules of each profile.
type GuardedPod struct {
	Pod    *corev1.Pod
	Guards []Guard
}

// GuardsOn returns the pods of a node, by namespace and name. It needs the same parts of c as [Run].
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
		o.Unknown = "it runs outside of this program"
		return o, nil
	}
	now := r.now()
	scopes, err := r.offline.Payloads(profile, s.Name, now)
	if err != nil {
		return o, err
	}
	for _, scope := range scopes {
		all := pods(scope)
		i := slices.IndexFunc(all, func(p schemas.ScopedPod) bool { return p.Pod.UID == pod.UID })
		if i < 0 {
			continue
		}
		wanted, candidates, err := ask(r.Functions[at], scope)
		if err != nil {
			return o, err
		}
		if w := of(wanted, pod.UID); w != nil {
			return Opinion{Profile: profile, Strategy: s.Name, Wants: true, Scope: scope.About(), Reason: w.open.Reason}, nil
		}
		if o.Protected || o.Vain {
			continue
		}
		if w := of(candidates, pod.UID); w != nil {
			o.Vain = !slices.ContainsFunc(all[i].Protected, func(p schemas.Protection) bool { return p.Rule != policy.NodeFitRule })
			o.Protected, o.Scope, o.Reason = !o.Vain, scope.About(), w.open.Reason
			continue
		}
		ideal, err := r.Functions[at].EvaluateInPlace(fittingEverywhere(scope), scope.About())
		if err != nil {
			return o, err
		}
		if slices.ContainsFunc(ideal.Intents, func(i schemas.Intent) bool { return i.Pod.UID == pod.UID }) {
			o.Vain, o.Scope = true, scope.About()
		}
	}
	if o.Protected || o.Vain {
		return o, nil
	}
	o.Due, err = dueAfter(now, s, pod)
	return o, err
}

// dueAfter returns the time when the strategy will want to move the pod, if that is after now. Otherwise it returns the zero
// time.
func dueAfter(now time.Time, s policy.Enabled, pod *corev1.Pod) (time.Time, error) {
	rules, err := s.ScopeRules()
	if rules.Timed != nil {
		if due, ever := rules.Timed.Due(pod); ever && due.After(now) {
			return due.UTC(), err
		}
	}
	return time.Time{}, err
}

func of(entries []*entry, pod types.UID) *entry {
	for _, w := range entries {
		if w.open.Pod.UID == pod {
			return w
		}
	}
	return nil
}
