package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/test/cluster"
)

func newUp() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a cluster and leave it running",
		Long: `Start a cluster and leave it running until "cluster down". If it runs already,
say so and change nothing.`,
		Example: `  cluster up
  cluster up --name big --nodes 1000`,
		Args: usageArgs(cobra.NoArgs),
	}
	name := nameFlag(cmd)
	nodes := cmd.Flags().Int("nodes", 20, "number of nodes: 32 CPUs, 256 GiB and 110 pods each, in three zones")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *nodes < 0 {
			return fmt.Errorf("%w: --nodes %d is negative", errUsage, *nodes)
		}
		dir, err := directory(*name)
		if err != nil {
			return err
		}
		unlock, err := lockStarts(filepath.Dir(dir))
		if err != nil {
			return err
		}
		defer unlock()
		running, found, err := cluster.Find(dir)
		if err != nil {
			return err
		}
		if found {
			fmt.Fprintf(cmd.OutOrStdout(), "Cluster %s runs already.\n\n", *name)
			explain(cmd.OutOrStdout(), *name, running.Kubeconfig)
			return nil
		}
		return up(cmd, *name, dir, *nodes)
	}
	return cmd
}

// up starts a cluster in dir. If that fails, it leaves nothing behind.
func up(cmd *cobra.Command, name, dir string, nodes int) error {
	ctx := cmd.Context()
	if _, err := cluster.Terminate(ctx, dir); err != nil { // Only leftovers of a killed one.
		return err
	}
	began := time.Now()
	c, err := cluster.Start(ctx, cluster.Options{Dir: dir, Progress: cmd.ErrOrStderr()})
	if err != nil {
		return err
	}
	if err := detach(ctx, c, nodes); err != nil {
		return errors.Join(err, c.Stop())
	}
	fmt.Fprintf(cmd.OutOrStdout(), "Cluster %s with %d nodes is up after %.1f s.\n\n", name, nodes, time.Since(began).Seconds())
	explain(cmd.OutOrStdout(), name, filepath.Join(dir, "kubeconfig"))
	return c.Stop()
}

// detach adds the nodes and detaches the cluster.
func detach(ctx context.Context, c *cluster.Cluster, nodes int) error {
	if _, err := c.AddNodes(ctx, nodes); err != nil {
		return err
	}
	return c.Detach()
}

// explain prints how to use a running cluster.
func explain(out io.Writer, name, kubeconfig string) {
	argument := ""
	if name != "default" {
		argument = " NAME=" + name
	}
	fmt.Fprintf(out, "Use it:   export KUBECONFIG=%s\nStop it:  make cluster-down%s\n", kubeconfig, argument)
}
