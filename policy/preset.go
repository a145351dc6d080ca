package policy

import (
	"encoding/json"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"
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
	enabling := slices.ContainsFunc(all, func(one chosen) bool { return len(one.uses) > 0 })
	switch {
	case len(doc.Presets) == 0 && c.given():
		r.check(customized, &FieldError{Reason: "changes presets, and there is none", Right: "name them in presets, or remove it"})
	case len(all) > 0 && len(all) == len(doc.Presets) && !enabling:
		r.check(all[0].path, &FieldError{Value: all[0].written, Reason: "changes other presets, and there is none",
			Right: "add one that moves pods, or remove it"})
	case enabling && len(all) == len(doc.Presets):
		r.check(customized, c.useless(all))
	}
	r.needsPrometheus(doc, all)
	r.wholeNodes(all, c)
	if err := c.validate(); err != nil {
		r.check(customized, err)
		c = customizations{} // what follows from a mistake is not another one
	}
	for _, one := range all {
		lacks := one.lacks
		if len(one.uses) > 0 {
			profile := r.preset(one, all, c)
			p.Profiles = append(p.Profiles, profile)
			p.Presets = append(p.Presets, Preset{Name: one.written, Profile: profile.Name, Lacks: append(lacks, c.idle()...)})
		} else {
			p.Presets = append(p.Presets, Preset{Name: one.written, Lacks: lacks})
		}
		p.Limits.fill(one.perNode, one.total)
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
		for _, u := range one.uses {
			switch {
			case u.utilization == nil || u.strategy != lowNodeUtilization:
			case u.utilization.profile != "":
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
func (r *reader) wholeNodes(all []chosen, c customizations) {
	if len(c.Namespaces.Included) == 0 {
		return
	}
	for _, one := range all {
		if slices.ContainsFunc(one.uses, func(u use) bool { return u.utilization != nil }) {
			r.check("presetCustomizations.namespaces.included", &FieldError{Right: "use excluded",
				Reason: fmt.Sprintf("cannot be used together with the preset %s, which looks at whole nodes", one.written)})
		}
	}
}

// preset is the profile that a preset means in the company of the others.
func (r *reader) preset(one chosen, all []chosen, c customizations) Profile {
	p := Profile{Name: one.name}
	var err error
	p.Evictor, err = NewEvictor(one.evictor(all, c))
	r.check(one.path, err)
	for _, u := range one.uses {
		strategy, known := r.strategy(u.strategy)
		if !known {
			r.check(one.path, &FieldError{Value: one.written,
				Reason: "needs " + u.strategy + ", which is not a plugin of this version of Rehome"})
			continue
		}
		p.Strategies = append(p.Strategies, Enabled{Strategy: strategy, Args: r.presetArguments(strategy, u, c, one.path)})
	}
	return p
}

// evictor is what protects the pods of a preset.
func (p preset) evictor(all []chosen, c customizations) EvictorArgs {
	args := EvictorArgs{PriorityThreshold: c.priority()}
	for _, other := range all {
		if len(other.uses) == 0 {
			p.movesPVC = p.movesPVC || other.movesPVC
			p.movesLocalStorage = p.movesLocalStorage || other.movesLocalStorage
		}
	}
	if !p.movesPVC {
		args.PodProtections.ExtraEnabled = []string{PodsWithPVC}
	}
	if p.movesLocalStorage {
		args.PodProtections.DefaultDisabled = []string{PodsWithLocalStorage}
	}
	if p.preferIsMandatory {
		args.NoEvictionPolicy = Mandatory
	}
	return args
}

// presetArguments reads the arguments that a preset gives a strategy as if they stood in the file.
func (r *reader) presetArguments(s Strategy, u use, c customizations, path string) json.RawMessage {
	args, err := u.arguments(c)
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
	for _, p := range append(inner.problems, inner.found...) {
		r.check(path, fmt.Errorf("arguments of %s: %s", s.Name, p.text()))
	}
	return data
}

// arguments are those of a strategy under the customizations, as JSON.
func (u use) arguments(c customizations) ([]byte, error) {
	args := map[string]any{}
	if err := json.Unmarshal([]byte(u.args), &args); err != nil {
		return nil, err
	}
	namespaces := map[string]any{"include": c.Namespaces.Included}
	if len(c.Namespaces.Included) == 0 || u.utilization != nil {
		excluded := protectedNamespaces()
		for _, name := range c.Namespaces.Excluded {
			if !slices.Contains(excluded, name) {
				excluded = append(excluded, name)
			}
		}
		namespaces = map[string]any{"exclude": excluded}
	}
	if u.utilization == nil {
		args["namespaces"] = namespaces
	} else {
		args["evictableNamespaces"] = namespaces
		c.tuned(u).fill(args)
	}
	if u.strategy == podLifeTime && c.PodLifetime != nil {
		args["maxPodLifeTimeSeconds"] = int64(c.PodLifetime.Seconds())
	}
	return json.Marshal(args)
}

// fill adds the arguments that say when a node is idle or busy.
func (t utilization) fill(args map[string]any) {
	resources := []string{"cpu", "memory", "pods"}
	if t.profile != "" {
		resources = []string{"MetricResource"} // the name of what a query measures
		query, _ := queryOf(t.profile)
		args["metricsUtilization"] = map[string]any{"source": sourcePrometheus, "prometheus": map[string]any{"query": query}}
	}
	low, high := map[string]any{}, map[string]any{}
	for _, name := range resources {
		low[name], high[name] = t.low, t.high
	}
	args["thresholds"] = low
	if t.high > 0 {
		args["targetThresholds"] = high
	}
	if t.deviation {
		args["useDeviationThresholds"] = true
	}
}
