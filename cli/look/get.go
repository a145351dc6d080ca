package look

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/cli/cmdutil"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/status"
)

func getCommand() *cobra.Command {
	return cmdutil.Group(&cobra.Command{
		Use: "get", Short: "List moves, deferred pods, circuit breakers, dead letters, requests, or maintenances",
		Example: "  rehome get deferred -n shop -o wide\n" +
			"  rehome get moves -o json | jq '.items[].waitsFor'",
		SuggestFor: []string{"loops", "dead", "list"},
	},
		getInNamespace("moves", "List the moves in flight and what they wait for", cmdutil.PartLedger,
			func(st status.Status) cmdutil.Table { return MovesTable(st.Time, st.MovesInFlight) }),
		getDeferredCommand(),
		getInNamespace("breakers", "List the circuit breakers of workloads", cmdutil.PartLedger,
			func(st status.Status) cmdutil.Table { return BreakersTable(st.Time, st.WorkloadBreakers) }),
		getDeadLettersCommand(),
		get(&cobra.Command{Use: "requests", Short: "List the open requests"}, cmdutil.PartRequests,
			func(st status.Status) cmdutil.Table { return RequestsTable(st.Time, st.Requests) }),
		get(&cobra.Command{Use: "maintenances", Short: "List the maintenances from requests; kubectl lists NodeMaintenance objects"},
			cmdutil.PartMaintenances, func(st status.Status) cmdutil.Table { return MaintenancesTable(st.Time, st.Maintenances) }),
	)
}

func getDeferredCommand() *cobra.Command {
	reason := ""
	c := getInNamespace("deferred", "List the deferred pods, from the verdicts of the last hour", cmdutil.PartDeferred,
		func(st status.Status) cmdutil.Table {
			all := st.Deferred
			if reason != "" {
				all = slices.DeleteFunc(all, func(d status.DeferredPod) bool { return string(d.Reason) != reason })
			}
			return DeferredTable(st.Time, all)
		})
	c.Flags().StringVar(&reason, "reason", "", "only pods with this reason, such as DisruptionBudget")
	cmdutil.CompleteValues(c, "reason", deferredReasons()...)
	return c
}

// deferredReasons returns the reasons of deferred pods in the published schema.
func deferredReasons() []string {
	var schema struct {
		Defs struct {
			Reason struct {
				AnyOf []struct {
					Enum []string `json:"enum"`
				} `json:"anyOf"`
			} `json:"deferredReason"`
		} `json:"$defs"`
	}
	document, err := schemas.Schema(schemas.VerdictType)
	if err != nil || json.Unmarshal(document, &schema) != nil {
		return nil
	}
	return schema.Defs.Reason.AnyOf[0].Enum
}

// get makes c print a table of a part of the status.
func get(c *cobra.Command, part cmdutil.Part, tableOf func(status.Status) cmdutil.Table) *cobra.Command {
	c.Args = cobra.NoArgs
	if one, plural := strings.CutSuffix(c.Use, "s"); plural {
		c.Aliases = append(c.Aliases, one)
	}
	s := cmdutil.Settings(c).Reach()
	format := cmdutil.ListFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		to, err := s.Open(c.Context(), cmdutil.Reader)
		if err != nil {
			return err
		}
		defer to.Close()
		st, err := to.Status(c.Context(), cmdutil.StatusQuery{Part: part})
		if err != nil {
			return err
		}
		var unreadable error
		if part == cmdutil.PartLedger && len(st.Unreadable) > 0 {
			unreadable = errors.New(strings.Join(st.Unreadable, "\n"))
		}
		return errors.Join(unreadable, tableOf(st.Status).Print(c.OutOrStdout(), *format))
	}
	return c
}

// getInNamespace is get for namespaced objects.
func getInNamespace(use, short string, part cmdutil.Part, tableOf func(status.Status) cmdutil.Table) *cobra.Command {
	namespace := ""
	c := get(&cobra.Command{Use: use, Short: short}, part, func(st status.Status) cmdutil.Table {
		table := tableOf(st)
		if namespace != "" {
			table.Rows = slices.DeleteFunc(table.Rows, func(r cmdutil.Row) bool { return r.Namespace != namespace })
		}
		return table
	})
	c.Flags().StringVarP(&namespace, "namespace", "n", "", "only this namespace; the default is all namespaces")
	cmdutil.CompleteNamespaces(c, cmdutil.Settings(c))
	return c
}

// section writes a table under a title, unless it has no rows.
func section(w io.Writer, title string, t cmdutil.Table) error {
	if len(t.Rows) == 0 {
		return nil
	}
	fmt.Fprintf(w, "\n%s:\n", title)
	return t.Print(w, "")
}
