package policy

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/rehome-dev/rehome/policy/strict"
)

// Preset is a preset that a file names: one of the profiles of OpenShift's descheduler operator. It became a profile of
// [Policy.Profiles]; the rest is for people.
type Preset struct {
	// Name is the one in the file.
	Name string
	// Profile is the name of the profile that it became. Empty: it changed the profiles of other presets.
	Profile string
	// Lacks says in sentences what it does in OpenShift and Rehome does not do.
	Lacks []string
}

//go:embed presets.yaml
var presetsYAML []byte

// openshift is presets.yaml.
type openshift struct {
	ProtectedNamespaces []string                 `json:"protectedNamespaces"`
	Presets             []presetRow              `json:"presets"`
	Levels              map[string][]utilization `json:"levels"` // by the name of a field of Customizations
	UsageProfiles       []usageProfile           `json:"usageProfiles"`
}

// presetRow is one preset. Without uses it changes the other presets.
type presetRow struct {
	Name      string            `json:"name"`
	Older     []string          `json:"older"` // names that are still read
	Uses      []presetUse       `json:"uses"`
	Lacks     []string          `json:"lacks"`
	Conflicts map[string]string `json:"conflicts"` // with other presets, and why

	MovesPVC          bool `json:"movesPVC"`
	MovesLocalStorage bool `json:"movesLocalStorage"`
	PreferIsMandatory bool `json:"preferIsMandatory"` // the annotation PreferNoEviction protects
	PerNode           uint `json:"perNode"`           // limits for a file that has none; 0: none
	Total             uint `json:"total"`
}

// presetUse is a strategy that a preset enables.
type presetUse struct {
	Strategy    string         `json:"strategy"`
	Args        map[string]any `json:"args"`
	Utilization *utilization   `json:"utilization"` // nil: the strategy does not look at how much of a node is used
}

// utilization is when a node counts as idle and as busy, in percent.
type utilization struct {
	Name      string `json:"name"`
	Low       int    `json:"low"`
	High      int    `json:"high"`
	Deviation bool   `json:"deviation"` // Low and High are distances from the mean of all nodes
	Profile   string `json:"profile"`   // a usage profile. Empty: by the requests of pods
}

// usageProfile is a way to measure how busy a node is.
type usageProfile struct {
	Name  string `json:"name"`
	Query string `json:"query"`
}

func newOpenShift() openshift {
	var o openshift
	strict.Embedded(presetsYAML, &o)
	return o
}

// Customizations change presets, under the names that OpenShift's operator gives them.
type Customizations struct {
	PodLifetime                      time.Duration        `json:"podLifetime" min:"1s"`
	ThresholdPriority                *int32               `json:"thresholdPriority"`
	ThresholdPriorityClassName       string               `json:"thresholdPriorityClassName"`
	Namespaces                       customizedNamespaces `json:"namespaces"`
	DevLowNodeUtilizationThresholds  string               `json:"devLowNodeUtilizationThresholds" enum:"Low,Medium,High"`
	DevHighNodeUtilizationThresholds string               `json:"devHighNodeUtilizationThresholds" enum:"Minimal,Modest,Moderate"`
	DevActualUtilizationProfile      string               `json:"devActualUtilizationProfile"`

	DevDeviation string `json:"devDeviationThresholds" enum:"Low,Medium,High,AsymmetricLow,AsymmetricMedium,AsymmetricHigh"`

	// The rest is read, so that a file need not be changed, and has no effect; see idle.
	DevEnableEvictionsInBackground bool           `json:"devEnableEvictionsInBackground"`
	DevEnableSoftTainter           bool           `json:"devEnableSoftTainter"`
	DevMigrationCooldown           *time.Duration `json:"devMigrationCooldown"`
	DevMaxMigrationCooldown        *time.Duration `json:"devMaxMigrationCooldown"`
	DevMigrationHistoryWindow      *time.Duration `json:"devMigrationHistoryWindow"`
}

// customizedNamespaces are the namespaces of presets; at most one list may be used.
type customizedNamespaces struct {
	Included []string `json:"included"`
	Excluded []string `json:"excluded"`
}

// idle lists the customizations that are given and have no effect, each with its reason.
func (c Customizations) idle() []string {
	var list []string
	note := func(given bool, name, why string) {
		if given {
			list = append(list, fmt.Sprintf("The customization %s has no effect: %s.", name, why))
		}
	}
	const migrations = "Rehome does not know live migrations"
	note(c.DevEnableEvictionsInBackground, "devEnableEvictionsInBackground", "an eviction is accepted at once or tried again")
	note(c.DevEnableSoftTainter, "devEnableSoftTainter", "Rehome puts no taint on a node")
	note(c.DevMigrationCooldown != nil, "devMigrationCooldown", migrations)
	note(c.DevMaxMigrationCooldown != nil, "devMaxMigrationCooldown", migrations)
	note(c.DevMigrationHistoryWindow != nil, "devMigrationHistoryWindow", migrations)
	return list
}

// Validate checks the values; each error is a *[FieldError].
func (c Customizations) Validate() error {
	var found Findings
	for _, e := range strict.FieldErrors(EvictorArgs{PriorityThreshold: c.priority()}.PriorityThreshold.Validate()) {
		found.Add(strings.TrimPrefix(olderField("", "priorityThreshold."+e.Field), "."), e.Value, e.Reason, e.Right)
	}
	n := c.Namespaces
	if len(n.Included) > 0 && len(n.Excluded) > 0 {
		found.Add("namespaces", nil, "has both included and excluded", "keep one")
	}
	found.Join("namespaces.included", validateNames(n.Included))
	found.Join("namespaces.excluded", validateNames(n.Excluded))
	o := newOpenShift()
	for i, name := range n.Included {
		for _, protected := range o.ProtectedNamespaces {
			if overlap(name, protected) {
				found.Add("namespaces.included"+Item(i), name, "is protected from every preset, as part of "+protected,
					"remove it, or write a profile of your own")
			}
		}
	}
	if c.DevLowNodeUtilizationThresholds != "" && c.DevDeviation != "" {
		found.Add("devDeviationThresholds", c.DevDeviation,
			"cannot be used together with devLowNodeUtilizationThresholds", "keep one")
	}
	if p := c.DevActualUtilizationProfile; p != "" && o.query(p) == "" {
		var names []string
		for _, known := range o.UsageProfiles {
			names = append(names, known.Name)
		}
		found.Add("devActualUtilizationProfile", p, "is not known", "want "+strict.Either(append(names, "query: and a query")))
	}
	return found.Err()
}

func (c Customizations) priority() PriorityThreshold {
	return PriorityThreshold{Value: c.ThresholdPriority, Name: c.ThresholdPriorityClassName}
}

// overlap says whether two entries of a list of namespaces can name the same namespace.
func overlap(a, b string) bool {
	beginA, manyA := strings.CutSuffix(a, "*")
	beginB, manyB := strings.CutSuffix(b, "*")
	return manyA && (strings.HasPrefix(b, beginA) || manyB && strings.HasPrefix(beginA, beginB)) ||
		manyB && strings.HasPrefix(a, beginB) || a == b
}

// query is the query of a usage profile, or behind "query:". Empty: the profile is not known.
func (o openshift) query(profile string) string {
	if query, own := strings.CutPrefix(profile, "query:"); own {
		return strings.TrimSpace(query)
	}
	for _, p := range o.UsageProfiles {
		if p.Name == profile {
			return p.Query
		}
	}
	return ""
}

// chosen is a preset of the file.
type chosen struct {
	presetRow
	written string // the name that it has there
	path    string
}

// presets adds the profiles of the presets in the file to p, and the limits that they need.
func (r *reader) presets(doc file, p *Policy) {
	const customized = "presetCustomizations"
	o, c := newOpenShift(), doc.PresetCustomizations
	all := r.choose(o, doc.Presets)
	enabling := slices.ContainsFunc(all, func(one chosen) bool { return len(one.Uses) > 0 })
	switch {
	case len(doc.Presets) == 0 && !reflect.ValueOf(c).IsZero():
		r.wrong(customized, nil, "changes presets, and there is none", "name them in presets, or remove it")
	case len(all) > 0 && len(all) == len(doc.Presets) && !enabling:
		r.wrong(all[0].path, all[0].written, "changes other presets, and there is none", "add one that moves pods, or remove it")
	case enabling && len(all) == len(doc.Presets):
		r.check(customized, c.useless(all))
	}
	r.checkUtilization(all, c)
	if slices.ContainsFunc(r.Invalid, func(p Problem) bool { return strings.HasPrefix(p.Field, customized) }) {
		c = Customizations{} // what follows from a mistake is not another one
	}
	for _, one := range all {
		preset := Preset{Name: one.written, Lacks: one.Lacks}
		if len(one.Uses) > 0 {
			preset.Profile, preset.Lacks = one.Name, append(slices.Clone(one.Lacks), c.idle()...)
			p.Profiles = append(p.Profiles, r.preset(o, one, all, c))
		}
		p.Presets = append(p.Presets, preset)
		if p.Limits.PerNode == nil && one.PerNode > 0 {
			p.Limits.PerNode = &one.PerNode
		}
		if p.Limits.Total == nil && one.Total > 0 {
			p.Limits.Total = &one.Total
		}
	}
}

// choose finds the presets that the file names, and reports unknown ones, one twice, and two that conflict, at the later one.
func (r *reader) choose(o openshift, written []string) []chosen {
	var all []chosen
	var names []string
	for _, p := range o.Presets {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	for i, name := range written {
		at := "presets" + Item(i)
		k := slices.IndexFunc(o.Presets, func(p presetRow) bool { return p.Name == name || slices.Contains(p.Older, name) })
		if k < 0 {
			r.wrong(at, name, "is not a preset", strict.Suggest(name, names))
			continue
		}
		row := o.Presets[k]
		if before := slices.IndexFunc(all, func(c chosen) bool { return c.Name == row.Name }); before >= 0 {
			reason := "is given twice"
			if all[before].written != name {
				reason = "is another name of " + all[before].written
			}
			r.wrong(at, name, reason, "keep one")
			continue
		}
		for _, c := range all {
			if why := row.Conflicts[c.Name] + c.Conflicts[row.Name]; why != "" {
				r.wrong(at, name, fmt.Sprintf("cannot be used together with %s: %s", c.written, why), "keep one")
			}
		}
		all = append(all, chosen{row, name, at})
	}
	return all
}

// useless finds the customizations that no preset of the file uses.
func (c Customizations) useless(all []chosen) error {
	var found Findings
	check := func(field string, given bool, strategy string, uses func(presetUse) bool) {
		used := slices.ContainsFunc(all, func(p chosen) bool {
			return slices.ContainsFunc(p.Uses, func(u presetUse) bool { return u.Strategy == strategy && uses(u) })
		})
		if given && !used {
			found.Add(field, nil, "changes none of the presets", "remove it, or add a preset that uses "+strategy)
		}
	}
	always := func(presetUse) bool { return true }
	const low, high = "LowNodeUtilization", "HighNodeUtilization"
	check("podLifetime", c.PodLifetime != 0, "PodLifeTime", always)
	check("devLowNodeUtilizationThresholds", c.DevLowNodeUtilizationThresholds != "", low,
		func(u presetUse) bool { return !u.Utilization.Deviation })
	check("devHighNodeUtilizationThresholds", c.DevHighNodeUtilizationThresholds != "", high, always)
	check("devDeviationThresholds", c.DevDeviation != "", low, always)
	check("devActualUtilizationProfile", c.DevActualUtilizationProfile != "", low, always)
	return found.Err()
}

// checkUtilization reports presets that look at whole nodes while the file includes only some namespaces, or that measure
// nodes by a query while the file has no server for it.
func (r *reader) checkUtilization(all []chosen, c Customizations) {
	ask := r.metrics.provider(LoadPrometheus) == nil && !r.Unread("metricsProviders")
	byCustom := false
	for _, one := range all {
		i := slices.IndexFunc(one.Uses, func(u presetUse) bool { return u.Utilization != nil })
		if i < 0 {
			continue
		}
		if len(c.Namespaces.Included) > 0 {
			r.wrong("presetCustomizations.namespaces.included", nil,
				fmt.Sprintf("cannot be used together with the preset %s, which looks at whole nodes", one.written), "use excluded")
		}
		switch u := one.Uses[i]; {
		case !ask || u.Strategy != "LowNodeUtilization":
		case u.Utilization.Profile != "":
			r.check(one.path, needsPrometheus(one.written))
		default:
			byCustom = byCustom || c.DevActualUtilizationProfile != ""
		}
	}
	if byCustom {
		r.check("presetCustomizations.devActualUtilizationProfile", needsPrometheus(nil))
	}
}

// preset is the profile of a preset in the company of the others.
func (r *reader) preset(o openshift, one chosen, all []chosen, c Customizations) Profile {
	p := Profile{Name: one.Name}
	for _, other := range all {
		if len(other.Uses) == 0 {
			one.MovesPVC = one.MovesPVC || other.MovesPVC
			one.MovesLocalStorage = one.MovesLocalStorage || other.MovesLocalStorage
		}
	}
	args := EvictorArgs{PriorityThreshold: c.priority()}
	if !one.MovesPVC {
		args.PodProtections.ExtraEnabled = []string{PodsWithPVC}
	}
	if one.MovesLocalStorage {
		args.PodProtections.DefaultDisabled = []string{PodsWithLocalStorage}
	}
	if one.PreferIsMandatory {
		args.NoEvictionPolicy = Mandatory
	}
	var err error
	p.Evictor, err = NewEvictor(args)
	r.check(one.path, err)
	for _, u := range one.Uses {
		strategy, known := r.strategy(u.Strategy)
		if !known {
			r.wrong(one.path, one.written, "needs "+u.Strategy+", which is not a plugin of this version of Rehome", "")
			continue
		}
		p.Strategies = append(p.Strategies, Enabled{Strategy: strategy, Args: r.presetArguments(strategy, o.arguments(u, c), one.path)})
	}
	return p
}

// presetArguments reads the arguments that a preset gives a strategy as if they stood in the file.
func (r *reader) presetArguments(s Strategy, args map[string]any, path string) json.RawMessage {
	var n yaml.Node
	data, err := json.Marshal(args)
	if err == nil {
		err = yaml.Unmarshal(data, &n)
	}
	if err != nil {
		r.check(path, fmt.Errorf("arguments of %s: %w", s.Name, err))
		return nil
	}
	inner := reader{known: r.known, root: n.Content[0], version: Version}
	read := inner.arguments(s, inner.root, "")
	for _, p := range append(inner.Unreadable, inner.Invalid...) {
		r.check(path, fmt.Errorf("arguments of %s: %s", s.Name, p.Text()))
	}
	return read
}

// arguments are the arguments of a strategy under the customizations.
func (o openshift) arguments(u presetUse, c Customizations) map[string]any {
	args := map[string]any{}
	maps.Copy(args, u.Args)
	namespaces := map[string]any{"include": c.Namespaces.Included}
	if len(c.Namespaces.Included) == 0 || u.Utilization != nil {
		excluded := slices.Clone(o.ProtectedNamespaces)
		for _, name := range c.Namespaces.Excluded {
			if !slices.Contains(excluded, name) {
				excluded = append(excluded, name)
			}
		}
		namespaces = map[string]any{"exclude": excluded}
	}
	if u.Strategy == "PodLifeTime" && c.PodLifetime != 0 {
		args["maxPodLifeTimeSeconds"] = int64(c.PodLifetime.Seconds())
	}
	if u.Utilization == nil {
		args["namespaces"] = namespaces
		return args
	}
	args["evictableNamespaces"] = namespaces
	t := o.customized(u, c)
	resources := []string{"cpu", "memory", "pods"}
	if t.Profile != "" {
		resources = []string{"MetricResource"} // the name of the result of a query
		args["metricsUtilization"] = map[string]any{"source": "Prometheus", "prometheus": map[string]any{"query": o.query(t.Profile)}}
	}
	low, high := map[string]any{}, map[string]any{}
	for _, name := range resources {
		low[name], high[name] = t.Low, t.High
	}
	args["thresholds"] = low
	if t.High > 0 {
		args["targetThresholds"] = high
	}
	if t.Deviation {
		args["useDeviationThresholds"] = true
	}
	return args
}

// customized is how a strategy measures nodes under the customizations.
func (o openshift) customized(u presetUse, c Customizations) utilization {
	t := *u.Utilization
	level := func(field, name string) {
		for _, l := range o.Levels[field] {
			if l.Name == name {
				l.Profile = t.Profile
				t = l
			}
		}
	}
	if u.Strategy == "HighNodeUtilization" {
		level("devHighNodeUtilizationThresholds", c.DevHighNodeUtilizationThresholds)
		return t
	}
	if !t.Deviation {
		level("devLowNodeUtilizationThresholds", c.DevLowNodeUtilizationThresholds)
	}
	level("devDeviationThresholds", c.DevDeviation)
	if c.DevActualUtilizationProfile != "" {
		t.Profile = c.DevActualUtilizationProfile
	}
	return t
}
