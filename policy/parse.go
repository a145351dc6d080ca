package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rehome-dev/rehome/policy/openshift"
	"github.com/rehome-dev/rehome/policy/strict"
)

// Parse reads a policy file in YAML or JSON. file is its name for messages; known are the built-in strategies. The file may
// name them and those that it declares itself.
//
// The error, if there is one, is of type [Problems] and lists everything that is wrong. The Policy is then zero.
func Parse(file string, data []byte, known []Strategy) (Policy, error) {
	r := reader{known: known}
	p := r.read(data)
	all := append(r.Problems, r.found...)
	if len(all) == 0 {
		p.Known = map[string]Traits{}
		for _, s := range r.known {
			p.Known[s.Name] = s.Traits
		}
		return p, nil
	}
	for i := range all {
		all[i].File = file
	}
	return Policy{}, all.InOrder()
}

// reader is one reading of one file. What the decoder could not read is in problems; what was read and is wrong is in
// found.
type reader struct {
	strict.Decoder
	known []Strategy
	root  *yaml.Node
	found Problems
	// isOlder: the file is one of OlderVersion. isOwn: of OwnVersion.
	isOlder, isOwn bool
	metrics        Metrics
}

func (r *reader) read(data []byte) Policy {
	if r.root = r.document(data); r.root == nil || !r.version() {
		return Policy{}
	}
	if r.isOlder {
		return r.older()
	}
	doc := file{Rate: DefaultRate(), Deltas: DeltasNeeded}
	r.into(r.root, &doc, "")
	r.check("", doc.validate())
	p := Policy{
		NodeSelector: doc.NodeSelector, GracePeriodSeconds: doc.GracePeriodSeconds, Rate: doc.Rate,
		Limits: doc.limits(), FailureEvents: doc.EvictionFailureEventNotification, Metrics: doc.metrics(),
		Deltas: doc.Deltas, Signals: doc.Signals.signals(),
		Brakes: doc.Brakes.brakes(), Restart: doc.Restart.restart(), EvictionRequests: doc.EvictionRequests.wait(),
		Requests: doc.Requests.asking(), Maintenance: doc.Maintenance.maintenance(doc.Signals.signals()),
	}
	r.metrics = p.Metrics
	p.Outside = r.functions(doc.Functions)
	if r.isOwn { // else they were refused
		r.presets(doc, &p)
	}
	p.Profiles = append(p.Profiles, r.profiles(doc.Profiles, p.Presets)...)
	for i := range p.Profiles {
		p.Profiles[i].Evictor.signals = p.Signals
	}
	return p
}

// document returns the one map that the file is, or nil. Empty documents, such as one behind a last ---, do not count.
func (r *reader) document(data []byte) *yaml.Node {
	var found *yaml.Node
	for documents := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var n yaml.Node
		err := documents.Decode(&n)
		switch {
		case errors.Is(err, io.EOF) && found == nil:
			r.Report(strict.Place{Line: 1}, "the file is empty", "", example())
			return nil
		case errors.Is(err, io.EOF):
			if found.Kind != yaml.MappingNode {
				r.Report(strict.Place{Line: found.Line}, "want a map", strict.Describe(found), example())
				return nil
			}
			return found
		case err != nil:
			r.Syntax(data, err)
			return nil
		case len(n.Content) == 0 || strict.IsNull(n.Content[0]):
		case found != nil:
			r.Report(strict.Place{Line: n.Content[0].Line}, "a second document begins", "", "a policy is one document: remove the ---")
			return nil
		default:
			found = n.Content[0]
		}
	}
}

// version looks at apiVersion and kind, and says whether the rest of the file can be read: a version that is not known
// has fields that are not known.
func (r *reader) version() bool {
	switch kind, given := r.top("kind"); {
	case !given:
		r.check("kind", &FieldError{Reason: "is missing", Right: "write kind: " + Kind})
	case strict.IsText(kind) && kind.Value != Kind: // anything but text is reported when the whole file is read
		r.check("kind", &FieldError{Value: kind.Value, Reason: "is not a policy", Right: "want " + Kind})
	}
	version, given := r.top("apiVersion")
	wanted := fmt.Sprintf("%s or %s", PeerVersion, OwnVersion)
	switch {
	case !given:
		r.check("apiVersion", &FieldError{Reason: "is missing", Right: "write apiVersion: " + wanted})
	case !strict.IsText(version):
		r.check("apiVersion", &FieldError{Value: version.Value, Reason: "is not text", Right: "want " + wanted})
		return false
	case version.Value == OlderVersion:
		r.isOlder = true
	case version.Value == OwnVersion:
		r.isOwn = true
	case version.Value != PeerVersion:
		r.check("apiVersion", &FieldError{Value: version.Value, Reason: "is not known", Right: "want " + wanted})
		return false
	default:
		for _, field := range own() {
			if _, given := r.top(field); given {
				r.check(field, &FieldError{Reason: "is not part of " + PeerVersion, Right: "write apiVersion: " + OwnVersion})
			}
		}
	}
	return true
}

// top returns a value at the top of the file, and whether there is one.
func (r *reader) top(field string) (*yaml.Node, bool) {
	n, _ := strict.Child(r.root, field)
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n, n != nil && !strict.IsNull(n)
}

// into decodes n, which stands at path, into what the pointer to points to.
func (r *reader) into(n *yaml.Node, to any, path string) {
	r.Decode(n, reflect.ValueOf(to).Elem(), strict.Place{Path: path, Line: strict.LineOf(r.root, path, r.root.Line)})
}

// check reports every error in err, whose fields are below path. What follows from something that could not be read is
// left out: it would send people looking in the wrong place.
func (r *reader) check(path string, err error) {
	for _, e := range strict.FieldErrors(strict.Under(path, err)) {
		if r.unread(e.Field) {
			continue
		}
		p := e.Problem()
		p.Line = strict.LineOf(r.root, e.Field, r.root.Line)
		r.found = append(r.found, p)
	}
}

// unread says whether the field, something in it, or something that it is in could not be read.
func (r *reader) unread(field string) bool {
	for _, p := range r.Problems {
		if within(p.Field, field) || within(field, p.Field) {
			return true
		}
	}
	return false
}

// within says whether the path inner is outer or below it.
func within(inner, outer string) bool {
	rest, ok := strings.CutPrefix(inner, outer)
	return ok && (outer == "" || rest == "" || rest[0] == '.' || rest[0] == '[')
}

// arguments reads the arguments of a strategy: over its defaults, then validated, then as JSON.
func (r *reader) arguments(s Strategy, n *yaml.Node, path string) json.RawMessage {
	args := s.NewArgs()
	if n != nil {
		r.into(n, args, path)
	}
	r.check(path, args.Validate())
	data, err := json.Marshal(args)
	r.check(path, err)
	if !r.isOwn {
		r.check(path, patterns(data))
	}
	return data
}

// What a policy file says about itself: one of the two versions, and the kind.
const (
	PeerVersion = "descheduler/v1alpha2"
	OwnVersion  = "rehome.dev/v1alpha1"
	Kind        = "DeschedulerPolicy"
)

// file is the policy file as it is written.
type file struct {
	APIVersion         string           `json:"apiVersion"`
	Kind               string           `json:"kind"`
	NodeSelector       string           `json:"nodeSelector"`
	GracePeriodSeconds *int64           `json:"gracePeriodSeconds"`
	Rate               Rate             `json:"rate"`
	Deltas             Deltas           `json:"deltas"`
	Signals            fileSignals      `json:"signals"`
	Brakes             fileBrakes       `json:"brakes"`
	Restart            *fileRestart     `json:"restart"`
	EvictionRequests   *fileRequests    `json:"evictionRequests"`
	Requests           *fileAsking      `json:"requests"`
	Maintenance        *fileMaintenance `json:"maintenance"`
	Functions          []fileFunction   `json:"functions"`
	Profiles           []fileProfile    `json:"profiles"`

	Presets              []string                 `json:"presets"`
	PresetCustomizations openshift.Customizations `json:"presetCustomizations"`

	MaxNoOfPodsToEvictPerNode        *uint             `json:"maxNoOfPodsToEvictPerNode"`
	MaxNoOfPodsToEvictPerNamespace   *uint             `json:"maxNoOfPodsToEvictPerNamespace"`
	MaxNoOfPodsToEvictTotal          *uint             `json:"maxNoOfPodsToEvictTotal"`
	Limits                           fileLimits        `json:"limits"`
	EvictionFailureEventNotification bool              `json:"evictionFailureEventNotification"`
	MetricsCollector                 metricsCollector  `json:"metricsCollector"`
	MetricsProviders                 []metricsProvider `json:"metricsProviders"`
}

// own lists the fields that only OwnVersion has.
func own() []string {
	return []string{
		"rate", "deltas", "signals", "limits", "brakes", "restart", "evictionRequests", "requests", "maintenance",
		"presets", "presetCustomizations", "functions",
	}
}

func (f file) validate() error {
	var found Findings
	if _, err := labels.Parse(f.NodeSelector); err != nil {
		found.Add("nodeSelector", f.NodeSelector, err.Error(), `write a label selector, such as "pool=web,!gpu"`)
	}
	if s := f.GracePeriodSeconds; s != nil && *s < 0 {
		found.Add("gracePeriodSeconds", *s, "must not be negative", "0 kills at once")
	}
	found.Join("rate", f.Rate.Validate())
	if d := f.Deltas; d != DeltasNeeded && d != DeltasAll {
		found.Add("deltas", d, "is not known", fmt.Sprintf("want %s or %s", DeltasNeeded, DeltasAll))
	}
	found.Join("signals", f.Signals.validate())
	found.Join("limits", f.Limits.validate())
	found.Join("brakes", f.Brakes.validate())
	if f.Restart != nil {
		found.Join("restart", f.Restart.validate())
	}
	if f.EvictionRequests != nil {
		found.Join("evictionRequests", f.EvictionRequests.validate())
	}
	if f.Requests != nil {
		found.Join("requests", f.Requests.validate())
	}
	if f.Maintenance != nil {
		found.Join("maintenance", f.Maintenance.validate())
	}
	found.Join("", f.validateMetrics())
	return found.Err()
}

// fileProfile is one profile as it is written.
type fileProfile struct {
	Name         string         `json:"name"`
	PluginConfig []pluginConfig `json:"pluginConfig"`
	Plugins      plugins        `json:"plugins"`
}

// plugins says what is enabled. PreSort, Sort and every list of disabled plugins are read and have no effect, as in the
// peer.
type plugins struct {
	PreSort           pluginSet `json:"presort"`
	Sort              pluginSet `json:"sort"`
	Deschedule        pluginSet `json:"deschedule"`
	Balance           pluginSet `json:"balance"`
	Filter            pluginSet `json:"filter"`
	PreEvictionFilter pluginSet `json:"preevictionfilter"`
}

type pluginSet struct {
	Enabled  []string `json:"enabled"`
	Disabled []string `json:"disabled"`
}

// example is what a file begins with.
func example() string {
	return fmt.Sprintf("begin it with the lines apiVersion: %s and kind: %s", OwnVersion, Kind)
}
