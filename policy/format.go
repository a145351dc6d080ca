package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/policy/strict"
)

// Format writes the policy as a file in YAML of [OwnVersion] or [PeerVersion]. Reading it gives the same policy, in which
// presets are the profiles that they mean. What is as by default is left out, and so is what was written and has no effect,
// comments included.
//
// It fails, with errors that are each a *[FieldError], when the policy has something that the version does not.
func (p Policy) Format(version string) ([]byte, error) {
	if err := p.missingIn(version); err != nil {
		return nil, err
	}
	out := formatFile{
		APIVersion: version, Kind: Kind, NodeSelector: p.NodeSelector, GracePeriodSeconds: p.GracePeriodSeconds,
		PerNode: p.Limits.PerNode, PerNamespace: p.Limits.PerNamespace, Total: p.Limits.Total,
		Limits: p.Limits.written(), Brakes: p.Brakes.written(), Restart: p.Restart.written(),
		Asking: p.Requests.written(), Maintenance: p.Maintenance.written(),
		FailureEvents: p.FailureEvents, Metrics: p.Metrics.written(),
	}
	if p.Rate != DefaultRate() {
		out.Rate = &p.Rate
	}
	if wait := p.EvictionRequests; wait != 0 {
		out.Requests = &fileRequests{metav1.Duration{Duration: wait}}
	}
	if p.Deltas != DeltasNeeded {
		out.Deltas = p.Deltas
	}
	if p.Signals.rows != nil {
		out.Signals = &p.Signals.written
	}
	for _, o := range p.Outside {
		out.Functions = append(out.Functions, o.written())
	}
	out.Profiles = []formatProfile{}
	for _, profile := range p.Profiles {
		written, err := profile.format()
		if err != nil {
			return nil, fmt.Errorf("profile %s: %w", profile.Name, err)
		}
		out.Profiles = append(out.Profiles, written)
	}
	return toYAML(out)
}

// formatFile has the fields of a file in the order in which they are read best.
type formatFile struct {
	APIVersion         string            `json:"apiVersion"`
	Kind               string            `json:"kind"`
	NodeSelector       string            `json:"nodeSelector,omitzero"`
	GracePeriodSeconds *int64            `json:"gracePeriodSeconds,omitzero"`
	Rate               *Rate             `json:"rate,omitzero"`
	PerNode            *uint             `json:"maxNoOfPodsToEvictPerNode,omitzero"`
	PerNamespace       *uint             `json:"maxNoOfPodsToEvictPerNamespace,omitzero"`
	Total              *uint             `json:"maxNoOfPodsToEvictTotal,omitzero"`
	Limits             *fileLimits       `json:"limits,omitzero"`
	Brakes             *fileBrakes       `json:"brakes,omitzero"`
	Restart            *fileRestart      `json:"restart,omitzero"`
	Requests           *fileRequests     `json:"evictionRequests,omitzero"`
	Asking             *fileAsking       `json:"requests,omitzero"`
	Maintenance        *fileMaintenance  `json:"maintenance,omitzero"`
	FailureEvents      bool              `json:"evictionFailureEventNotification,omitzero"`
	Metrics            []metricsProvider `json:"metricsProviders,omitzero"`
	Deltas             Deltas            `json:"deltas,omitzero"`
	Signals            *fileSignals      `json:"signals,omitzero"`
	Functions          []fileFunction    `json:"functions,omitzero"`
	Profiles           []formatProfile   `json:"profiles"`
}

// missingIn says what the version cannot express.
func (p Policy) missingIn(version string) error {
	var found Findings
	switch version {
	case OwnVersion:
		return nil
	case PeerVersion:
	default:
		found.Add("apiVersion", version, "is not known", fmt.Sprintf("want %s or %s", OwnVersion, PeerVersion))
		return found.Err()
	}
	for _, f := range []struct {
		name  string
		given bool
	}{
		{"rate", p.Rate != DefaultRate()}, {"limits", p.Limits.written() != nil}, {"brakes", p.Brakes != DefaultBrakes()},
		{"restart", p.Restart != Restart{}}, {"evictionRequests", p.EvictionRequests != 0},
		{"requests", p.Requests != nil}, {"maintenance", p.Maintenance.written() != nil},
		{"deltas", p.Deltas != DeltasNeeded}, {"signals", p.Signals.rows != nil},
		{"functions", len(p.Outside) > 0},
	} {
		if f.given {
			found.Add(f.name, nil, "is not part of "+PeerVersion, "convert to "+OwnVersion)
		}
	}
	for _, profile := range p.Profiles {
		for _, s := range profile.Strategies {
			for _, e := range strict.FieldErrors(patterns(s.Args)) {
				found.Add(fmt.Sprintf("profiles[%s].pluginConfig[%s].args.%s", profile.Name, s.Name, e.Field), e.Value,
					"is a pattern, which is not part of "+PeerVersion, "convert to "+OwnVersion)
			}
		}
	}
	return found.Err()
}

// formatProfile and its parts have the fields in the order in which they are read best.
type formatProfile struct {
	Name         string         `json:"name"`
	PluginConfig []formatConfig `json:"pluginConfig,omitzero"`
	Plugins      *formatPlugins `json:"plugins,omitzero"`
}

type formatConfig struct {
	Name string          `json:"name"`
	Args json.RawMessage `json:"args,omitzero"`
}

type formatPlugins struct {
	Deschedule *formatSet `json:"deschedule,omitzero"`
	Balance    *formatSet `json:"balance,omitzero"`
}

type formatSet struct {
	Enabled []string `json:"enabled"`
}

func (p Profile) format() (formatProfile, error) {
	out := formatProfile{Name: p.Name}
	evictor, err := json.Marshal(p.Evictor.args)
	if err != nil {
		return out, fmt.Errorf("%s: %w", EvictorName, err)
	}
	if string(evictor) != "{}" {
		out.PluginConfig = append(out.PluginConfig, formatConfig{EvictorName, evictor})
	}
	plugins := &formatPlugins{}
	for _, s := range p.Strategies {
		args, err := s.written()
		if err != nil {
			return out, fmt.Errorf("%s: %w", s.Name, err)
		}
		config := formatConfig{Name: s.Name, Args: args}
		out.PluginConfig = append(out.PluginConfig, config)
		set := &plugins.Deschedule
		if s.Point == Balance {
			set = &plugins.Balance
		}
		if *set == nil {
			*set = &formatSet{}
		}
		(*set).Enabled = append((*set).Enabled, s.Name)
	}
	if len(p.Strategies) > 0 {
		out.Plugins = plugins
	}
	return out, nil
}

// written are the arguments as they stand in a file; nil when they are the defaults. A default that they unset is a null.
func (e Enabled) written() (json.RawMessage, error) {
	data, err := json.Marshal(e.NewArgs())
	if err != nil || bytes.Equal(data, e.Args) {
		return nil, err
	}
	is := strict.Object(e.Args)
	inner := strings.TrimSuffix(strings.TrimPrefix(string(e.Args), "{"), "}")
	for _, name := range strict.Names(strict.Object(data)) {
		if _, set := is[name]; set {
			continue
		}
		if inner != "" {
			inner += ","
		}
		inner += fmt.Sprintf("%q:null", name)
	}
	return json.RawMessage("{" + inner + "}"), nil
}

// toYAML writes a value by its json tags, in their order.
func toYAML(value any) ([]byte, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var n yaml.Node
	if err := yaml.Unmarshal(data, &n); err != nil {
		return nil, err
	}
	plain, err := regexp.Compile(`^[A-Za-z][A-Za-z0-9_./-]*$`)
	if err != nil {
		return nil, err
	}
	unfold(&n, plain)
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(&n); err != nil {
		return nil, err
	}
	return b.Bytes(), e.Close()
}

// unfold writes JSON the way a person writes YAML: on lines of their own, lists of plain words on one line, and without
// quotes where no YAML, neither 1.1 nor 1.2, could read anything but the same text.
func unfold(n *yaml.Node, plain *regexp.Regexp) {
	if n.Kind == yaml.ScalarNode {
		words := []string{"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
		if plain.MatchString(n.Value) && !slices.Contains(words, strings.ToLower(n.Value)) {
			n.Style = 0
		}
		return
	}
	n.Style = 0
	short := n.Kind == yaml.SequenceNode
	for _, c := range n.Content {
		unfold(c, plain)
		short = short && c.Kind == yaml.ScalarNode
	}
	if short || len(n.Content) == 0 {
		n.Style = yaml.FlowStyle
	}
}
