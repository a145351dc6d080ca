package policy

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/policy/strict"
	"github.com/rehome-dev/rehome/schemas"
)

// The arguments below have the shape of the arguments of the ten strategies, and reject errors that presets and older
// files could cause.

// podFilter is the common part of most of them.
type podFilter struct {
	Namespaces    Namespaces            `json:"namespaces,omitzero"`
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitzero"`
}

func (f podFilter) Validate() error {
	var found Findings
	found.Join("namespaces", f.Namespaces.Validate())
	found.Join("labelSelector", ValidateSelector(f.LabelSelector))
	return found.Err()
}

type (
	affinityArgs struct {
		podFilter
		Types []string `json:"nodeAffinityType,omitzero"`
	}
	taintsArgs struct {
		podFilter
		Prefer   bool     `json:"includePreferNoSchedule,omitzero"`
		Excluded []string `json:"excludedTaints,omitzero"`
		Included []string `json:"includedTaints,omitzero"`
	}
	spreadArgs struct {
		podFilter
		Constraints []string `json:"constraints"`
		Fit         *bool    `json:"topologyBalanceNodeFit,omitzero"`
	}
	duplicatesArgs struct {
		Namespaces Namespaces `json:"namespaces,omitzero"`
		Kinds      []string   `json:"excludeOwnerKinds,omitzero"`
	}
	restartsArgs struct {
		podFilter
		Threshold int32    `json:"podRestartThreshold,omitzero"`
		Init      bool     `json:"includingInitContainers,omitzero"`
		States    []string `json:"states,omitzero"`
	}
	ageArgs struct {
		podFilter
		MaxAge *uint    `json:"maxPodLifeTimeSeconds,omitzero"`
		States []string `json:"states,omitzero"`
	}
	lowArgs struct {
		Thresholds  map[string]float64 `json:"thresholds,omitzero"`
		Targets     map[string]float64 `json:"targetThresholds,omitzero"`
		Deviation   bool               `json:"useDeviationThresholds,omitzero"`
		Nodes       int                `json:"numberOfNodes,omitzero"`
		Evictable   Namespaces         `json:"evictableNamespaces,omitzero"`
		Utilization struct {
			Server     bool   `json:"metricsServer,omitzero"`
			Source     string `json:"source,omitzero"`
			Prometheus struct {
				Query string `json:"query,omitzero"`
			} `json:"prometheus,omitzero"`
		} `json:"metricsUtilization,omitzero"`
	}
	highArgs struct {
		Thresholds map[string]float64 `json:"thresholds,omitzero"`
		Nodes      int                `json:"numberOfNodes,omitzero"`
		Modes      []string           `json:"evictionModes,omitzero"`
		Evictable  Namespaces         `json:"evictableNamespaces,omitzero"`
	}
)

func (lowArgs) Resources() []corev1.ResourceName     { return nil }
func (lowArgs) Sources([]schemas.NodeUsage) []string { return nil }
func (a lowArgs) Load() Load {
	if a.Utilization.Server {
		return Load{Source: LoadKubernetes}
	}
	return Load{Source: LoadSource(a.Utilization.Source), Query: a.Utilization.Prometheus.Query}
}

func (ageArgs) Due(*corev1.Pod) (time.Time, bool) { return time.Time{}, false }

func (a affinityArgs) Validate() error {
	var found Findings
	found.Join("", a.podFilter.Validate())
	if len(a.Types) == 0 {
		found.Add("nodeAffinityType", nil, "is missing", "")
	}
	return found.Err()
}

func (a spreadArgs) Validate() error {
	var found Findings
	found.Join("", a.podFilter.Validate())
	for i, c := range a.Constraints {
		if c != "DoNotSchedule" && c != "ScheduleAnyway" {
			found.Add("constraints"+Item(i), c, "is not known", "")
		}
	}
	return found.Err()
}

func (a duplicatesArgs) Validate() error { return strict.Under("namespaces", a.Namespaces.Validate()) }

func (a restartsArgs) Validate() error {
	var found Findings
	found.Join("", a.podFilter.Validate())
	if a.Threshold < 1 {
		found.Add("podRestartThreshold", a.Threshold, "must be at least 1", "")
	}
	return found.Err()
}

func (a lowArgs) Validate() error {
	found := percents("thresholds", a.Thresholds)
	found = append(found, percents("targetThresholds", a.Targets)...)
	if !slices.Equal(strict.Names(a.Thresholds), strict.Names(a.Targets)) {
		found.Add("targetThresholds", nil, "has other resources than thresholds", "")
	}
	for name, low := range a.Thresholds {
		if high, both := a.Targets[name]; both && !a.Deviation && low > high {
			found.Add(fmt.Sprintf("thresholds[%s]", name), low, "must be at most its target", "")
		}
	}
	if len(a.Evictable.Include) > 0 {
		found.Add("evictableNamespaces.include", nil, "is not possible", "")
	}
	found.Join("evictableNamespaces", a.Evictable.Validate())
	return found.Err()
}

func (a highArgs) Validate() error {
	found := percents("thresholds", a.Thresholds)
	if len(a.Evictable.Include) > 0 {
		found.Add("evictableNamespaces.include", nil, "is not possible", "")
	}
	found.Join("evictableNamespaces", a.Evictable.Validate())
	return found.Err()
}

func percents(field string, of map[string]float64) Findings {
	var found Findings
	if len(of) == 0 {
		found.Add(field, nil, "is missing", "")
	}
	for _, name := range strict.Names(of) {
		if p := of[name]; p < 0 || p > 100 {
			found.Add(fmt.Sprintf("%s[%s]", field, name), p, "must be from 0 to 100", "")
		}
	}
	return found
}

// ten returns strategies with all strategy names of the descheduler.
func ten() []Strategy {
	hour := uint(3600)
	row := func(name string, point Point, args func() Args) Strategy {
		return Strategy{Name: name, Point: point, Scope: schemas.NodeKind, NewArgs: args}
	}
	return []Strategy{
		row("RemovePodsViolatingNodeTaints", Deschedule, func() Args { return &taintsArgs{} }),
		row("RemovePodsViolatingNodeAffinity", Deschedule, func() Args { return &affinityArgs{} }),
		row("RemovePodsViolatingInterPodAntiAffinity", Deschedule, func() Args { return &podFilter{} }),
		row("RemovePodsHavingTooManyRestarts", Deschedule, func() Args { return &restartsArgs{} }),
		row("PodLifeTime", Deschedule, func() Args { return &ageArgs{} }),
		row("RemoveFailedPods", Deschedule, func() Args { return &failedArgs{MinAge: &hour} }),
		row("RemoveDuplicates", Balance, func() Args { return &duplicatesArgs{} }),
		row("RemovePodsViolatingTopologySpreadConstraint", Balance, func() Args {
			return &spreadArgs{Constraints: []string{"DoNotSchedule"}}
		}),
		row("LowNodeUtilization", Balance, func() Args { return &lowArgs{} }),
		{
			Name: "HighNodeUtilization", Point: Balance, Scope: schemas.NodeKind, NewArgs: func() Args { return &highArgs{} },
			Traits: Traits{EmptiesNodes: true},
		},
	}
}
