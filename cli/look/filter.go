package look

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/app/usage"
	"github.com/rehome-dev/rehome/bus/filter"
)

// FilterFlags are the flags by which a person says which events are meant.
type FilterFlags struct {
	filter.Filter
	pods []string
}

// Bind gives c the flags. types says what --type may be.
func (f *FilterFlags) Bind(c *cobra.Command, types string) {
	flags := c.Flags()
	flags.StringSliceVar(&f.Types, "type", nil, types)
	flags.StringSliceVar(&f.Outcomes, "outcome", nil, "verdicts with one of these outcomes, such as evicted,deferred")
	flags.StringSliceVar(&f.Strategies, "strategy", nil, "what one of these strategies was asked and wanted, and what became of it")
	flags.StringSliceVarP(&f.Namespaces, "namespace", "n", nil, "what is about pods of one of these namespaces")
	flags.StringSliceVar(&f.pods, "pod", nil, "what is about one of these pods, each NAMESPACE/NAME")
	flags.StringSliceVar(&f.Nodes, "node", nil, "what is about one of these nodes, or a pod on it")
	flags.StringSliceVar(&f.Maintenances, "maintenance", nil,
		"what is asked, wanted and done for one of these maintenances, and how far it is")
	flags.StringSliceVar(&f.Correlations, "correlation", nil, "all that followed from one change: its correlationid")
}

// Read returns the filter, or says which flag is wrong.
func (f *FilterFlags) Read() (filter.Filter, error) {
	chosen := f.Filter
	for _, text := range f.pods {
		p, err := filter.ParsePod(text)
		if err != nil {
			return filter.Filter{}, usage.Errorf("--pod: %w", err)
		}
		chosen.Pods = append(chosen.Pods, p)
	}
	if err := chosen.Check(); errors.Is(err, filter.ErrNothing) {
		return filter.Filter{}, usage.Wrap(err)
	} else if err != nil {
		return filter.Filter{}, usage.Errorf("--%w", err)
	}
	return chosen, nil
}
