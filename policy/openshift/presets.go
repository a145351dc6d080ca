// Package openshift knows the profiles of OpenShift's descheduler operator, which a policy file may name as presets.
//
//	presets.go         Presets: each as data; which of them conflict; levels and usage profiles
//	customizations.go  Customizations: what changes them, under the operator's names
//
// Package policy makes ordinary profiles of them while it reads a file.
package openshift

import (
	"fmt"
	"slices"
	"strings"
)

// Preset is one of the profiles of OpenShift's descheduler operator, as data.
type Preset struct {
	Name string
	// Older are names that it had, which are still read.
	Older []string
	// Uses are the strategies that it enables. None: it changes the other presets.
	Uses []Use
	// MovesPVC and MovesLocalStorage lift the protection of pods with such volumes; those of a preset that enables nothing
	// do so for all others.
	MovesPVC, MovesLocalStorage bool
	// PreferIsMandatory makes the annotation PreferNoEviction protect a pod.
	PreferIsMandatory bool
	// PerNode and Total are limits that hold when the file has none. 0: it needs none.
	PerNode, Total uint
	// Lacks is what it does in OpenShift and not here.
	Lacks []string
}

// Use is one strategy that a preset enables.
type Use struct {
	Strategy string
	// Args are its arguments, as JSON.
	Args string
	// Utilization makes the rest of the arguments of a strategy that looks at how much of a node is used. nil: another one.
	Utilization *Utilization
}

// Utilization is when a node counts as idle and as busy, in percent.
type Utilization struct {
	Low, High int
	// Deviation: Low and High are distances from the mean of all nodes.
	Deviation bool
	// Profile is one of usageProfiles, or what queryPrefix begins. Empty: it goes by what pods request.
	Profile string
}

// The strategies that customizations change.
const (
	podLifeTime         = "PodLifeTime"
	LowNodeUtilization  = "LowNodeUtilization"
	highNodeUtilization = "HighNodeUtilization"
)

// Presets are all of them, in the order in which they are named to people.
func Presets() []Preset {
	const topology = "RemovePodsViolatingTopologySpreadConstraint"
	restarts := Use{Strategy: "RemovePodsHavingTooManyRestarts",
		Args: `{"podRestartThreshold": 100, "includingInitContainers": true}`}
	busy := Use{Strategy: LowNodeUtilization, Args: `{}`, Utilization: &Utilization{Low: 20, High: 50}}
	return []Preset{
		{Name: "AffinityAndTaints", Uses: []Use{
			{Strategy: "RemovePodsViolatingInterPodAntiAffinity", Args: `{}`},
			{Strategy: "RemovePodsViolatingNodeTaints", Args: `{}`},
			{Strategy: "RemovePodsViolatingNodeAffinity",
				Args: `{"nodeAffinityType": ["requiredDuringSchedulingIgnoredDuringExecution"]}`},
		}},
		{Name: "TopologyAndDuplicates", Uses: []Use{
			{Strategy: topology, Args: `{"constraints": ["DoNotSchedule"]}`},
			{Strategy: "RemoveDuplicates", Args: `{}`},
		}},
		{Name: "SoftTopologyAndDuplicates", Uses: []Use{
			{Strategy: topology, Args: `{"constraints": ["DoNotSchedule", "ScheduleAnyway"]}`},
			{Strategy: "RemoveDuplicates", Args: `{}`},
		}},
		{Name: "LifecycleAndUtilization", Uses: []Use{
			{Strategy: podLifeTime, Args: `{"maxPodLifeTimeSeconds": 86400}`}, restarts, busy,
		}},
		{Name: "LongLifecycle", Older: []string{"DevPreviewLongLifecycle"}, Uses: []Use{restarts, busy}},
		{Name: "CompactAndScale", Uses: []Use{
			{Strategy: highNodeUtilization, Args: `{}`, Utilization: &Utilization{Low: 20}},
		}},
		{
			Name: "KubeVirtRelieveAndMigrate", Older: []string{"DevKubeVirtRelieveAndMigrate"},
			Uses: []Use{{Strategy: LowNodeUtilization, Args: `{}`,
				Utilization: &Utilization{High: 10, Deviation: true, Profile: "PrometheusCPUCombined"}}},
			MovesPVC: true, MovesLocalStorage: true, PreferIsMandatory: true, PerNode: 2, Total: 5,
			Lacks: []string{
				"It puts a taint of the effect PreferNoSchedule on busy nodes, so that pods do not come back to them.",
				"It knows live migrations, and leaves a virtual machine alone for a while after one. Of the marks on a pod, those " +
					"listed as Signal below count.",
				"It waits for evictions that become live migrations in the background. Such an eviction is deferred here, and " +
					"tried again until the pod is gone.",
			},
		},
		{Name: "EvictPodsWithLocalStorage", MovesLocalStorage: true},
		{Name: "EvictPodsWithPVC", MovesPVC: true},
	}
}

// Level is a word for two numbers in percent.
type Level struct {
	Name      string
	Low, High int
}

// BusyLevels are the words for how busy a node is.
func BusyLevels() []Level { return []Level{{"Low", 10, 30}, {"Medium", 20, 50}, {"High", 40, 70}} }

// IdleLevels are the words for how idle a node is; they have no High.
func IdleLevels() []Level { return []Level{{"Minimal", 10, 0}, {"Modest", 20, 0}, {"Moderate", 30, 0}} }

// DeviationLevels are the words for distances from the mean.
func DeviationLevels() []Level {
	return []Level{
		{"Low", 10, 10}, {"Medium", 20, 20}, {"High", 30, 30},
		{"AsymmetricLow", 0, 10}, {"AsymmetricMedium", 0, 20}, {"AsymmetricHigh", 0, 30},
	}
}

// queryPrefix begins a usage profile that is a query of its own.
const queryPrefix = "query:"

// UsageProfile is a way to measure how busy a node is: a query that gives each node, by the label instance, a number from
// 0 to 1. The queries ask for what the node exporter measures, and need no recording rules.
type UsageProfile struct{ Name, Query string }

// UsageProfiles lists all.
func UsageProfiles() []UsageProfile {
	const (
		cpu     = `1 - avg by (instance) (rate(node_cpu_seconds_total{mode="idle"}[5m]))`
		memory  = `1 - max by (instance) (node_memory_MemAvailable_bytes / node_memory_MemTotal_bytes)`
		waitCPU = `max by (instance) (rate(node_pressure_cpu_waiting_seconds_total[5m]))`
		waitMem = `max by (instance) (rate(node_pressure_memory_waiting_seconds_total[5m]))`
		waitIO  = `max by (instance) (rate(node_pressure_io_waiting_seconds_total[5m]))`
	)
	return []UsageProfile{
		{"PrometheusCPUUsage", cpu},
		{"PrometheusCPUPSIPressure", waitCPU},
		{"PrometheusCPUPSIPressureByUtilization", waitCPU + ` * on (instance) (` + cpu + ` > bool 0.7)`},
		{"PrometheusMemoryPSIPressure", waitMem},
		{"PrometheusIOPSIPressure", waitIO},
		{"PrometheusCPUCombined", greatest(cpu, waitCPU)},
		{"PrometheusCPUMemoryCombined", greatest(cpu, waitCPU, memory, waitMem)},
	}
}

// greatest is a query for the greatest of what several give for a node.
func greatest(queries ...string) string {
	labelled := make([]string, len(queries))
	for i, q := range queries {
		labelled[i] = fmt.Sprintf(`label_replace(%s, "of", "%d", "", "")`, q, i)
	}
	return "max by (instance) (" + strings.Join(labelled, " or ") + ")"
}

// ProtectedNamespaces are those that no preset looks at.
func ProtectedNamespaces() []string { return []string{"kube-system", "hypershift", "openshift-*"} }

// Conflict is two presets that would undo each other's work, or do the same work twice.
type Conflict struct {
	One, Other string
	Why        string
}

// Conflicts lists all.
func Conflicts() []Conflict {
	const (
		fills  = "one spreads the pods that the other packs together"
		twice  = "both do the same, one of them to more pods"
		differ = "both relieve busy nodes, each by its own measure"
	)
	return []Conflict{
		{"CompactAndScale", "LifecycleAndUtilization", fills},
		{"CompactAndScale", "LongLifecycle", fills},
		{"CompactAndScale", "KubeVirtRelieveAndMigrate", fills},
		{"CompactAndScale", "TopologyAndDuplicates", fills},
		{"SoftTopologyAndDuplicates", "TopologyAndDuplicates", twice},
		{"LongLifecycle", "LifecycleAndUtilization", twice},
		{"KubeVirtRelieveAndMigrate", "LongLifecycle", differ},
		{"KubeVirtRelieveAndMigrate", "LifecycleAndUtilization", differ},
	}
}

// ConflictOf says why two presets conflict, if they do.
func ConflictOf(a, b string) (why string, conflicts bool) {
	for _, c := range Conflicts() {
		if c.One == a && c.Other == b || c.One == b && c.Other == a {
			return c.Why, true
		}
	}
	return "", false
}

// Find finds a preset by its name, or by one that it had.
func Find(name string) (Preset, bool) {
	for _, p := range Presets() {
		if p.Name == name || slices.Contains(p.Older, name) {
			return p, true
		}
	}
	return Preset{}, false
}

// Names are the names of all presets, sorted.
func Names() []string {
	var all []string
	for _, p := range Presets() {
		all = append(all, p.Name)
	}
	slices.Sort(all)
	return all
}
