package policy

import (
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
)

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

	Presets              []string       `json:"presets"`
	PresetCustomizations customizations `json:"presetCustomizations"`

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
