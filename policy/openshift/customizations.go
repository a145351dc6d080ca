package openshift

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/policy/strict"
)

// Customizations change what the presets of a file mean, under the names that OpenShift's operator gives them.
type Customizations struct {
	PodLifetime                      *metav1.Duration     `json:"podLifetime"`
	ThresholdPriority                *int32               `json:"thresholdPriority"`
	ThresholdPriorityClassName       string               `json:"thresholdPriorityClassName"`
	Namespaces                       CustomizedNamespaces `json:"namespaces"`
	DevLowNodeUtilizationThresholds  string               `json:"devLowNodeUtilizationThresholds"`
	DevHighNodeUtilizationThresholds string               `json:"devHighNodeUtilizationThresholds"`
	DevDeviationThresholds           string               `json:"devDeviationThresholds"`
	DevActualUtilizationProfile      string               `json:"devActualUtilizationProfile"`

	// The rest is read, so that a file need not be changed, and has no effect; see Idle.
	DevEnableEvictionsInBackground bool             `json:"devEnableEvictionsInBackground"`
	DevEnableSoftTainter           bool             `json:"devEnableSoftTainter"`
	DevMigrationCooldown           *metav1.Duration `json:"devMigrationCooldown"`
	DevMaxMigrationCooldown        *metav1.Duration `json:"devMaxMigrationCooldown"`
	DevMigrationHistoryWindow      *metav1.Duration `json:"devMigrationHistoryWindow"`
}

// CustomizedNamespaces are those that presets look at; at most one list may be used.
type CustomizedNamespaces struct {
	Included []string `json:"included"`
	Excluded []string `json:"excluded"`
}

// Given says whether the file has any customization.
func (c Customizations) Given() bool { return !reflect.ValueOf(c).IsZero() }

// Idle lists the customizations that are given and have no effect, each with its reason.
func (c Customizations) Idle() []string {
	var list []string
	for _, one := range []struct {
		name  string
		given bool
		why   string
	}{
		{"devEnableEvictionsInBackground", c.DevEnableEvictionsInBackground, "an eviction is accepted at once or tried again"},
		{"devEnableSoftTainter", c.DevEnableSoftTainter, "Rehome puts no taint on a node"},
		{"devMigrationCooldown", c.DevMigrationCooldown != nil, "Rehome does not know live migrations"},
		{"devMaxMigrationCooldown", c.DevMaxMigrationCooldown != nil, "Rehome does not know live migrations"},
		{"devMigrationHistoryWindow", c.DevMigrationHistoryWindow != nil, "Rehome does not know live migrations"},
	} {
		if one.given {
			list = append(list, fmt.Sprintf("The customization %s has no effect: %s.", one.name, one.why))
		}
	}
	return list
}

// Validate says what is wrong, but for the priority and the names of namespaces, for which package policy has rules.
func (c Customizations) Validate() error {
	var found strict.Findings
	if l := c.PodLifetime; l != nil && l.Duration < time.Second {
		found.Add("podLifetime", l, "must be at least 1s", "")
	}
	found.Join("namespaces", c.Namespaces.validate())
	for _, one := range []struct {
		field, value string
		levels       []Level
	}{
		{"devLowNodeUtilizationThresholds", c.DevLowNodeUtilizationThresholds, BusyLevels()},
		{"devHighNodeUtilizationThresholds", c.DevHighNodeUtilizationThresholds, IdleLevels()},
		{"devDeviationThresholds", c.DevDeviationThresholds, DeviationLevels()},
	} {
		if _, known := findLevel(one.levels, one.value); one.value != "" && !known {
			found.Add(one.field, one.value, "is not known", "want "+strict.Either(levelNames(one.levels)))
		}
	}
	if c.DevLowNodeUtilizationThresholds != "" && c.DevDeviationThresholds != "" {
		found.Add("devDeviationThresholds", c.DevDeviationThresholds,
			"cannot be used together with devLowNodeUtilizationThresholds", "keep one")
	}
	if p := c.DevActualUtilizationProfile; p != "" {
		if _, known := QueryOf(p); !known {
			found.Add("devActualUtilizationProfile", p, "is not known", "want "+strict.Either(usageNames()))
		}
	}
	return found.Err()
}

func (n CustomizedNamespaces) validate() error {
	var found strict.Findings
	if len(n.Included) > 0 && len(n.Excluded) > 0 {
		found.Add("", nil, "has both included and excluded", "keep one")
	}
	for i, name := range n.Included {
		for _, protected := range ProtectedNamespaces() {
			if Overlap(name, protected) {
				found.Add("included"+strict.Item(i), name, "is protected from every preset, as part of "+protected,
					"remove it, or write a profile of your own")
			}
		}
	}
	return found.Err()
}

// Overlap says whether two entries of a list of namespaces can name the same namespace.
func Overlap(a, b string) bool {
	beginA, manyA := strings.CutSuffix(a, "*")
	beginB, manyB := strings.CutSuffix(b, "*")
	switch {
	case manyA && manyB:
		return strings.HasPrefix(beginA, beginB) || strings.HasPrefix(beginB, beginA)
	case manyA:
		return strings.HasPrefix(b, beginA)
	case manyB:
		return strings.HasPrefix(a, beginB)
	}
	return a == b
}

// Useless finds the customizations that no preset of the file takes notice of.
func (c Customizations) Useless(presets []Preset) error {
	var found strict.Findings
	for _, one := range []struct {
		field    string
		given    bool
		strategy string
		heeds    func(Use) bool
	}{
		{"podLifetime", c.PodLifetime != nil, podLifeTime, func(Use) bool { return true }},
		{"devLowNodeUtilizationThresholds", c.DevLowNodeUtilizationThresholds != "", LowNodeUtilization,
			func(u Use) bool { return !u.Utilization.Deviation }},
		{"devHighNodeUtilizationThresholds", c.DevHighNodeUtilizationThresholds != "", highNodeUtilization,
			func(Use) bool { return true }},
		{"devDeviationThresholds", c.DevDeviationThresholds != "", LowNodeUtilization, func(Use) bool { return true }},
		{"devActualUtilizationProfile", c.DevActualUtilizationProfile != "", LowNodeUtilization, func(Use) bool { return true }},
	} {
		heeded := slices.ContainsFunc(presets, func(p Preset) bool {
			return slices.ContainsFunc(p.Uses, func(u Use) bool { return u.Strategy == one.strategy && one.heeds(u) })
		})
		if one.given && !heeded {
			found.Add(one.field, nil, "changes none of the presets", "remove it, or add a preset that uses "+one.strategy)
		}
	}
	return found.Err()
}

// tuned is how a strategy measures nodes under the customizations.
func (c Customizations) tuned(u Use) Utilization {
	t := *u.Utilization
	if u.Strategy == highNodeUtilization {
		if l, given := findLevel(IdleLevels(), c.DevHighNodeUtilizationThresholds); given {
			t.Low = l.Low
		}
		return t
	}
	if l, given := findLevel(BusyLevels(), c.DevLowNodeUtilizationThresholds); given && !t.Deviation {
		t.Low, t.High = l.Low, l.High
	}
	if l, given := findLevel(DeviationLevels(), c.DevDeviationThresholds); given {
		t.Low, t.High, t.Deviation = l.Low, l.High, true
	}
	if c.DevActualUtilizationProfile != "" {
		t.Profile = c.DevActualUtilizationProfile
	}
	return t
}

func findLevel(levels []Level, name string) (Level, bool) {
	i := slices.IndexFunc(levels, func(l Level) bool { return l.Name == name })
	if i < 0 {
		return Level{}, false
	}
	return levels[i], true
}

func levelNames(levels []Level) []string {
	var all []string
	for _, l := range levels {
		all = append(all, l.Name)
	}
	return all
}

// QueryOf is the query of a usage profile. known is false for one that there is not.
func QueryOf(profile string) (query string, known bool) {
	if query, own := strings.CutPrefix(profile, queryPrefix); own {
		return query, strings.TrimSpace(query) != ""
	}
	for _, p := range UsageProfiles() {
		if p.Name == profile {
			return p.Query, true
		}
	}
	return "", false
}

func usageNames() []string {
	var all []string
	for _, p := range UsageProfiles() {
		all = append(all, p.Name)
	}
	return append(all, queryPrefix+" and a query")
}

// Arguments are those of a strategy under the customizations, as JSON.
func (u Use) Arguments(c Customizations) ([]byte, error) {
	args := map[string]any{}
	if err := json.Unmarshal([]byte(u.Args), &args); err != nil {
		return nil, err
	}
	namespaces := map[string]any{"include": c.Namespaces.Included}
	if len(c.Namespaces.Included) == 0 || u.Utilization != nil {
		excluded := ProtectedNamespaces()
		for _, name := range c.Namespaces.Excluded {
			if !slices.Contains(excluded, name) {
				excluded = append(excluded, name)
			}
		}
		namespaces = map[string]any{"exclude": excluded}
	}
	if u.Utilization == nil {
		args["namespaces"] = namespaces
	} else {
		args["evictableNamespaces"] = namespaces
		c.tuned(u).fill(args)
	}
	if u.Strategy == podLifeTime && c.PodLifetime != nil {
		args["maxPodLifeTimeSeconds"] = int64(c.PodLifetime.Seconds())
	}
	return json.Marshal(args)
}

// fill adds the arguments that say when a node is idle or busy.
func (t Utilization) fill(args map[string]any) {
	resources := []string{"cpu", "memory", "pods"}
	if t.Profile != "" {
		resources = []string{"MetricResource"} // the name of what a query measures
		query, _ := QueryOf(t.Profile)
		args["metricsUtilization"] = map[string]any{"source": "Prometheus", "prometheus": map[string]any{"query": query}}
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
}
