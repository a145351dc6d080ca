package look

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/bus"
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
		getInNamespace("moves", "List the moves in flight, and what each of them waits for", func(ctx context.Context, b *bus.Bus, now time.Time) (cmdutil.Table, error) {
			r, unreadable, err := status.Ledger(ctx, b)
			return MovesTable(now, status.InFlight(r)), errors.Join(append(unreadable, err)...)
		}),
		getDeferredCommand(),
		getInNamespace("breakers", "List the circuit breakers of workloads whose pods came back to a node", func(ctx context.Context, b *bus.Bus, now time.Time) (cmdutil.Table, error) {
			r, unreadable, err := status.Ledger(ctx, b)
			return BreakersTable(now, status.WorkloadBreakers(r, now)), errors.Join(append(unreadable, err)...)
		}),
		getDeadLettersCommand(),
		get(&cobra.Command{Use: "requests", Short: "List the open requests"}, func(ctx context.Context, b *bus.Bus, now time.Time) (cmdutil.Table, error) {
			r, err := status.Requests(ctx, b)
			return RequestsTable(now, r), err
		}),
		get(&cobra.Command{Use: "maintenances", Short: "List the maintenances that were requested on the bus; kubectl lists the others"}, func(ctx context.Context, b *bus.Bus, now time.Time) (cmdutil.Table, error) {
			m, err := status.Maintenances(ctx, b)
			return MaintenancesTable(now, m), err
		}),
	)
}

func getDeferredCommand() *cobra.Command {
	reason := ""
	c := getInNamespace("deferred", "List the pods that are deferred, by the verdicts of the past hour", func(ctx context.Context, b *bus.Bus, now time.Time) (cmdutil.Table, error) {
		all, err := status.Deferred(ctx, b, now)
		if reason != "" {
			all = slices.DeleteFunc(all, func(d status.DeferredPod) bool { return string(d.Reason) != reason })
		}
		return DeferredTable(now, all), err
	})
	c.Flags().StringVar(&reason, "reason", "", "only those with this reason, such as DisruptionBudget")
	cmdutil.CompleteValues(c, "reason", deferredReasons()...)
	return c
}

// deferredReasons are those of the published schema.
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

type reading func(ctx context.Context, b *bus.Bus, now time.Time) (cmdutil.Table, error)

// get lets c print what read returns.
func get(c *cobra.Command, read reading) *cobra.Command {
	c.Aliases, c.Args = append(c.Aliases, strings.TrimSuffix(c.Use, "s")), cobra.NoArgs
	s := cmdutil.Settings(c).Bus()
	format := cmdutil.ListFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		return withReader(s.Settings, func(b *bus.Bus) error {
			table, err := read(c.Context(), b, time.Now())
			if err != nil && len(table.Rows) == 0 {
				return err
			}
			return errors.Join(err, table.Print(c.OutOrStdout(), *format)) // err names records that cannot be read
		})
	}
	return c
}

// getInNamespace is get for what belongs to namespaces.
func getInNamespace(use, short string, read reading) *cobra.Command {
	namespace := ""
	c := get(&cobra.Command{Use: use, Short: short}, func(ctx context.Context, b *bus.Bus, now time.Time) (cmdutil.Table, error) {
		table, err := read(ctx, b, now)
		if namespace != "" {
			all := table.Rows
			table.Rows = nil
			for _, r := range all {
				if r.Namespace == namespace {
					table.Rows = append(table.Rows, r)
				}
			}
		}
		return table, err
	})
	c.Flags().StringVarP(&namespace, "namespace", "n", "", "only those of this namespace; the default is all namespaces")
	cmdutil.CompleteNamespaces(c, cmdutil.Settings(c))
	return c
}

func withReader(s settings.Settings, use func(*bus.Bus) error) error {
	return cmdutil.WithBus(s, cmdutil.Reader, use)
}

// section writes a table under a title, unless it has no rows.
func section(w io.Writer, title string, t cmdutil.Table) error {
	if len(t.Rows) == 0 {
		return nil
	}
	fmt.Fprintf(w, "\n%s:\n", title)
	return t.Print(w, "")
}
