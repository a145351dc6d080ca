package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/test/cluster"
)

func newStatus() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say whether a cluster runs (exit code 3: it does not)",
		Long:  `Say whether a cluster runs, and how to use it. The exit code is 3 if it does not.`,
		Example: `  cluster status
  cluster status --name big || cluster up --name big`,
		Args: usageArgs(cobra.NoArgs),
	}
	name := nameFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dir, err := directory(*name)
		if err != nil {
			return err
		}
		running, found, err := cluster.Find(dir)
		if err != nil {
			return err
		}
		if !found {
			fmt.Fprintf(cmd.OutOrStdout(), "Cluster %s does not run.\n", *name)
			return errNotRunning
		}
		fmt.Fprintf(cmd.OutOrStdout(), "Cluster %s runs (process %d).\n\n", *name, running.Supervisor)
		explain(cmd.OutOrStdout(), *name, running.Kubeconfig)
		return nil
	}
	return cmd
}
