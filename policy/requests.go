package policy

import (
	"slices"
	"time"

	"github.com/rehome-dev/rehome/schemas"
)

// EvictionRequests enables an EvictionRequest before a pod is evicted. The zero value makes none.
type EvictionRequests struct {
	// Rehome first creates an EvictionRequest for a pod, and evicts the pod if nothing responds within this time. Without
	// `evictionRequests` it creates none.
	Wait time.Duration `json:"wait" above:"0" max:"1h0m0s"`
}

// SetDefaults fills in the defaults of a file that has the section.
func (e *EvictionRequests) SetDefaults() { e.Wait = 30 * time.Second }

// Requests lists the senders that may make requests. The zero value has none.
type Requests struct {
	// The maximum number of pods in one [request](requests.md), including protected pods.
	MaxPods int `json:"maxPods" min:"1" max:"1000"`
	// The allowed senders. Without `requests`, they are `admin` and `http`.
	Senders []Sender `json:"senders"`
}

// Sender may make requests under its name, which is a part of their NATS subjects.
type Sender struct {
	// The name of an allowed sender, as in the NATS subject. Without `requests`, the senders are `admin` and `http`, with all
	// rights; with it, only the listed senders.
	Name string `json:"name" pattern:"name" required:"write 1 to 63 of a-z, 0-9 and -"`
	// The sender may request moves of pods in these namespaces; an entry that ends in `*` is a prefix.
	//
	//page:default all
	Namespaces []string `json:"namespaces" pattern:"namespace"`
	// The actions that the sender may request.
	//
	//page:default all
	Actions []schemas.RequestAction `json:"actions" enum:"*"`
	// The sender may request moves of all pods of a node, in the namespaces above; without `namespaces`, also
	// [maintenances](requests.md#maintenance-of-a-node).
	Nodes bool `json:"nodes"`
	// The [protection rules](#defaultevictor) that the sender may override, by their names in verdicts; `"*"` means all.
	Override []string `json:"override" enum:"*"`
	// How many requests of the sender Rehome handles per minute.
	PerMinute int `json:"perMinute" min:"1" max:"10000"`
	// How many requests of the sender may be open at once.
	Open int `json:"open" min:"1" max:"10000"` // the bus holds at most 10,000
}

// Enums returns the words of fields.
func (Sender) Enums() map[string][]string {
	return map[string][]string{"actions": texts(schemas.RequestActions()), "override": append([]string{AnyRule}, Overridable()...)}
}

// AnyRule stands for every rule in a [Sender].
const AnyRule = "*"

// The senders of a policy that names none.
const (
	AdminSender = "admin" // any client with the permission on the bus
	HTTPSender  = "http"  // the HTTP endpoint, which checks the rights of its clients
)

// SetDefaults fills in the defaults of a file that has the section.
func (r *Requests) SetDefaults() { r.MaxPods = 500 }

// SetDefaults fills in the defaults of an entry.
func (s *Sender) SetDefaults() { s.PerMinute, s.Open = 10, 20 }

// DefaultRequests returns the requests of a policy without the section: [AdminSender] and [HTTPSender] may do
// everything, the latter more often because it stands for many users.
func DefaultRequests() Requests {
	return Requests{MaxPods: 500, Senders: []Sender{
		{Name: AdminSender, Nodes: true, Override: []string{AnyRule}, PerMinute: 10, Open: 20},
		{Name: HTTPSender, Nodes: true, Override: []string{AnyRule}, PerMinute: 60, Open: 200},
	}}
}

// Asking returns the requests of the policy, or the defaults.
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

// May reports whether the sender may request the action.
func (s Sender) May(a schemas.RequestAction) bool {
	return len(s.Actions) == 0 || slices.Contains(s.Actions, a)
}

// MayIn reports whether the sender may request pods of the namespace.
func (s Sender) MayIn(namespace string) bool {
	return len(s.Namespaces) == 0 || anyMatches(s.Namespaces, namespace)
}

// MayOverride reports whether the sender may override the rule.
func (s Sender) MayOverride(rule string) bool {
	return slices.Contains(s.Override, rule) || slices.Contains(s.Override, AnyRule)
}

// Overridable returns the rules that a request can override: all except the rules for pods whose eviction would achieve
// nothing.
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
