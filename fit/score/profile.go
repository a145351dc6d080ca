package score

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	config "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/yaml" //nolint:depguard // the types of the scheduler have json tags
)

// Plugin is the name of a score plugin of the scheduler.
type Plugin string

// The plugins that are predicted.
const (
	NodeResourcesFit                Plugin = "NodeResourcesFit"
	NodeResourcesBalancedAllocation Plugin = "NodeResourcesBalancedAllocation"
	TaintToleration                 Plugin = "TaintToleration"
	NodeAffinity                    Plugin = "NodeAffinity"
	PodTopologySpread               Plugin = "PodTopologySpread"
	InterPodAffinity                Plugin = "InterPodAffinity"
)

// Profile is the part of a scheduler's profile that scores nodes. It does not change after it was made, so any number of
// goroutines may share it.
type Profile struct {
	// Weights are by plugin. A plugin without a weight is off.
	Weights map[Plugin]int64
	// Strategy is the scoring strategy of NodeResourcesFit. Balanced are the resources of NodeResourcesBalancedAllocation.
	Strategy config.ScoringStrategy
	Balanced []config.ResourceSpec
	// Spread are the constraints of pods that have none.
	Spread config.PodTopologySpreadArgs
	// RequiredAffinity is the weight of a required affinity term of another pod. OwnAffinity ignores the preferred terms of
	// other pods for a pod that has none.
	RequiredAffinity int64
	OwnAffinity      bool
}

// Default returns the scheduler's default profile. It prefers the nodes with the least allocated resources.
func Default() *Profile {
	both := []config.ResourceSpec{{Name: string(corev1.ResourceCPU), Weight: 1}, {Name: string(corev1.ResourceMemory), Weight: 1}}
	return &Profile{
		Weights: map[Plugin]int64{
			NodeResourcesFit: 1, NodeResourcesBalancedAllocation: 1, TaintToleration: 3, NodeAffinity: 2, PodTopologySpread: 2,
			InterPodAffinity: 2,
		},
		Strategy: config.ScoringStrategy{Type: config.LeastAllocated, Resources: both},
		Balanced: both,
		Spread: config.PodTopologySpreadArgs{
			DefaultingType: config.SystemDefaulting,
			DefaultConstraints: []corev1.TopologySpreadConstraint{
				{TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway, MaxSkew: 3},
				{TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.ScheduleAnyway, MaxSkew: 5},
			},
		},
		RequiredAffinity: 1,
	}
}

// MostAllocated returns the default profile, but it prefers the nodes with the most allocated resources.
func MostAllocated() *Profile {
	p := Default()
	p.Strategy.Type = config.MostAllocated
	return p
}

// PrefersEmptyNodes reports whether NodeResourcesFit prefers the nodes with the least allocated resources.
func (p *Profile) PrefersEmptyNodes() bool {
	return p.Weights[NodeResourcesFit] > 0 && p.Strategy.Type == config.LeastAllocated
}

// Read reads the profile default-scheduler of a KubeSchedulerConfiguration, in YAML or JSON. It rejects unknown fields,
// numbers that the scheduler rejects, and settings that change the chosen node in a way that cannot be predicted: an
// extender, a score plugin that is not one of the scheduler's own, or addedAffinity.
func Read(data []byte) (*Profile, error) {
	var c config.KubeSchedulerConfiguration
	if err := yaml.UnmarshalStrict(data, &c); err != nil {
		return nil, err
	}
	if c.Kind != "KubeSchedulerConfiguration" || c.APIVersion != config.SchemeGroupVersion.String() {
		return nil, fmt.Errorf("is %s %s, want %s KubeSchedulerConfiguration", c.APIVersion, c.Kind, config.SchemeGroupVersion)
	}
	if len(c.Extenders) > 0 {
		return nil, fmt.Errorf("extenders cannot be predicted")
	}
	p := Default()
	if len(c.Profiles) == 0 {
		return p, nil
	}
	i := slices.IndexFunc(c.Profiles, func(p config.KubeSchedulerProfile) bool {
		return p.SchedulerName == nil || *p.SchedulerName == corev1.DefaultSchedulerName
	})
	if i < 0 {
		return nil, fmt.Errorf("has no profile %s", corev1.DefaultSchedulerName)
	}
	if err := p.weigh(c.Profiles[i].Plugins); err != nil {
		return nil, err
	}
	for _, plugin := range c.Profiles[i].PluginConfig {
		if err := p.configure(Plugin(plugin.Name), plugin.Args.Raw); err != nil {
			return nil, fmt.Errorf("pluginConfig %s: %w", plugin.Name, err)
		}
	}
	return p, nil
}

// weigh applies the plugins of a profile: multiPoint first, then score.
func (p *Profile) weigh(plugins *config.Plugins) error {
	if plugins == nil {
		return nil
	}
	known := maps.Clone(p.Weights)
	for _, set := range []config.PluginSet{plugins.MultiPoint, plugins.Score} {
		for _, off := range set.Disabled {
			if off.Name == "*" {
				clear(p.Weights)
			}
			delete(p.Weights, Plugin(off.Name))
		}
		for _, on := range set.Enabled {
			if _, ours := known[Plugin(on.Name)]; ours {
				p.Weights[Plugin(on.Name)] = 1
				if on.Weight != nil && *on.Weight != 0 {
					p.Weights[Plugin(on.Name)] = int64(*on.Weight)
				}
			}
		}
	}
	for _, on := range plugins.Score.Enabled {
		if _, ours := known[Plugin(on.Name)]; !ours && !slices.Contains(constant(), on.Name) {
			return fmt.Errorf("score plugin %s cannot be predicted", on.Name)
		}
	}
	return nil
}

// The highest numbers that the scheduler takes: the weight of a resource or an affinity term, and the score of a point of a
// shape.
const (
	mostWeight     = 100
	mostShapeScore = 10
)

// constant returns the scheduler's score plugins that are not predicted: their score is the same for all nodes, or
// omitted.
func constant() []string { return []string{"ImageLocality", "VolumeBinding", "DynamicResources"} }

// configure applies the arguments of one plugin. Arguments that do not score nodes have no effect.
//
//nolint:gocyclo // one case for each plugin
func (p *Profile) configure(plugin Plugin, args []byte) error {
	switch plugin {
	case NodeResourcesFit:
		var a config.NodeResourcesFitArgs
		if err := yaml.UnmarshalStrict(args, &a); err != nil || a.ScoringStrategy == nil {
			return err
		}
		return p.strategy(a.ScoringStrategy)
	case NodeResourcesBalancedAllocation:
		var a config.NodeResourcesBalancedAllocationArgs
		if err := yaml.UnmarshalStrict(args, &a); err != nil || len(a.Resources) == 0 {
			return err
		}
		p.Balanced = a.Resources
	case PodTopologySpread:
		var a config.PodTopologySpreadArgs
		if err := yaml.UnmarshalStrict(args, &a); err != nil {
			return err
		}
		if i := slices.IndexFunc(a.DefaultConstraints, func(c corev1.TopologySpreadConstraint) bool { return c.MaxSkew < 1 }); i >= 0 {
			return fmt.Errorf("defaultConstraints[%d].maxSkew: want at least 1, got %d", i, a.DefaultConstraints[i].MaxSkew)
		}
		if a.DefaultingType == config.ListDefaulting {
			p.Spread = a
		}
	case InterPodAffinity:
		var a config.InterPodAffinityArgs
		if err := yaml.UnmarshalStrict(args, &a); err != nil {
			return err
		}
		if weight := a.HardPodAffinityWeight; weight != nil {
			if p.RequiredAffinity = int64(*weight); *weight < 0 || *weight > mostWeight {
				return fmt.Errorf("hardPodAffinityWeight: want 0 to %d, got %d", mostWeight, *weight)
			}
		}
		p.OwnAffinity = a.IgnorePreferredTermsOfExistingPods
	case NodeAffinity:
		var a config.NodeAffinityArgs
		if err := yaml.UnmarshalStrict(args, &a); err != nil {
			return err
		}
		if a.AddedAffinity != nil {
			return fmt.Errorf("addedAffinity cannot be predicted")
		}
	}
	return nil
}

// strategy applies the strategy of NodeResourcesFit.
func (p *Profile) strategy(s *config.ScoringStrategy) error {
	if s.Type != "" {
		p.Strategy.Type = s.Type
	}
	if len(s.Resources) > 0 {
		p.Strategy.Resources = slices.Clone(s.Resources)
	}
	for i := range p.Strategy.Resources {
		r := &p.Strategy.Resources[i]
		if r.Weight == 0 {
			r.Weight = 1
		}
		if r.Weight < 0 || r.Weight > mostWeight {
			return fmt.Errorf("scoringStrategy.resources: the weight of %s: want 1 to %d, got %d", r.Name, mostWeight, r.Weight)
		}
	}
	switch p.Strategy.Type {
	case config.LeastAllocated, config.MostAllocated:
		return nil
	case config.RequestedToCapacityRatio:
	default:
		return fmt.Errorf("scoringStrategy.type %q is not known", s.Type)
	}
	p.Strategy.RequestedToCapacityRatio = s.RequestedToCapacityRatio
	if s.RequestedToCapacityRatio == nil || len(s.RequestedToCapacityRatio.Shape) == 0 {
		return fmt.Errorf("requestedToCapacityRatio has no shape")
	}
	return checkShape(s.RequestedToCapacityRatio.Shape)
}

// checkShape checks the points of a shape.
func checkShape(shape []config.UtilizationShapePoint) error {
	last := int32(-1)
	for i, point := range shape {
		if point.Utilization <= last || point.Utilization > 100 || point.Score < 0 || point.Score > mostShapeScore {
			return fmt.Errorf("requestedToCapacityRatio.shape[%d]: want a utilization up to 100 that is higher than the one before, "+
				"and a score from 0 to %d, got %d and %d", i, mostShapeScore, point.Utilization, point.Score)
		}
		last = point.Utilization
	}
	return nil
}
