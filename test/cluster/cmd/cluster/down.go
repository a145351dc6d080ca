package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/test/cluster"
)

// downTimeout limits the stop of a cluster, which normally takes well under a second.
const downTimeout = 20 * time.Second

func newDown() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop a cluster and remove all of it",
		Long:  `Stop a cluster and remove all of it. If none runs, say so.`,
		Example: `  cluster down
  cluster down --name big`,
		Args: usageArgs(cobra.NoArgs),
	}
	name := nameFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, err := directory(*name)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), downTimeout)
		defer cancel()
		ran, err := cluster.Terminate(ctx, dir)
		switch {
		case err != nil:
			return err
		case ran:
			fmt.Fprintf(cmd.OutOrStdout(), "Cluster %s is down; nothing is left of it.\n", *name)
		default:
			fmt.Fprintf(cmd.OutOrStdout(), "Cluster %s does not run.\n", *name)
		}
		return nil
	}
	return cmd
}
