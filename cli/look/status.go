// Package look has the commands that show something and change nothing.
//
//	get.go         get: one table for each noun; tables.go has their columns
//	status.go      status: the package status reads it; statustext.go writes it; watch.go and picture.go show it until Ctrl-C
//	ui.go          ui: the page of Rehome, forwarded to a port of this machine
//	deadletters.go get deadletters
//	events.go      events: filters, and one line of text for each event; ShowJSON and DescribeRequest, also for package act
//	explain.go     explain: a pod (explaintext.go), a node (node.go), or a workload (workload.go)
package look

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/cli/cmdutil"
	"github.com/rehome-dev/rehome/status"
)

// Commands are the commands that show something.
func Commands() []*cobra.Command {
	return []*cobra.Command{getCommand(), statusCommand(), explainCommand(), eventsCommand(), uiCommand()}
}

func statusCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "status",
		Short: "Show moves in flight, deferred pods with their reasons, leaders, and queues",
		Long: "Show everything from `rehome get`, with only the number of dead letters, and also moves that count against limits,\n" +
			"the leaders, and the streams with the waiting scopes of each strategy. With a policy, moves are counted over its\n" +
			"window and shown with its limits. Otherwise they are grouped by age. The leaders are missing if the cluster is\n" +
			"unreachable.",
		Example: "  rehome status\n" +
			"  rehome status --watch\n" +
			"  rehome status --policy policy.yaml    # with a bus: moves beside the limits of this policy",
		Args: cobra.NoArgs,
	}
	s := cmdutil.Settings(c).Policy().Reach()
	format := cmdutil.OutputFlag(c)
	watch := c.Flags().BoolP("watch", "w", false, "show it until Ctrl-C: as a picture on a terminal, otherwise as a line per change")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if *watch && *format != "" {
			return errors.New("--watch: want it without --output")
		}
		query, err := statusQuery(s.Settings)
		if err != nil {
			return err
		}
		to, err := s.Open(c.Context(), cmdutil.Reader)
		if err != nil {
			return err
		}
		defer to.Close()
		if *watch {
			return watchStatus(c, to, query)
		}
		st, err := to.Status(c.Context(), query)
		if err != nil {
			return err
		}
		return cmdutil.Show(c.OutOrStdout(), *format, "Status", StatusPage{st.Status})
	}
	return c
}

// statusQuery has the limits of the policy, if one is set.
func statusQuery(s settings.Settings) (cmdutil.StatusQuery, error) {
	if s.Policy == "" {
		return cmdutil.StatusQuery{}, nil
	}
	p, _, err := settings.ReadPolicy(s.Policy)
	return cmdutil.StatusQuery{Limits: &p.Limits}, err
}

// StatusPage writes a status as text.
type StatusPage struct{ status.Status }

func (st StatusPage) brief() string {
	holding := 0
	for _, b := range st.WorkloadBreakers {
		if b.Holds {
			holding++
		}
	}
	breakers, verb := cmdutil.Count(holding, "workload circuit breaker"), "is open"
	if holding > 1 {
		verb = "are open"
	}
	storm := "cluster circuit breaker closed"
	if len(st.Storm) > 0 {
		storm = "cluster circuit breaker OPEN since " + st.Storm[0].Since.Local().Format(time.TimeOnly) + ": nothing is moved"
	}
	return fmt.Sprintf("%s in flight, %s %s, %s", cmdutil.Count(len(st.MovesInFlight), "move"), breakers, verb, storm)
}
