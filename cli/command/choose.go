package command

import (
	"slices"

	"github.com/rehome-dev/rehome/app/usage"
	"github.com/rehome-dev/rehome/functions"
)

// Choose returns the functions of these names, or all for none.
func Choose(all []functions.Function, names []string) ([]functions.Function, error) {
	if len(names) == 0 {
		return all, nil
	}
	var chosen []functions.Function
	for _, name := range names {
		i := slices.Index(Known(all), name)
		if i < 0 {
			return nil, usage.Errorf("no strategy %q; there are: %v", name, Known(all))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// Known are the names of the functions.
func Known(all []functions.Function) []string {
	var names []string
	for _, f := range all {
		names = append(names, f.Strategy.Name)
	}
	return names
}
