package policy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/policy/strict"
	"github.com/rehome-dev/rehome/schemas"
)

// Function is an entry of the section functions: a strategy outside of this process. It describes the strategy, unless
// it has the name of a built-in one.
type Function struct {
	// A [strategy that runs outside of Rehome](#functions): a new name of 1 to 63 letters, digits and hyphens, or the name of a
	// built-in strategy.
	Name string `json:"name" pattern:"strategy" required:"want 1 to 63 letters, digits and hyphens"`
	// The kind of its scopes; only for a new name.
	//
	//page:default required for a new name
	Scope schemas.ScopeKind `json:"scope" enum:"node,pod,workload,domain,spread,usage"`
	// The [kinds of changes](events.md) that trigger an evaluation, such as `node.labels`; only for a new name.
	//
	//page:default required for a new name
	Wakes []schemas.DeltaKind `json:"wakes" enum:"*"`
	// The extension point under which profiles enable it; only for a new name.
	//
	//page:default `deschedule`
	Point Point `json:"point" enum:"deschedule,balance"`
	// [Which moves come first](#the-priority-of-a-function); only for a new name.
	//
	//page:default depends on `point`
	Priority Priority `json:"priority" enum:"node,violation,balance"`
	// The strategy wants a new pod, not another node: a replacement on the same node is a success; only for a new name.
	RenewsPods bool `json:"renewsPods"`
	// Pods may come back to the node later, and the workload circuit breaker ignores it; only for a new name.
	MayReturn bool `json:"mayReturn"`
	// `elsewhere`: the scopes of a node list for each pod the other nodes where it fits; only for a new name.
	Facts []Fact `json:"facts" enum:"elsewhere"`
	// A sentence for users that describes which pods it moves; only for a new name.
	//
	//page:default none
	Summary string `json:"summary"`
	// Its default arguments; only for a new name.
	Args map[string]json.RawMessage `json:"args"`
	// A JSON Schema, 2020-12, of its arguments; only for a new name.
	//
	//page:default accepts everything
	ArgsSchema map[string]json.RawMessage `json:"argsSchema"`
	// The HTTP endpoint for its scopes; either this or `nats`.
	HTTP *FunctionHTTP `json:"http"`
	// The NATS subject for its scopes; either this or `http`.
	NATS *FunctionNATS `json:"nats"`
}

// Enums returns the valid values of fields.
func (Function) Enums() map[string][]string {
	return map[string][]string{"wakes": texts(schemas.DeltaKinds())}
}

// FunctionHTTP is the HTTP endpoint of a function.
type FunctionHTTP struct {
	// The URL for its scopes, `http` or `https`; Rehome sends them with POST.
	URL string `json:"url" required:"write one such as http://keep-off-spot.default.svc"`
	Questions
}

// FunctionNATS is the NATS subject of a function.
type FunctionNATS struct {
	// The NATS subject for its scopes; without wildcards, and not below `rehome.`, `$` or `_INBOX`.
	Subject string `json:"subject" pattern:"subject" required:"write one such as functions.keep-off-spot"`
	Questions
}

// Questions bound the requests to a function. A shorter timeout would pass before a busy network answers; during a
// longer one the cluster changes.
type Questions struct {
	// The timeout of one call.
	Timeout time.Duration `json:"timeout" min:"100ms" max:"10m0s"`
	// How many calls run in parallel.
	Parallel int `json:"parallel" min:"1" max:"256"`
}

// SetDefaults sets the defaults of an entry.
func (q *Questions) SetDefaults() { *q = Questions{10 * time.Second, DefaultOutsideParallel} }

// DefaultOutsideParallel is the default number of parallel requests.
const DefaultOutsideParallel = 8

// Outside is a strategy outside of this process.
type Outside struct {
	// Strategy is the strategy that profiles enable: a built-in one, or the one that the function describes.
	Strategy Strategy
	// URL is the address for its scopes. Empty means Subject.
	URL string
	// Subject is the NATS subject of its requests. Empty means URL.
	Subject string
	// Timeout is the time limit of one request.
	Timeout time.Duration
	// Parallel is the limit of parallel requests.
	Parallel int
}

// OutsideOf returns the strategy of that name, and whether it is outside of this process.
func (p Policy) OutsideOf(strategy string) (Outside, bool) {
	return first(p.Outside, func(o Outside) bool { return o.Strategy.Name == strategy })
}

// Declared reports whether the policy itself describes the strategy, which is then not a built-in one.
func (o Outside) Declared() bool {
	_, declared := o.Strategy.NewArgs().(interface{ own() *ownArguments })
	return declared
}

// functions resolves the functions of the file, and registers their strategies. A strategy with an error is registered,
// too, so that a profile that names it is not a second problem.
func (r *reader) functions(functions []Function) []Outside {
	builtIn := r.known
	r.known = slices.Clone(r.known)
	var all []Outside
	lines := map[string]int{}
	for i, f := range functions {
		path := "functions" + Item(i)
		if first, twice := lines[f.Name]; twice && f.Name != "" {
			r.wrong(path+".name", f.Name, fmt.Sprintf("is the name of the function in line %d", first), "keep one")
			continue
		}
		lines[f.Name] = strict.LineOf(r.root, path, 0)
		var o Outside
		if s, known := first(builtIn, func(s Strategy) bool { return s.Name == f.Name }); known {
			o.Strategy = s
			r.check(path, f.validateBuiltIn())
		} else {
			var err error
			o.Strategy, err = f.strategy()
			r.check(path, err)
			r.known = append(r.known, o.Strategy)
		}
		switch {
		case f.HTTP != nil && f.NATS != nil:
			r.wrong(path+".nats", nil, "cannot be used together with http", "keep one")
		case f.HTTP != nil:
			o.URL, o.Timeout, o.Parallel = f.HTTP.URL, f.HTTP.Timeout, f.HTTP.Parallel
		case f.NATS != nil:
			o.Subject, o.Timeout, o.Parallel = f.NATS.Subject, f.NATS.Timeout, f.NATS.Parallel
		default:
			r.wrong(path, nil, "does not say where it is asked", "add http: {url: http://HOST} or nats: {subject: SUBJECT}")
		}
		all = append(all, o)
	}
	return all
}

// validateBuiltIn rejects a description of a built-in strategy.
func (f Function) validateBuiltIn() error {
	name := f.Name
	f.Name, f.HTTP, f.NATS = "", nil, nil
	n, err := strict.Encode(f, Function{})
	if err != nil {
		return err
	}
	var found Findings
	for _, e := range strict.Entries(n) {
		right := "remove it"
		if e.Key == "args" {
			right = "write them in the pluginConfig of a profile"
		}
		found.Add(e.Key, nil, fmt.Sprintf("is not for %s, a built-in strategy that brings its own", name), right)
	}
	return found.Err()
}

// strategy returns the strategy that the function describes; each error is a *[FieldError].
func (f Function) strategy() (Strategy, error) {
	var found Findings
	if f.Name == EvictorName || f.Name == schemas.RequestStrategy || f.Name == schemas.MaintenanceStrategy {
		found.Add("name", f.Name, "is not a strategy", "choose another name")
	}
	if f.Scope == "" {
		found.Add("scope", nil, "is missing", "name the kind of its scopes, such as node")
	}
	if len(f.Wakes) == 0 {
		found.Add("wakes", nil, "is missing: no change would cause an evaluation",
			"name the deltas that can change its answer")
	}
	if f.Point != "" && f.Point != Deschedule && f.Point != Balance {
		f.Point = anyPoint
	}
	if slices.Contains(f.Facts, FactElsewhere) && f.Scope != schemas.NodeKind {
		found.Add("facts"+Item(slices.Index(f.Facts, FactElsewhere)), FactElsewhere,
			"is available only in scopes of the kind node", "remove it")
	}
	maps.DeleteFunc(f.Args, func(_ string, value json.RawMessage) bool { return value == nil }) // a null is no entry
	defaults := ownArguments{fields: f.Args}
	if f.ArgsSchema != nil {
		var err error
		defaults.schema, err = strict.NewSchema(f.ArgsSchema)
		found.Join("argsSchema", err)
	}
	if f.Args != nil {
		found.Join("args", defaults.schema.Validate(f.Args, strict.Part))
	}
	return Strategy{
		Name: f.Name, Point: cmp.Or(f.Point, Deschedule), Summary: f.Summary, Scope: f.Scope, Wakes: f.Wakes,
		Traits: Traits{
			Priority: cmp.Or(f.Priority, DefaultPriority(f.Point)), RenewsPods: f.RenewsPods, MayReturn: f.MayReturn,
			Facts: f.Facts, Opaque: true,
		},
		NewArgs: func() Args { return &ownArguments{defaults.fields, defaults.schema} },
	}, found.Err()
}

// anyPoint stands for an unknown extension point: the point where the strategy is enabled is no second problem.
const anyPoint Point = "?"

// Validate checks the URL of a function. Its errors never contain a URL with a password.
func (h FunctionHTTP) Validate() error {
	wrong := FieldError{Field: "url", Value: h.URL, Right: "write one such as http://keep-off-spot.default.svc"}
	u, err := url.Parse(h.URL)
	switch {
	case h.URL == "":
		return nil
	case err == nil && u.User != nil, err != nil && strings.Contains(h.URL, "@"):
		wrong.Value, wrong.Reason, wrong.Right = nil, "holds a user", "remove the part before the @"
	case err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https":
		wrong.Reason = "is not the URL of a server"
	case u.Fragment != "":
		wrong.Reason, wrong.Right = "has a fragment after a #, which is not sent to a server", "remove it"
	default:
		return nil
	}
	return &wrong
}

// Validate checks the subject of a function.
func (n FunctionNATS) Validate() error {
	first, _, _ := strings.Cut(n.Subject, ".")
	if first != schemas.Prefix && !strings.HasPrefix(first, "$") && !strings.HasPrefix(first, "_INBOX") {
		return nil
	}
	return &FieldError{Field: "subject", Value: n.Subject, Reason: fmt.Sprintf("begins with %s, which others use", first),
		Right: "write one such as functions.keep-off-spot"}
}

func texts[T ~string](values []T) []string {
	var all []string
	for _, v := range values {
		all = append(all, string(v))
	}
	return all
}

// ownArguments are the arguments of a strategy that the policy describes: any JSON object. It starts with the defaults;
// an object that is read over them replaces whole fields, and a null removes one. It implements the rules of every kind
// of scope.
type ownArguments struct {
	fields map[string]json.RawMessage
	schema *strict.Schema // nil accepts everything
}

// own distinguishes arguments of this type from others.
func (a *ownArguments) own() *ownArguments { return a }

// UnmarshalJSON reads an object over the existing fields.
func (a *ownArguments) UnmarshalJSON(data []byte) error {
	given := map[string]json.RawMessage{}
	if data = bytes.TrimSpace(data); len(data) == 0 || data[0] != '{' {
		return errors.New("want a map")
	}
	if err := json.Unmarshal(data, &given); err != nil {
		return err
	}
	all := map[string]json.RawMessage{}
	maps.Copy(all, a.fields) // the defaults belong to others, too
	for name, value := range given {
		if string(value) == "null" {
			delete(all, name)
		} else {
			all[name] = value
		}
	}
	a.fields = all
	return nil
}

// MarshalJSON writes the fields in the order of their names.
func (a *ownArguments) MarshalJSON() ([]byte, error) {
	if a.fields == nil {
		return []byte("{}"), nil
	}
	return json.Marshal(a.fields)
}

// Validate checks the fields against the schema, if there is one.
func (a *ownArguments) Validate() error { return a.schema.Validate(a.fields, strict.Whole) }

// Seeks is true for every pod of a strategy with the fact [FactElsewhere].
func (*ownArguments) Seeks(*corev1.Pod, *corev1.Node) bool { return true }

// Constraints returns the constraints of the pod that the scheduler enforces.
func (*ownArguments) Constraints(pod *corev1.Pod) []corev1.TopologySpreadConstraint {
	var found []corev1.TopologySpreadConstraint
	for _, c := range pod.Spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable == corev1.DoNotSchedule {
			found = append(found, c)
		}
	}
	return found
}

// NeedsRoom is true, so that the scope always contains the possible places of a pod.
func (*ownArguments) NeedsRoom() bool { return true }

// Resources returns the resources that every cluster has.
func (*ownArguments) Resources() []corev1.ResourceName {
	return []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods}
}

// Load returns the requests of pods.
func (*ownArguments) Load() Load { return Load{} }

// Sources returns all nodes, because only the strategy knows which of them are over-used.
func (*ownArguments) Sources(nodes []schemas.NodeUsage) []string {
	var all []string
	for _, n := range nodes {
		all = append(all, n.Name)
	}
	return all
}
