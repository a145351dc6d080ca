package policy

import (
	"testing"

	"github.com/rehome-dev/rehome/policy/strict"
)

// Parts that tests of other packages share with the tests of this one.
var (
	Golden     = golden
	KnownTwo   = known
	Ten        = &ten
	ReadPolicy = func(t *testing.T, text string) Policy { return parse(t, start+text) }
)

// The beginning of a file, and sections of one.
const (
	Start            = start
	WithPrometheus   = prometheus
	AllOfMaintenance = allOfMaintenance
)

// DefaultFile returns a base file, with the defaults that a policy has as zero values, and OlderFile one of OlderVersion.
func DefaultFile() any {
	p := Default()
	p.Limits.Window, p.Limits.Unavailable = DefaultWindow, new(DefaultUnavailable())
	p.Maintenance.Restart = new(!Maintenance{}.RestartAsUsual())
	return &file{Policy: p}
}
func OlderFile() any { return &olderFile{} }

// PresetNames returns all names of presets, the older ones included.
func PresetNames() (names []string) {
	for _, p := range newOpenShift().Presets {
		names = append(append(names, p.Name), p.Older...)
	}
	return names
}

// OwnFields returns the fields that only Version has.
func OwnFields() []string { return ownFields() }

// OlderParams, OlderStrategy, and OlderCommon are the parts of a file of OlderVersion.
func OlderParams() (params map[string]olderParams) {
	strict.Embedded(olderYAML, &params)
	return params
}

func OlderStrategy() any { return &olderStrategy{} }
func OlderCommon() any   { return &olderEvictor{} }
