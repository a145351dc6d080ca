package policy

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas"
)

// DefaultRequestWait is the [Policy.EvictionRequests] of a file that asks for them and does not say how long to wait.
const DefaultRequestWait = 30 * time.Second

// longestRequestWait bounds how long a pod that nobody answers for can stay.
const longestRequestWait = time.Hour

// fileRequests is what a policy file says about EvictionRequests.
type fileRequests struct {
	Wait metav1.Duration `json:"wait"`
}

func (f *fileRequests) SetDefaults() { f.Wait.Duration = DefaultRequestWait }

func (f fileRequests) validate() error {
	var found Findings
	found.Above("wait", f.Wait, longestRequestWait)
	return found.Err()
}

// wait is how long an EvictionRequest may remain without an answer. 0: none is made.
func (f *fileRequests) wait() time.Duration {
	if f == nil {
		return 0
	}
	return f.Wait.Duration
}

// Requests says who may ask for what. The zero value lets nobody ask for anything.
type Requests struct {
	// MaxPods is how many pods one request may have, those included that are protected.
	MaxPods int
	Senders []Sender
}

// Sender is who may ask, by the name in the NATS subjects of the requests.
type Sender struct {
	Name string
	// Namespaces are those whose pods the sender may ask for, exact names or beginnings with a *. Empty: all.
	Namespaces []string
	// Actions are those that the sender may ask for. Empty: all.
	Actions []schemas.RequestAction
	// Nodes: the sender may ask for all pods of a node, of the namespaces that it may.
	Nodes bool
	// Override lists the rules of protection that the sender may override; [AnyRule] is every one.
	Override []string
	// PerMinute is how many requests are looked at in a minute, and Open how many may be open at once.
	PerMinute, Open int
}

// AnyRule stands for every rule in a [Sender].
const AnyRule = "*"

// The senders of a policy that names none.
const (
	AdminSender = "admin" // whoever may publish as it, by the permissions of the bus
	HTTPSender  = "http"  // the HTTP endpoint, which checks the rights of who asks there
)

const (
	defaultMaxPods   = 500
	defaultPerMinute = 10
	defaultOpen      = 20
	mostRequests     = 10_000 // a minute, or open: what the bus holds
)

// DefaultRequests are those of a policy that says nothing about requests: [AdminSender] and [HTTPSender] may everything, the
// second one more often, since it stands for many people.
func DefaultRequests() Requests {
	return Requests{MaxPods: defaultMaxPods, Senders: []Sender{
		{Name: AdminSender, Nodes: true, Override: []string{AnyRule}, PerMinute: defaultPerMinute, Open: defaultOpen},
		{Name: HTTPSender, Nodes: true, Override: []string{AnyRule}, PerMinute: 60, Open: 200},
	}}
}

// Asking are the requests of the policy, with the defaults if it says nothing about them.
func (p Policy) Asking() Requests {
	if p.Requests == nil {
		return DefaultRequests()
	}
	return *p.Requests
}

// Sender returns the sender of that name, and whether there is one.
func (r Requests) Sender(name string) (Sender, bool) {
	i := slices.IndexFunc(r.Senders, func(s Sender) bool { return s.Name == name })
	if i < 0 {
		return Sender{}, false
	}
	return r.Senders[i], true
}

// May says whether the sender may ask for the action.
func (s Sender) May(a schemas.RequestAction) bool {
	return len(s.Actions) == 0 || slices.Contains(s.Actions, a)
}

// MayIn says whether the sender may ask for pods of the namespace.
func (s Sender) MayIn(namespace string) bool {
	return len(s.Namespaces) == 0 || anyMatches(s.Namespaces, namespace)
}

// MayOverride says whether the sender may override the rule.
func (s Sender) MayOverride(rule string) bool {
	return slices.Contains(s.Override, rule) || slices.Contains(s.Override, AnyRule)
}

// Overridable lists the rules that a request can override: all but those that protect a pod whose eviction would achieve
// nothing.
func Overridable() []string {
	return []string{
		SystemCriticalPods, PriorityThresholdRule, FailedBarePods, PodsWithLocalStorage, DaemonSetPods, PodsWithPVC, PodsWithoutPDB,
		PodsWithResourceClaims, LabelSelectorRule, MinPodAgeRule, MinReplicasRule, PreferNoEvictionRule, SignalRule,
		NamespaceSelectorRule, EvictAnnotationFalseRule, NodeFitRule, NodeNotUsableRule,
	}
}

// fileAsking is what a policy file says about requests.
type fileAsking struct {
	MaxPods *int         `json:"maxPods,omitzero"`
	Senders []fileSender `json:"senders,omitzero"`
}

type fileSender struct {
	Name       string                  `json:"name"`
	Namespaces []string                `json:"namespaces,omitzero"`
	Actions    []schemas.RequestAction `json:"actions,omitzero"`
	Nodes      bool                    `json:"nodes,omitzero"`
	Override   []string                `json:"override,omitzero"`
	PerMinute  *int                    `json:"perMinute,omitzero"`
	Open       *int                    `json:"open,omitzero"`
}

func (f fileAsking) validate() error {
	var found Findings
	if n := f.MaxPods; n != nil && (*n < 1 || *n > schemas.MaxRequestPods) {
		found.Add("maxPods", *n, fmt.Sprintf("must be at least 1 and at most %d", schemas.MaxRequestPods), "")
	}
	seen := map[string]bool{}
	for i, s := range f.Senders {
		at := "senders" + Item(i)
		found.Join(at, s.validate())
		if seen[s.Name] && s.Name != "" {
			found.Add(at+".name", s.Name, "is there twice", "write one sender of that name")
		}
		seen[s.Name] = true
	}
	return found.Err()
}

func (s fileSender) validate() error {
	var found Findings
	if !schemas.IsRequestWord(s.Name) {
		found.Add("name", given(s.Name), missingOr(s.Name == "", "is not a name"), "write 1 to 63 of a-z, 0-9 and -")
	}
	found.Join("namespaces", validateNames(s.Namespaces))
	for i, a := range s.Actions {
		if !slices.Contains(schemas.RequestActions(), a) {
			found.Add("actions"+Item(i), a, "is not known", fmt.Sprintf("want one of %v", schemas.RequestActions()))
		}
	}
	for i, rule := range s.Override {
		if rule != AnyRule && !slices.Contains(Overridable(), rule) {
			found.Add("override"+Item(i), rule, "is not a rule that can be overridden",
				fmt.Sprintf("want %q or one of %v", AnyRule, Overridable()))
		}
	}
	for _, n := range []struct {
		field string
		value *int
	}{{"perMinute", s.PerMinute}, {"open", s.Open}} {
		if v := n.value; v != nil && (*v < 1 || *v > mostRequests) {
			found.Add(n.field, *v, fmt.Sprintf("must be at least 1 and at most %d", mostRequests), "")
		}
	}
	return found.Err()
}

// asking is what the file says, with defaults filled in. nil: it says nothing.
func (f *fileAsking) asking() *Requests {
	if f == nil {
		return nil
	}
	r := Requests{MaxPods: orElse(f.MaxPods, defaultMaxPods)}
	for _, s := range f.Senders {
		r.Senders = append(r.Senders, Sender{
			Name: s.Name, Namespaces: s.Namespaces, Actions: s.Actions, Nodes: s.Nodes, Override: s.Override,
			PerMinute: orElse(s.PerMinute, defaultPerMinute), Open: orElse(s.Open, defaultOpen),
		})
	}
	return &r
}

// written is what differs from the defaults, as it stands in a file. nil: nothing is said.
func (r *Requests) written() *fileAsking {
	if r == nil {
		return nil
	}
	f := fileAsking{MaxPods: unless(r.MaxPods, defaultMaxPods)}
	for _, s := range r.Senders {
		f.Senders = append(f.Senders, fileSender{
			Name: s.Name, Namespaces: s.Namespaces, Actions: s.Actions, Nodes: s.Nodes, Override: s.Override,
			PerMinute: unless(s.PerMinute, defaultPerMinute), Open: unless(s.Open, defaultOpen),
		})
	}
	return &f
}

// orElse is the number that is given, or another one.
func orElse(given *int, other int) int {
	if given == nil {
		return other
	}
	return *given
}

// unless is a number to write, nil if it is the default.
func unless(n, byDefault int) *int {
	if n == byDefault {
		return nil
	}
	return &n
}
