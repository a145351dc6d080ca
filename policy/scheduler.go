package policy

import (
	"fmt"
	"os"

	"github.com/rehome-dev/rehome/fit/score"
)

// Scheduler describes the scheduler of the cluster. The zero value is its default profile.
type Scheduler struct {
	// Profile is how the scheduler scores nodes: LeastAllocated, MostAllocated, or the path of a KubeSchedulerConfiguration.
	// Empty: LeastAllocated.
	Profile string `json:"profile"`
}

// Load returns the profile that Profile names. The error names the path.
func (s Scheduler) Load() (*score.Profile, error) {
	switch s.Profile {
	case "", "LeastAllocated":
		return score.Default(), nil
	case "MostAllocated":
		return score.MostAllocated(), nil
	}
	data, err := os.ReadFile(s.Profile)
	if err != nil {
		return nil, fmt.Errorf("scheduler.profile: %w", err)
	}
	profile, err := score.Read(data)
	if err != nil {
		return nil, fmt.Errorf("scheduler.profile: %s: %w", s.Profile, err)
	}
	return profile, nil
}

// Warnings describes parts of the policy that are valid but work against each other or cannot be checked here.
func (p Policy) Warnings() []string {
	profile, err := p.Scheduler.Load()
	if err != nil {
		return []string{err.Error()}
	}
	var all []string
	for _, of := range p.Profiles {
		for _, s := range of.Strategies {
			if s.Name == "HighNodeUtilization" && profile.PrefersEmptyNodes() {
				all = append(all, fmt.Sprintf("profile %s: HighNodeUtilization empties nodes that the scheduler fills again, because it "+
					"prefers the least allocated nodes; use the scoring strategy MostAllocated in the scheduler, and set "+
					"scheduler.profile", of.Name))
			}
		}
	}
	return all
}
