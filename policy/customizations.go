package policy

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// customizations change what the presets of a file mean, under the names that OpenShift's operator gives them.
type customizations struct {
	PodLifetime                      *metav1.Duration     `json:"podLifetime"`
	ThresholdPriority                *int32               `json:"thresholdPriority"`
	ThresholdPriorityClassName       string               `json:"thresholdPriorityClassName"`
	Namespaces                       customizedNamespaces `json:"namespaces"`
	DevLowNodeUtilizationThresholds  string               `json:"devLowNodeUtilizationThresholds"`
	DevHighNodeUtilizationThresholds string               `json:"devHighNodeUtilizationThresholds"`
	DevDeviationThresholds           string               `json:"devDeviationThresholds"`
	DevActualUtilizationProfile      string               `json:"devActualUtilizationProfile"`

	// The rest is read, so that a file need not be changed, and has no effect; see idle.
	DevEnableEvictionsInBackground bool             `json:"devEnableEvictionsInBackground"`
	DevEnableSoftTainter           bool             `json:"devEnableSoftTainter"`
	DevMigrationCooldown           *metav1.Duration `json:"devMigrationCooldown"`
	DevMaxMigrationCooldown        *metav1.Duration `json:"devMaxMigrationCooldown"`
	DevMigrationHistoryWindow      *metav1.Duration `json:"devMigrationHistoryWindow"`
}

type customizedNamespaces struct {
	Included []string `json:"included"`
	Excluded []string `json:"excluded"`
}

// given says whether the file has any customization.
func (c customizations) given() bool { return !reflect.ValueOf(c).IsZero() }

// idle lists the customizations that are given and have no effect, each with its reason.
func (c customizations) idle() []string {
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

func (c customizations) validate() error {
	var found Findings
	if l := c.PodLifetime; l != nil && l.Duration < time.Second {
		found.Add("podLifetime", l, "must be at least 1s", "")
	}
	_, err := NewEvictor(EvictorArgs{PriorityThreshold: c.priority()})
	for _, e := range fieldErrors(err) {
		found.Add(strings.TrimPrefix(olderField("", e.Field), "."), e.Value, e.Reason, e.Right)
	}
	found.Join("namespaces", c.Namespaces.validate())
	for _, one := range []struct {
		field, value string
		levels       []level
	}{
		{"devLowNodeUtilizationThresholds", c.DevLowNodeUtilizationThresholds, busyLevels()},
		{"devHighNodeUtilizationThresholds", c.DevHighNodeUtilizationThresholds, idleLevels()},
		{"devDeviationThresholds", c.DevDeviationThresholds, deviationLevels()},
	} {
		if _, known := findLevel(one.levels, one.value); one.value != "" && !known {
			found.Add(one.field, one.value, "is not known", "want "+either(levelNames(one.levels)))
		}
	}
	if c.DevLowNodeUtilizationThresholds != "" && c.DevDeviationThresholds != "" {
		found.Add("devDeviationThresholds", c.DevDeviationThresholds,
			"cannot be used together with devLowNodeUtilizationThresholds", "keep one")
	}
	if p := c.DevActualUtilizationProfile; p != "" {
		if _, known := queryOf(p); !known {
			found.Add("devActualUtilizationProfile", p, "is not known", "want "+either(usageNames()))
		}
	}
	return found.Err()
}

func (c customizations) priority() PriorityThreshold {
	return PriorityThreshold{Value: c.ThresholdPriority, Name: c.ThresholdPriorityClassName}
}

func (n customizedNamespaces) validate() error {
	var found Findings
	if len(n.Included) > 0 && len(n.Excluded) > 0 {
		found.Add("", nil, "has both included and excluded", "keep one")
	}
	found.Join("included", validateNames(n.Included))
	found.Join("excluded", validateNames(n.Excluded))
	for i, name := range n.Included {
		for _, protected := range protectedNamespaces() {
			if overlap(name, protected) {
				found.Add("included"+Item(i), name, "is protected from every preset, as part of "+protected,
					"remove it, or write a profile of your own")
			}
		}
	}
	return found.Err()
}

// overlap says whether two entries of [Namespaces] can name the same namespace.
func overlap(a, b string) bool {
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

// useless finds the customizations that no preset of the file takes notice of.
func (c customizations) useless(presets []chosen) error {
	var found Findings
	for _, one := range []struct {
		field    string
		given    bool
		strategy string
		heeds    func(use) bool
	}{
		{"podLifetime", c.PodLifetime != nil, podLifeTime, func(use) bool { return true }},
		{"devLowNodeUtilizationThresholds", c.DevLowNodeUtilizationThresholds != "", lowNodeUtilization,
			func(u use) bool { return !u.utilization.deviation }},
		{"devHighNodeUtilizationThresholds", c.DevHighNodeUtilizationThresholds != "", highNodeUtilization,
			func(use) bool { return true }},
		{"devDeviationThresholds", c.DevDeviationThresholds != "", lowNodeUtilization, func(use) bool { return true }},
		{"devActualUtilizationProfile", c.DevActualUtilizationProfile != "", lowNodeUtilization, func(use) bool { return true }},
	} {
		heeded := slices.ContainsFunc(presets, func(p chosen) bool {
			return slices.ContainsFunc(p.uses, func(u use) bool { return u.strategy == one.strategy && one.heeds(u) })
		})
		if one.given && !heeded {
			found.Add(one.field, nil, "changes none of the presets", "remove it, or add a preset that uses "+one.strategy)
		}
	}
	return found.Err()
}

// tuned is how a strategy measures nodes under the customizations.
func (c customizations) tuned(u use) utilization {
	t := *u.utilization
	if u.strategy == highNodeUtilization {
		if l, given := findLevel(idleLevels(), c.DevHighNodeUtilizationThresholds); given {
			t.low = l.low
		}
		return t
	}
	if l, given := findLevel(busyLevels(), c.DevLowNodeUtilizationThresholds); given && !t.deviation {
		t.low, t.high = l.low, l.high
	}
	if l, given := findLevel(deviationLevels(), c.DevDeviationThresholds); given {
		t.low, t.high, t.deviation = l.low, l.high, true
	}
	if c.DevActualUtilizationProfile != "" {
		t.profile = c.DevActualUtilizationProfile
	}
	return t
}

func findLevel(levels []level, name string) (level, bool) {
	i := slices.IndexFunc(levels, func(l level) bool { return l.name == name })
	if i < 0 {
		return level{}, false
	}
	return levels[i], true
}

func levelNames(levels []level) []string {
	var all []string
	for _, l := range levels {
		all = append(all, l.name)
	}
	return all
}

// queryOf is the query of a usage profile. known is false for one that there is not.
func queryOf(profile string) (query string, known bool) {
	if query, own := strings.CutPrefix(profile, queryPrefix); own {
		return query, strings.TrimSpace(query) != ""
	}
	for _, p := range usageProfiles() {
		if p.name == profile {
			return p.query, true
		}
	}
	return "", false
}

func usageNames() []string {
	var all []string
	for _, p := range usageProfiles() {
		all = append(all, p.name)
	}
	return append(all, queryPrefix+" and a query")
}
