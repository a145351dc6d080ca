package policy

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/rehome-dev/rehome/policy/strict"
)

// The versions and the kind of a policy file.
const (
	// Version is Rehome's version.
	Version = "rehome.dev/v1alpha1"
	// DeschedulerVersion is the version of kubernetes-sigs/descheduler. It lacks the fields of ownFields.
	DeschedulerVersion = "descheduler/v1alpha2"
	// OlderVersion is the descheduler's version before that: a map of strategies, each with params.
	OlderVersion = "descheduler/v1alpha1"
	Kind         = "DeschedulerPolicy"
)

// ownFields returns the fields that only [Version] has.
func ownFields() []string {
	return []string{
		"rate", "deltas", "signals", "limits", "circuitBreakers", "restart", "evictionRequests", "requests", "maintenance", "scheduler",
		"presets", "presetCustomizations", "functions",
	}
}

// file is the policy file: the sections of a Policy, and the sections that become profiles.
type file struct {
	// The version of the file.
	//
	//page:default required
	APIVersion string `json:"apiVersion"`
	// The kind of the file.
	//
	//page:default required
	Kind string `json:"kind"`
	Policy
	// The older form of `metricsProviders`.
	MetricsCollector metricsCollector `json:"metricsCollector"`
	// [Profiles of the OpenShift operator](presets.md).
	Presets []string `json:"presets"`
	// [The customizations of presets](presets.md#customizations).
	//
	//page:type object
	//page:default none
	PresetCustomizations Customizations `json:"presetCustomizations"`
	// The profiles: strategies that share one set of protections.
	Profiles []fileProfile `json:"profiles"`
}

//go:embed policy.schema.json
var schemaJSON []byte

// Schema returns the JSON Schema of the policy file. It is generated from the structs and their comments.
func Schema() []byte { return schemaJSON }

// Parse reads a policy file in YAML or JSON. name is the name of the file for messages; known are the built-in
// strategies.
//
// An error is of type [Problems] and lists all problems. The Policy is then zero.
func Parse(name string, data []byte, known []Strategy) (Policy, error) {
	r := reader{known: known, origins: map[string]origin{}}
	p := r.read(data)
	all := r.Unreadable
	for _, wrong := range r.Invalid {
		if wrong = r.placed(wrong); !r.Unread(wrong.Field) {
			all = append(all, wrong)
		}
	}
	if len(all) == 0 {
		p.Known = map[string]Traits{}
		for _, s := range r.known {
			p.Known[s.Name] = s.Traits
		}
		return p, nil
	}
	for i := range all {
		all[i] = r.placed(all[i])
		all[i].File = name
	}
	return Policy{}, all.InOrder()
}

// reader reads one file once.
type reader struct {
	strict.Decoder
	known   []Strategy
	root    *yaml.Node
	version string
	metrics Metrics
	origins map[string]origin // by path, for parts that other parts of the file produced
}

// origin is the path of the part of the file that produced a part of the policy. If whole is set, none of its parts are in the
// file.
type origin struct {
	path  string
	whole bool
}

// placed moves a problem to the origin of its field: the origin of the longest part of its path.
func (r *reader) placed(p Problem) Problem {
	for at := len(p.Field); at > 0; at-- {
		if from, moved := r.origins[p.Field[:at]]; moved && (at == len(p.Field) || strings.ContainsAny(p.Field[at-1:at+1], ".[")) {
			if p.Field = from.path + p.Field[at:]; from.whole {
				p.Field = from.path
			}
			p.Line = strict.LineOf(r.root, p.Field, r.root.Line)
			break
		}
	}
	return p
}

func (r *reader) read(data []byte) Policy {
	example := fmt.Sprintf("begin it with the lines apiVersion: %s and kind: %s", Version, Kind)
	if r.root = r.Document(data, example); r.root == nil || !r.readVersion() {
		return Policy{}
	}
	if r.version == OlderVersion {
		return r.older()
	}
	doc := file{Policy: Default()}
	r.into(r.root, &doc, "")
	p := doc.Policy
	p.Limits.PerNode, p.Limits.PerNamespace, p.Limits.Total = p.MaxPerNode, p.MaxPerNamespace, p.MaxTotal
	p.MaxPerNode, p.MaxPerNamespace, p.MaxTotal = nil, nil, nil
	if doc.MetricsCollector.Enabled {
		for i, m := range p.Metrics {
			if m.Source == LoadKubernetes {
				r.wrong(fmt.Sprintf("metricsProviders[%d].source", i), m.Source,
					"cannot be used together with metricsCollector.enabled, which has the same meaning", "remove metricsCollector")
			}
		}
		p.Metrics = append(Metrics{{Source: LoadKubernetes}}, p.Metrics...)
	}
	r.metrics = p.Metrics
	p.Outside = r.functions(doc.Functions)
	if r.version == Version { // else they were rejected
		p.Profiles = r.presets(doc, &p)
	}
	p.Profiles = append(p.Profiles, r.profiles(doc.Profiles, p.Presets)...)
	p.Maintenance.signals = p.Signals
	for i := range p.Profiles {
		p.Profiles[i].Evictor.signals = p.Signals
	}
	return p
}

// readVersion reads apiVersion and kind, and reports whether the rest of the file can be read: an unknown version has
// unknown fields.
func (r *reader) readVersion() bool {
	switch kind, given := r.top("kind"); {
	case !given:
		r.wrong("kind", nil, "is missing", "write kind: "+Kind)
	case strict.IsText(kind) && kind.Value != Kind: // anything but text is reported when the whole file is read
		r.wrong("kind", kind.Value, "is not a policy", "want "+Kind)
	}
	version, given := r.top("apiVersion")
	wanted := fmt.Sprintf("%s or %s", DeschedulerVersion, Version)
	r.version = DeschedulerVersion
	switch {
	case !given:
		r.wrong("apiVersion", nil, "is missing", "write apiVersion: "+wanted)
		return true
	case !strict.IsText(version):
		r.wrong("apiVersion", version.Value, "is not text", "want "+wanted)
		return false
	}
	switch r.version = version.Value; r.version {
	case OlderVersion, Version:
	case DeschedulerVersion:
		for _, field := range ownFields() {
			if _, given := r.top(field); given {
				r.wrong(field, nil, "is not part of "+DeschedulerVersion, "write apiVersion: "+Version)
			}
		}
	default:
		r.wrong("apiVersion", version.Value, "is not known", "want "+wanted)
		return false
	}
	return true
}

// top returns a value at the top of the file, and whether there is one.
func (r *reader) top(field string) (*yaml.Node, bool) {
	n, _ := strict.Child(r.root, field)
	return n, n != nil && !strict.IsNull(n)
}

// into decodes n, at path, into the target of a pointer.
func (r *reader) into(n *yaml.Node, to any, path string) {
	r.Decode(n, reflect.ValueOf(to).Elem(), strict.Place{Path: path, Line: strict.LineOf(r.root, path, r.root.Line)})
}

// check reports every error in err, whose fields are below path.
func (r *reader) check(path string, err error) {
	r.Check(r.root, strict.Place{Line: r.root.Line}, strict.Under(path, err))
}

// wrong reports one error. The arguments are the fields of [FieldError].
func (r *reader) wrong(path string, value any, reason, right string) {
	r.check(path, &FieldError{Value: value, Reason: reason, Right: right})
}

// arguments reads the arguments of a strategy: over its defaults, then validated, then as JSON.
func (r *reader) arguments(s Strategy, n *yaml.Node, path string) json.RawMessage {
	args := s.NewArgs()
	if n == nil || strict.IsNull(n) {
		n = &yaml.Node{Kind: yaml.MappingNode}
	}
	r.into(n, args, path)
	data, err := json.Marshal(args)
	r.check(path, err)
	if r.version != Version {
		r.check(path, patterns(data))
	}
	return data
}

// Format writes the policy as a YAML file of [Version] or [DeschedulerVersion]. Reading it gives the same policy, in
// which presets are profiles. It omits defaults, comments, and fields without effect.
//
// It fails if the policy contains something that the version does not have; each error is a *[FieldError].
func (p Policy) Format(version string) ([]byte, error) {
	var found Findings
	if version != Version && version != DeschedulerVersion {
		found.Add("apiVersion", version, "is not known", fmt.Sprintf("want %s or %s", Version, DeschedulerVersion))
		return nil, found.Err()
	}
	doc := file{APIVersion: version, Kind: Kind, Policy: p, Profiles: []fileProfile{}}
	doc.Maintenance.signals = Signals{}
	doc.MaxPerNode, doc.MaxPerNamespace, doc.MaxTotal = p.Limits.PerNode, p.Limits.PerNamespace, p.Limits.Total
	for _, profile := range p.Profiles {
		w, err := profile.file()
		if err != nil {
			return nil, fmt.Errorf("profile %s: %w", profile.Name, err)
		}
		doc.Profiles = append(doc.Profiles, w)
	}
	n, err := strict.Encode(doc, file{Policy: Default()})
	if err != nil {
		return nil, err
	}
	if version == DeschedulerVersion {
		for _, e := range strict.Entries(n) {
			if slices.Contains(ownFields(), e.Key) {
				found.Add(e.Key, nil, "is not part of "+DeschedulerVersion, "convert to "+Version)
			}
		}
		for _, profile := range p.Profiles {
			for _, s := range profile.Strategies {
				for _, e := range strict.FieldErrors(patterns(s.Args)) {
					found.Add(fmt.Sprintf("profiles[%s].pluginConfig[%s].args.%s", profile.Name, s.Name, e.Field), e.Value,
						"is a pattern, which is not part of "+DeschedulerVersion, "convert to "+Version)
				}
			}
		}
	}
	if err := found.Err(); err != nil {
		return nil, err
	}
	return strict.ToYAML(n)
}

// file returns the profile in the format of a file.
func (p Profile) file() (fileProfile, error) {
	w := fileProfile{Name: p.Name}
	evictor, err := strict.Encode(p.Evictor.args, EvictorArgs{})
	if err != nil {
		return w, fmt.Errorf("%s: %w", EvictorName, err)
	}
	if len(evictor.Content) > 0 {
		w.PluginConfig = append(w.PluginConfig, pluginConfig{EvictorName, evictor})
	}
	for _, s := range p.Strategies {
		args, err := s.changed()
		if err != nil {
			return w, fmt.Errorf("%s: %w", s.Name, err)
		}
		w.PluginConfig = append(w.PluginConfig, pluginConfig{s.Name, args})
		set := &w.Plugins.Deschedule
		if s.Point == Balance {
			set = &w.Plugins.Balance
		}
		set.Enabled = append(set.Enabled, s.Name)
	}
	return w, nil
}

// changed returns the arguments in the format of a file, or nil if they are the defaults. A default that they unset is
// a null.
func (e Enabled) changed() (*yaml.Node, error) {
	defaults, err := json.Marshal(e.NewArgs())
	if err != nil || bytes.Equal(defaults, e.Args) {
		return nil, err
	}
	n, err := strict.FromJSON(e.Args)
	if err != nil {
		return nil, err
	}
	is := strict.Object(e.Args)
	for _, name := range strict.Names(strict.Object(defaults)) {
		if _, set := is[name]; !set {
			n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name},
				&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"})
		}
	}
	return n, nil
}
