package look

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/bus/filter"
	"github.com/rehome-dev/rehome/cli/cmdutil"
	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
)

func eventsCommand() *cobra.Command {
	var query eventsQuery
	c := &cobra.Command{
		Use:   "events",
		Short: "Show past events, and with --follow new ones",
		Long: "Show the events of the history, such as deltas and verdicts, and with --follow new ones.\n\n" +
			"Flags filter the events. A flag can be repeated or have several values separated by commas, and matches if one of\n" +
			"its values matches. All flags must match. An event without the property does not match: only verdicts have an\n" +
			"outcome, deltas have no strategy, and events about a whole node have no namespace.",
		Example: "  rehome events --follow                    # all new events\n" +
			"  rehome events --since 1h -o json          # the last hour, one CloudEvent per line\n" +
			"  rehome events --type verdict --since 72h  # all moves and all deferred or rejected ones\n" +
			"  rehome events --type scope --follow       # new scopes for functions\n\n" +
			"  # Progress of node maintenances:\n" +
			"  rehome events --type maintenance --since 24h --follow\n" +
			"  rehome events --maintenance kernel --since 24h    # and all events about one of them\n\n" +
			"  # Why did the pods of a namespace not move?\n" +
			"  rehome events -n shop --outcome deferred,rejected,failed\n\n" +
			"  # One node, one pod, and all consequences of one change:\n" +
			"  rehome events --node worker-7 --since 1h\n" +
			"  rehome events --pod shop/cart-0\n" +
			"  rehome events --correlation p4xq2m6tkw3zv7hbn5cjd2rlye",
		Args: cobra.NoArgs,
	}
	s := cmdutil.Settings(c).Reach()
	format := ""
	c.Flags().BoolVarP(&query.follow, "follow", "f", false, "continue with new events")
	query.since = cmdutil.Since(c, "start this long ago; without --follow the default is everything")
	query.flags.Bind(c, strings.Join(filter.History(), ", ")+
		", or with --follow scope and request;\nthe default is all but these two")
	cmdutil.Choice(c, &format, "output", "o", "json: one CloudEvent per line", "", "json")
	c.RunE = func(c *cobra.Command, _ []string) error {
		ask, err := query.read()
		if err != nil {
			return err
		}
		to, err := s.Open(c.Context(), cmdutil.Reader)
		if err != nil {
			return err
		}
		defer to.Close()
		show := ShowText
		if format == "json" {
			show = ShowJSON
		}
		return to.Events(c.Context(), ask, func(e schemas.Event) error { return show(c.OutOrStdout(), e) })
	}
	return c
}

type eventsQuery struct {
	follow bool
	since  func() (time.Time, error)
	flags  FilterFlags
}

// read returns the query. Without --since and --follow it selects everything.
func (q eventsQuery) read() (ask cmdutil.EventQuery, err error) {
	if ask.Filter, err = q.flags.Read(); err != nil {
		return ask, err
	}
	for _, noun := range []string{filter.Scope, filter.Request} {
		if ask.Wants(noun) && !q.follow {
			return ask, fmt.Errorf("--type: %ss have no history: use --follow", noun)
		}
	}
	ask.Follow = q.follow
	if ask.Since, err = q.since(); ask.Since.IsZero() && !q.follow {
		ask.Since = time.Unix(0, 0)
	}
	return ask, err
}

// ShowJSON writes the event as one CloudEvent in structured mode, on one line.
func ShowJSON(w io.Writer, e schemas.Event) error {
	line, err := cloudevent.WriteStructured(e)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", line)
	return err
}

// ShowText writes the event as one line of printable text.
func ShowText(w io.Writer, e schemas.Event) error {
	noun, about, text := schemas.Describe(e)
	what := fmt.Sprintf("%-8s %s", noun, about)
	line := fmt.Sprintf("%s  %-41s %s", e.Time.Local().Format("15:04:05.000"), what, text)
	_, err := fmt.Fprintln(w, cmdutil.Printable(line))
	return err
}

// FilterFlags are the flags that filter events.
type FilterFlags struct {
	filter.Filter
	pods []string
}

// Bind adds the flags to c. types describes the values of --type.
func (f *FilterFlags) Bind(c *cobra.Command, types string) {
	flags := c.Flags()
	flags.StringSliceVar(&f.Types, "type", nil, types)
	flags.StringSliceVar(&f.Outcomes, "outcome", nil, "verdicts with these outcomes, such as evicted,deferred")
	flags.StringSliceVar(&f.Strategies, "strategy", nil, "scopes, intents, and verdicts of these strategies")
	flags.StringSliceVarP(&f.Namespaces, "namespace", "n", nil, "events about pods in these namespaces")
	flags.StringSliceVar(&f.pods, "pod", nil, "events about these pods, each NAMESPACE/NAME")
	flags.StringSliceVar(&f.Nodes, "node", nil, "events about these nodes or pods on them")
	flags.StringSliceVar(&f.Maintenances, "maintenance", nil,
		"events about these maintenances")
	cmdutil.CompleteValues(c, "type", filter.Nouns()...)
	cmdutil.CompleteValues(c, "outcome", words(schemas.Outcomes())...)
	cmdutil.CompleteValues(c, "strategy", functions.Names(functions.Hosted())...)
	cmdutil.CompleteNamespaces(c, cmdutil.Settings(c))
	flags.StringSliceVar(&f.Correlations, "correlation", nil, "all consequences of one change, by its correlationid")
}

// Read returns the filter, or an error about a flag.
func (f *FilterFlags) Read() (filter.Filter, error) {
	chosen := f.Filter
	for _, text := range f.pods {
		p, err := filter.ParsePod(text)
		if err != nil {
			return filter.Filter{}, fmt.Errorf("--pod: %w", err)
		}
		chosen.Pods = append(chosen.Pods, p)
	}
	if err := chosen.Check(); errors.Is(err, filter.ErrNothing) {
		return filter.Filter{}, err
	} else if err != nil {
		return filter.Filter{}, fmt.Errorf("--%w", err)
	}
	return chosen, nil
}

func words[S ~string](list []S) (all []string) {
	for _, s := range list {
		all = append(all, string(s))
	}
	return all
}
