package policy

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/rehome-dev/rehome/policy/strict"
	"github.com/rehome-dev/rehome/schemas"
)

// Preset is a preset in a file: one of the profiles of OpenShift's descheduler operator. It became a profile of
// [Policy.Profiles]; the other fields are for users.
type Preset struct {
	// Name is the one in the file.
	Name string
	// Profile is the name of the resulting profile. It is empty if it changed the profiles of other presets.
	Profile string
	// Lacks lists, in sentences, features of the preset in OpenShift that Rehome does not have.
	Lacks []string
}

//go:embed presets.yaml
var presetsYAML []byte

// openshift is presets.yaml.
type openshift struct {
	ProtectedNamespaces []string                    `json:"protectedNamespaces"`
	Presets             []presetRow                 `json:"presets"`
	Strategies          map[string]string           `json:"strategies"`    // by the name of a field of Customizations
	Idle                map[string]string           `json:"idle"`          // by the name of a field of Customizations
	Levels              map[string]map[string]level `json:"levels"`        // by the name of a field of Customizations
	UsageProfiles       map[string]string           `json:"usageProfiles"` // name: query
}

// presetRow is one preset. Without a profile it changes the other presets.
type presetRow struct {
	Name      string            `json:"name"`
	Older     []string          `json:"older"`   // alternative names
	Profile   string            `json:"profile"` // a template of a profile of a file
	Lacks     []string          `json:"lacks"`
	Conflicts map[string]string `json:"conflicts"` // with other presets, and why
	PerNode   uint              `json:"perNode"`   // limits for a file without limits; 0 means none
	Total     uint              `json:"total"`
}

// level has the percentages at which a node counts as under-used and as over-used.
type level struct {
	Low  int `json:"low"`
	High int `json:"high"`
}

func newOpenShift() openshift {
	var o openshift
	strict.Embedded(presetsYAML, &o)
	return o
}

// Customizations change presets, with the names of OpenShift's operator.
type Customizations struct {
	PodLifetime                      time.Duration        `json:"podLifetime" min:"1s"`
	ThresholdPriority                *int32               `json:"thresholdPriority" max:"2000000000"`
	ThresholdPriorityClassName       string               `json:"thresholdPriorityClassName"`
	Namespaces                       customizedNamespaces `json:"namespaces"`
	DevLowNodeUtilizationThresholds  string               `json:"devLowNodeUtilizationThresholds" enum:"Low,Medium,High"`
	DevHighNodeUtilizationThresholds string               `json:"devHighNodeUtilizationThresholds" enum:"Minimal,Modest,Moderate"`
	DevActualUtilizationProfile      string               `json:"devActualUtilizationProfile"`

	DevDeviation string `json:"devDeviationThresholds" enum:"Low,Medium,High,AsymmetricLow,AsymmetricMedium,AsymmetricHigh"`

	// The other fields are read, so that a file need not be changed, and have no effect.
	DevEnableEvictionsInBackground bool           `json:"devEnableEvictionsInBackground"`
	DevEnableSoftTainter           bool           `json:"devEnableSoftTainter"`
	DevMigrationCooldown           *time.Duration `json:"devMigrationCooldown"`
	DevMaxMigrationCooldown        *time.Duration `json:"devMaxMigrationCooldown"`
	DevMigrationHistoryWindow      *time.Duration `json:"devMigrationHistoryWindow"`
}

// customizedNamespaces are the namespaces of presets; at most one list may be used.
type customizedNamespaces struct {
	Included []string `json:"included" pattern:"namespace"`
	Excluded []string `json:"excluded" pattern:"namespace"`
}

// given returns the customizations of the file that are keys of a table, sorted.
func (c Customizations) given(table map[string]string) []string {
	fields := strict.FieldsOf(reflect.ValueOf(c))
	return slices.DeleteFunc(strict.Names(table), func(name string) bool { return fields[name].Value.IsZero() })
}

// Validate checks the values; each error is a *[FieldError].
func (c Customizations) Validate() error {
	var found Findings
	n, o := c.Namespaces, newOpenShift()
	if len(n.Included) > 0 && len(n.Excluded) > 0 {
		found.Add("namespaces", nil, "has both included and excluded", "keep one")
	}
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
		found.Add("devActualUtilizationProfile", p, "is not known",
			"want "+strict.Either(append(strict.Names(o.UsageProfiles), "query: and a query")))
	}
	return found.Err()
}

// overlap reports whether two entries of a list of namespaces can match the same namespace.
func overlap(a, b string) bool {
	beginA, manyA := strings.CutSuffix(a, "*")
	beginB, manyB := strings.CutSuffix(b, "*")
	return manyA && (strings.HasPrefix(b, beginA) || manyB && strings.HasPrefix(beginA, beginB)) ||
		manyB && strings.HasPrefix(a, beginB) || a == b
}

// query returns the query of a usage profile, or the text after "query:". It is empty for an unknown profile.
func (o openshift) query(profile string) string {
	if query, own := strings.CutPrefix(profile, "query:"); own {
		return strings.TrimSpace(query)
	}
	return o.UsageProfiles[profile]
}

// chosen is a preset of the file.
type chosen struct {
	presetRow
	written string // its name in the file
	path    string
}

// customized is the field of the customizations.
const customized = "presetCustomizations"

// presets returns the profiles of the presets in the file, and adds the limits that they need to p.
func (r *reader) presets(doc file, p *Policy) []Profile {
	o, c := newOpenShift(), doc.PresetCustomizations
	all := r.choose(o, doc.Presets)
	r.checkCustomizations(doc, o, all)
	if slices.ContainsFunc(r.Invalid, func(p Problem) bool { return strings.HasPrefix(p.Field, customized) }) {
		c = Customizations{} // a consequence of an error is not another error
	}
	var idle []string
	for _, name := range c.given(o.Idle) {
		idle = append(idle, fmt.Sprintf("The customization %s has no effect: %s.", name, o.Idle[name]))
	}
	values := presetValues{o, c, all}
	var profiles []Profile
	for _, one := range all {
		preset := Preset{Name: one.written, Lacks: one.Lacks}
		if one.Profile != "" {
			preset.Profile, preset.Lacks = one.Name, append(slices.Clone(one.Lacks), idle...)
			profiles = append(profiles, r.preset(one, values))
		}
		p.Presets = append(p.Presets, preset)
		if p.Limits.PerNode == nil && one.PerNode > 0 {
			p.Limits.PerNode = &one.PerNode
		}
		if p.Limits.Total == nil && one.Total > 0 {
			p.Limits.Total = &one.Total
		}
	}
	return profiles
}

// checkCustomizations reports customizations, and presets that change other presets, without a preset to change.
func (r *reader) checkCustomizations(doc file, o openshift, all []chosen) {
	c := doc.PresetCustomizations
	changing := slices.IndexFunc(all, func(one chosen) bool { return one.Profile == "" })
	moving := slices.IndexFunc(all, func(one chosen) bool { return one.Profile != "" })
	switch {
	case len(doc.Presets) == 0 && !reflect.ValueOf(c).IsZero():
		r.wrong(customized, nil, "changes presets, and there is none", "name them in presets, or remove it")
	case len(all) < len(doc.Presets): // an unknown one may be the one that is changed
	case moving < 0 && changing >= 0:
		r.wrong(all[0].path, all[0].written, "changes other presets, and there is none", "add one that moves pods, or remove it")
	case moving >= 0:
		for _, name := range c.given(o.Strategies) {
			strategy := o.Strategies[name]
			if !slices.ContainsFunc(all, func(one chosen) bool { return strings.Contains(one.Profile, strategy) }) {
				r.wrong(customized+"."+name, nil, "changes none of the presets", "remove it, or add a preset that uses "+strategy)
			}
		}
	}
}

// choose returns the presets that the file names. It reports unknown and repeated ones, and two that conflict, at the
// later one.
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

// preset reads the profile of a preset like one of the file. Its problems are reported at the preset, or at the
// customization that causes them.
func (r *reader) preset(one chosen, values presetValues) Profile {
	var b strings.Builder
	err := template.Must(template.New(one.Name).Funcs(template.FuncMap{"json": inJSON}).Parse(one.Profile)).Execute(&b, values)
	w := fileProfile{Name: one.Name}
	r.check(one.path, errors.Join(err, strict.Read([]byte(b.String()), &w)))
	r.origins[one.path+"."] = origin{one.path, true}
	for i := range w.PluginConfig {
		for from, to := range map[string]string{
			".priorityThreshold": "thresholdPriority", ".priorityThreshold.name": "thresholdPriorityClassName",
			".evictableNamespaces": "namespaces", ".evictableNamespaces.include": "namespaces.included",
		} {
			r.origins[one.path+".pluginConfig"+Item(i)+".args"+from] = origin{"presetCustomizations." + to, true}
		}
		if values.DevActualUtilizationProfile != "" {
			r.origins[one.path+".pluginConfig"+Item(i)+".args.metricsUtilization"] =
				origin{"presetCustomizations.devActualUtilizationProfile", true}
		}
	}
	return r.profile(w, one.path)
}

func inJSON(value any) (string, error) {
	data, err := json.Marshal(value)
	return string(data), err
}

// presetValues are the values of the customizations for the templates of profiles.
type presetValues struct {
	openshift
	Customizations
	all []chosen
}

// Evictor returns the protections of most presets.
func (v presetValues) Evictor() EvictorArgs {
	a := EvictorArgs{PriorityThreshold: PriorityThreshold{Value: v.ThresholdPriority, Name: v.ThresholdPriorityClassName}}
	has := func(name string) bool {
		return slices.ContainsFunc(v.all, func(c chosen) bool { return c.Name == name })
	}
	if !has("EvictPodsWithPVC") {
		a.PodProtections.ExtraEnabled = []string{PodsWithPVC}
	}
	if has("EvictPodsWithLocalStorage") {
		a.PodProtections.DefaultDisabled = []string{PodsWithLocalStorage}
	}
	return a
}

// Namespaces returns the namespaces of presets.
func (v presetValues) Namespaces() Namespaces {
	if n := v.Customizations.Namespaces; len(n.Included) > 0 {
		return Namespaces{Include: n.Included}
	}
	n := Namespaces{Exclude: slices.Clone(v.ProtectedNamespaces)}
	for _, name := range v.Customizations.Namespaces.Excluded {
		if !slices.Contains(n.Exclude, name) {
			n.Exclude = append(n.Exclude, name)
		}
	}
	return n
}

// Seconds returns the age of pods.
func (v presetValues) Seconds(otherwise int64) int64 {
	return cmp.Or(int64(v.PodLifetime.Seconds()), otherwise)
}

// Busy returns the arguments of LowNodeUtilization by the requests of pods, unless the file changes that.
func (v presetValues) Busy() map[string]any {
	if v.DevDeviation != "" {
		return v.Nodes("devDeviationThresholds", v.DevDeviation, v.DevActualUtilizationProfile)
	}
	const field = "devLowNodeUtilizationThresholds"
	return v.Nodes(field, cmp.Or(v.DevLowNodeUtilizationThresholds, "Medium"), v.DevActualUtilizationProfile)
}

// Nodes returns the arguments of a strategy for whole nodes: at the level of a customization, and measured by a usage
// profile, or by requests if it is empty.
func (v presetValues) Nodes(field, name, usage string) map[string]any {
	args, to := map[string]any{"evictableNamespaces": v.Namespaces()}, v.Levels[field][name]
	resources := []string{"cpu", "memory", "pods"}
	if usage != "" {
		resources = []string{string(schemas.LoadMetric)}
		args["metricsUtilization"] = map[string]any{"source": LoadPrometheus, "prometheus": map[string]any{"query": v.query(usage)}}
	}
	low, high := map[string]any{}, map[string]any{}
	for _, name := range resources {
		low[name], high[name] = to.Low, to.High
	}
	args["thresholds"] = low
	if to.High > 0 {
		args["targetThresholds"] = high
	}
	if field == "devDeviationThresholds" {
		args["useDeviationThresholds"] = true
	}
	return args
}
