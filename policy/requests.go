package policy

import (
	"slices"
	"time"

	"github.com/rehome-dev/rehome/schemas"
)

// EvictionRequests says whether an EvictionRequest is made before a pod is evicted. The zero value makes none.
type EvictionRequests struct {
	// Wait is how long a request may remain without an answer before the pod is evicted.
	Wait time.Duration `json:"wait" above:"0" max:"1h0m0s"`
}

// SetDefaults fills in the defaults of a file that has the section.
func (e *EvictionRequests) SetDefaults() { e.Wait = 30 * time.Second }

// Requests are the senders that may make requests. The zero value has none.
type Requests struct {
	// MaxPods is how many pods one request may have, those included that are protected.
	MaxPods int      `json:"maxPods" min:"1" max:"1000"`
	Senders []Sender `json:"senders"`
}

// Sender may make requests under its name, which is a part of their NATS subjects.
type Sender struct {
	Name string `json:"name" pattern:"name" required:"write 1 to 63 of a-z, 0-9 and -"`
	// Namespaces are the namespaces of the pods that the sender may ask for, exact names or beginnings with a *. Empty: all.
	Namespaces []string `json:"namespaces" pattern:"namespace"`
	// Actions are the actions that the sender may ask for. Empty: all.
	Actions []schemas.RequestAction `json:"actions" enum:"*"`
	// Nodes: the sender may ask for all pods of a node, in its namespaces.
	Nodes bool `json:"nodes"`
	// Override lists the rules of protection that the sender may override; [AnyRule] is every one.
	Override []string `json:"override" enum:"*"`
	// PerMinute bounds the requests that are handled in a minute, and Open the open ones. The bus holds no more
	// than 10,000.
	PerMinute int `json:"perMinute" min:"1" max:"10000"`
	Open      int `json:"open" min:"1" max:"10000"`
}

// Enums lists the words of fields.
func (Sender) Enums() map[string][]string {
	return map[string][]string{"actions": texts(schemas.RequestActions()), "override": append([]string{AnyRule}, Overridable()...)}
}

// AnyRule stands for every rule in a [Sender].
const AnyRule = "*"

// The senders of a policy that names none.
const (
	AdminSender = "admin" // anyone who may publish as it, by the permissions of the bus
	HTTPSender  = "http"  // the HTTP endpoint, which checks the rights of its clients
)

// SetDefaults fills in the defaults of a file that has the section.
func (r *Requests) SetDefaults() { r.MaxPods = 500 }

// SetDefaults fills in the defaults of an entry.
func (s *Sender) SetDefaults() { s.PerMinute, s.Open = 10, 20 }

// DefaultRequests are the requests of a policy without the section: [AdminSender] and [HTTPSender] may do everything, the second
// one more often, since it stands for many people.
func DefaultRequests() Requests {
	return Requests{MaxPods: 500, Senders: []Sender{
		{Name: AdminSender, Nodes: true, Override: []string{AnyRule}, PerMinute: 10, Open: 20},
		{Name: HTTPSender, Nodes: true, Override: []string{AnyRule}, PerMinute: 60, Open: 200},
	}}
}

// Asking are the requests of the policy, or the defaults if it has no such section.
func (p Policy) Asking() Requests {
	if p.Requests == nil {
		return DefaultRequests()
	}
	return *p.Requests
}

// Sender returns the sender of that name, and whether there is one.
func (r Requests) Sender(name string) (Sender, bool) {
	return first(r.Senders, func(s Sender) bool { return s.Name == name })
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

// Overridable lists the rules that a request can override: all but the rules for pods whose eviction would achieve nothing.
func Overridable() []string {
	return []string{
		SystemCriticalPods, PriorityThresholdRule, FailedBarePods, PodsWithLocalStorage, DaemonSetPods, PodsWithPVC, PodsWithoutPDB,
		PodsWithResourceClaims, LabelSelectorRule, MinPodAgeRule, MinReplicasRule, PreferNoEvictionRule, SignalRule,
		NamespaceSelectorRule, EvictAnnotationFalseRule, NodeFitRule, NodeNotUsableRule,
	}
}

// Validate checks the values; each error is a *[FieldError].
func (r Requests) Validate() error {
	var found Findings
	for i, s := range r.Senders {
		if slices.ContainsFunc(r.Senders[:i], func(o Sender) bool { return o.Name == s.Name }) && s.Name != "" {
			found.Add("senders"+Item(i)+".name", s.Name, "is there twice", "write one sender of that name")
		}
	}
	return found.Err()
}
