package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/rehome-dev/rehome/policy/strict"
)

// Format writes the policy as a file in YAML of [Version] or [DeschedulerVersion]. Reading it gives the same policy, in
// which presets are profiles. Defaults are left out, and so are comments and fields without effect.
//
// It fails, with errors that are each a *[FieldError], when the policy has something that the version does not.
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

// file is the profile as it stands in a file.
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

// changed are the arguments as they stand in a file; nil when they are the defaults. A default that they unset is a null.
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
