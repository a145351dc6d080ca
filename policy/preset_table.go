package policy

import (
	"fmt"
	"strings"
)

// preset is one of the profiles of OpenShift's descheduler operator, as data.
type preset struct {
	name string
	// older are names that it had, which are still read.
	older []string
	// uses are the strategies that it enables. None: it changes the other presets.
	uses []use
	// movesPVC and movesLocalStorage lift the protection of pods with such volumes; those of a preset that enables nothing
	// do so for all others.
	movesPVC, movesLocalStorage bool
	// preferIsMandatory makes the annotation PreferNoEviction protect a pod.
	preferIsMandatory bool
	// perNode and total are limits that hold when the file has none. 0: it needs none.
	perNode, total uint
	// lacks is what it does in OpenShift and not here.
	lacks []string
}

// use is one strategy that a preset enables.
type use struct {
	strategy string
	// args are its arguments, as JSON.
	args string
	// utilization makes the rest of the arguments of a strategy that looks at how much of a node is used. nil: another one.
	utilization *utilization
}

// utilization is when a node counts as idle and as busy, in percent.
type utilization struct {
	low, high int
	// deviation: low and high are distances from the mean of all nodes.
	deviation bool
	// profile is one of usageProfiles, or what queryPrefix begins. Empty: it goes by what pods request.
	profile string
}

const (
	podLifeTime         = "PodLifeTime"
	lowNodeUtilization  = "LowNodeUtilization"
	highNodeUtilization = "HighNodeUtilization"

	evictWithLocalStorage = "EvictPodsWithLocalStorage"
	evictWithPVC          = "EvictPodsWithPVC"
)

// presets are all of them, in the order in which they are named to people.
func presets() []preset {
	const topology = "RemovePodsViolatingTopologySpreadConstraint"
	restarts := use{strategy: "RemovePodsHavingTooManyRestarts",
		args: `{"podRestartThreshold": 100, "includingInitContainers": true}`}
	busy := use{strategy: lowNodeUtilization, args: `{}`, utilization: &utilization{low: 20, high: 50}}
	return []preset{
		{name: "AffinityAndTaints", uses: []use{
			{strategy: "RemovePodsViolatingInterPodAntiAffinity", args: `{}`},
			{strategy: "RemovePodsViolatingNodeTaints", args: `{}`},
			{strategy: "RemovePodsViolatingNodeAffinity",
				args: `{"nodeAffinityType": ["requiredDuringSchedulingIgnoredDuringExecution"]}`},
		}},
		{name: "TopologyAndDuplicates", uses: []use{
			{strategy: topology, args: `{"constraints": ["DoNotSchedule"]}`},
			{strategy: "RemoveDuplicates", args: `{}`},
		}},
		{name: "SoftTopologyAndDuplicates", uses: []use{
			{strategy: topology, args: `{"constraints": ["DoNotSchedule", "ScheduleAnyway"]}`},
			{strategy: "RemoveDuplicates", args: `{}`},
		}},
		{name: "LifecycleAndUtilization", uses: []use{
			{strategy: podLifeTime, args: `{"maxPodLifeTimeSeconds": 86400}`}, restarts, busy,
		}},
		{name: "LongLifecycle", older: []string{"DevPreviewLongLifecycle"}, uses: []use{restarts, busy}},
		{name: "CompactAndScale", uses: []use{
			{strategy: highNodeUtilization, args: `{}`, utilization: &utilization{low: 20}},
		}},
		{
			name: "KubeVirtRelieveAndMigrate", older: []string{"DevKubeVirtRelieveAndMigrate"},
			uses: []use{{strategy: lowNodeUtilization, args: `{}`,
				utilization: &utilization{high: 10, deviation: true, profile: "PrometheusCPUCombined"}}},
			movesPVC: true, movesLocalStorage: true, preferIsMandatory: true, perNode: 2, total: 5,
			lacks: []string{
				"It puts a taint of the effect PreferNoSchedule on busy nodes, so that pods do not come back to them.",
				"It knows live migrations, and leaves a virtual machine alone for a while after one. Of the marks on a pod, those " +
					"listed as Signal below count.",
				"It waits for evictions that become live migrations in the background. Such an eviction is deferred here, and " +
					"tried again until the pod is gone.",
			},
		},
		{name: evictWithLocalStorage, movesLocalStorage: true},
		{name: evictWithPVC, movesPVC: true},
	}
}

// level is a word for two numbers in percent.
type level struct {
	name      string
	low, high int
}

// busyLevels, idleLevels and deviationLevels are what the customizations of those strategies can be.
func busyLevels() []level { return []level{{"Low", 10, 30}, {"Medium", 20, 50}, {"High", 40, 70}} }

func idleLevels() []level { return []level{{"Minimal", 10, 0}, {"Modest", 20, 0}, {"Moderate", 30, 0}} }

func deviationLevels() []level {
	return []level{
		{"Low", 10, 10}, {"Medium", 20, 20}, {"High", 30, 30},
		{"AsymmetricLow", 0, 10}, {"AsymmetricMedium", 0, 20}, {"AsymmetricHigh", 0, 30},
	}
}

// queryPrefix begins a usage profile that is a query of its own.
const queryPrefix = "query:"

// usageProfile is a way to measure how busy a node is: a query that gives each node, by the label instance, a number from
// 0 to 1. The queries ask for what the node exporter measures, and need no recording rules.
type usageProfile struct{ name, query string }

func usageProfiles() []usageProfile {
	const (
		cpu     = `1 - avg by (instance) (rate(node_cpu_seconds_total{mode="idle"}[5m]))`
		memory  = `1 - max by (instance) (node_memory_MemAvailable_bytes / node_memory_MemTotal_bytes)`
		waitCPU = `max by (instance) (rate(node_pressure_cpu_waiting_seconds_total[5m]))`
		waitMem = `max by (instance) (rate(node_pressure_memory_waiting_seconds_total[5m]))`
		waitIO  = `max by (instance) (rate(node_pressure_io_waiting_seconds_total[5m]))`
	)
	return []usageProfile{
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

// protectedNamespaces are those that no preset looks at.
func protectedNamespaces() []string { return []string{"kube-system", "hypershift", "openshift-*"} }
