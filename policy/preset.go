package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/rehome-dev/rehome/policy/openshift"
	"github.com/rehome-dev/rehome/policy/strict"
)

// Preset is a preset that a file names: one of the profiles of OpenShift's descheduler operator. What it means is in
// [Policy.Profiles], [Policy.Limits] included; this is what is told to people about it.
type Preset struct {
	// Name is the one in the file.
	Name string
	// Profile is the name of the profile that it became. Empty: it changed the profiles of other presets.
	Profile string
	// Lacks says in sentences what it does in OpenShift and Rehome does not do.
	Lacks []string
}

// presets adds the profiles that the presets of the file mean to p, and the limits that they need.
func (r *reader) presets(doc file, p *Policy) {
	const customized = "presetCustomizations"
	c := doc.PresetCustomizations
	all := r.choose(doc.Presets)
	enabling := slices.ContainsFunc(all, func(one chosen) bool { return len(one.Uses) > 0 })
	switch {
	case len(doc.Presets) == 0 && c.Given():
		r.check(customized, &FieldError{Reason: "changes presets, and there is none", Right: "name them in presets, or remove it"})
	case len(all) > 0 && len(all) == len(doc.Presets) && !enabling:
		r.check(all[0].path, &FieldError{Value: all[0].written, Reason: "changes other presets, and there is none",
			Right: "add one that moves pods, or remove it"})
	case enabling && len(all) == len(doc.Presets):
		r.check(customized, c.Useless(rows(all)))
	}
	r.needsPrometheus(doc, all)
	r.wholeNodes(all, c)
	if err := validateCustomizations(c); err != nil {
		r.check(customized, err)
		c = openshift.Customizations{} // what follows from a mistake is not another one
	}
	for _, one := range all {
		lacks := one.Lacks
		if len(one.Uses) > 0 {
			profile := r.preset(one, all, c)
			p.Profiles = append(p.Profiles, profile)
			p.Presets = append(p.Presets, Preset{Name: one.written, Profile: profile.Name, Lacks: append(lacks, c.Idle()...)})
		} else {
			p.Presets = append(p.Presets, Preset{Name: one.written, Lacks: lacks})
		}
		p.Limits.fill(one.PerNode, one.Total)
	}
}

// fill sets limits that are not set. 0: leaves one as it is.
func (l *Limits) fill(perNode, total uint) {
	if l.PerNode == nil && perNode > 0 {
		l.PerNode = &perNode
	}
	if l.Total == nil && total > 0 {
		l.Total = &total
	}
}

// needsPrometheus reports what measures nodes by a query when the file has nobody to put it to.
func (r *reader) needsPrometheus(doc file, all []chosen) {
	asked := slices.ContainsFunc(doc.MetricsProviders, func(p metricsProvider) bool { return p.Source == sourcePrometheus })
	if asked || r.unread("metricsProviders") {
		return
	}
	const right = "add the provider {source: Prometheus, prometheus: {url: https://HOST}} to metricsProviders"
	byCustom := false
	for _, one := range all {
		for _, u := range one.Uses {
			switch {
			case u.Utilization == nil || u.Strategy != openshift.LowNodeUtilization:
			case u.Utilization.Profile != "":
				r.check(one.path, &FieldError{Value: one.written, Reason: "needs a metrics provider of source Prometheus", Right: right})
			default:
				byCustom = byCustom || doc.PresetCustomizations.DevActualUtilizationProfile != ""
			}
		}
	}
	if byCustom {
		r.check("presetCustomizations.devActualUtilizationProfile",
			&FieldError{Reason: "needs a metrics provider of source Prometheus", Right: right})
	}
}

// wholeNodes reports namespaces that are included when a preset looks at all pods of a node, and can only leave some alone.
func (r *reader) wholeNodes(all []chosen, c openshift.Customizations) {
	if len(c.Namespaces.Included) == 0 {
		return
	}
	for _, one := range all {
		if slices.ContainsFunc(one.Uses, func(u openshift.Use) bool { return u.Utilization != nil }) {
			r.check("presetCustomizations.namespaces.included", &FieldError{Right: "use excluded",
				Reason: fmt.Sprintf("cannot be used together with the preset %s, which looks at whole nodes", one.written)})
		}
	}
}

// preset is the profile that a preset means in the company of the others.
func (r *reader) preset(one chosen, all []chosen, c openshift.Customizations) Profile {
	p := Profile{Name: one.Name}
	var err error
	p.Evictor, err = NewEvictor(one.evictor(all, c))
	r.check(one.path, err)
	for _, u := range one.Uses {
		strategy, known := r.strategy(u.Strategy)
		if !known {
			r.check(one.path, &FieldError{Value: one.written,
				Reason: "needs " + u.Strategy + ", which is not a plugin of this version of Rehome"})
			continue
		}
		p.Strategies = append(p.Strategies, Enabled{Strategy: strategy, Args: r.presetArguments(strategy, u, c, one.path)})
	}
	return p
}

// evictor is what protects the pods of a preset.
func (p chosen) evictor(all []chosen, c openshift.Customizations) EvictorArgs {
	args := EvictorArgs{PriorityThreshold: priorityOf(c)}
	for _, other := range all {
		if len(other.Uses) == 0 {
			p.MovesPVC = p.MovesPVC || other.MovesPVC
			p.MovesLocalStorage = p.MovesLocalStorage || other.MovesLocalStorage
		}
	}
	if !p.MovesPVC {
		args.PodProtections.ExtraEnabled = []string{PodsWithPVC}
	}
	if p.MovesLocalStorage {
		args.PodProtections.DefaultDisabled = []string{PodsWithLocalStorage}
	}
	if p.PreferIsMandatory {
		args.NoEvictionPolicy = Mandatory
	}
	return args
}

// presetArguments reads the arguments that a preset gives a strategy as if they stood in the file.
func (r *reader) presetArguments(s Strategy, u openshift.Use, c openshift.Customizations, path string) json.RawMessage {
	args, err := u.Arguments(c)
	var n yaml.Node
	if err == nil {
		err = yaml.Unmarshal(args, &n)
	}
	if err != nil {
		r.check(path, fmt.Errorf("arguments of %s: %w", s.Name, err))
		return nil
	}
	inner := reader{known: r.known, root: n.Content[0], isOwn: true}
	data := inner.arguments(s, inner.root, "")
	for _, p := range append(inner.Problems, inner.found...) {
		r.check(path, fmt.Errorf("arguments of %s: %s", s.Name, p.Text()))
	}
	return data
}

// chosen is a preset of the file.
type chosen struct {
	openshift.Preset
	written string // the name that it has there
	path    string
}

// choose finds the presets that the file names, and reports those that cannot be: unknown ones, one twice, and two that
// conflict, which is said of the later one.
func (r *reader) choose(written []string) []chosen {
	var all []chosen
	for i, name := range written {
		at := "presets" + Item(i)
		row, known := openshift.Find(name)
		if !known {
			r.check(at, &FieldError{Value: name, Reason: "is not a preset", Right: strict.Suggest(name, openshift.Names())})
			continue
		}
		before := slices.IndexFunc(all, func(c chosen) bool { return c.Name == row.Name })
		switch {
		case before >= 0 && all[before].written != name:
			r.check(at, &FieldError{Value: name, Reason: "is another name of " + all[before].written, Right: "keep one"})
			continue
		case before >= 0:
			r.check(at, &FieldError{Value: name, Reason: "is given twice", Right: "keep one"})
			continue
		}
		for _, c := range all {
			if why, conflicts := openshift.ConflictOf(c.Name, row.Name); conflicts {
				r.check(at, &FieldError{Value: name, Right: "keep one",
					Reason: fmt.Sprintf("cannot be used together with %s: %s", c.written, why)})
			}
		}
		all = append(all, chosen{row, name, at})
	}
	return all
}

// rows are the presets as the operator has them.
func rows(all []chosen) []openshift.Preset {
	var list []openshift.Preset
	for _, one := range all {
		list = append(list, one.Preset)
	}
	return list
}

func validateCustomizations(c openshift.Customizations) error {
	var found Findings
	_, err := NewEvictor(EvictorArgs{PriorityThreshold: priorityOf(c)})
	for _, e := range strict.FieldErrors(err) {
		found.Add(strings.TrimPrefix(olderField("", e.Field), "."), e.Value, e.Reason, e.Right)
	}
	found.Join("namespaces.included", validateNames(c.Namespaces.Included))
	found.Join("namespaces.excluded", validateNames(c.Namespaces.Excluded))
	found.Join("", c.Validate())
	return found.Err()
}

func priorityOf(c openshift.Customizations) PriorityThreshold {
	return PriorityThreshold{Value: c.ThresholdPriority, Name: c.ThresholdPriorityClassName}
}
