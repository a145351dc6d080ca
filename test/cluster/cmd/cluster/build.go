package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/test/cluster/binaries"
)

func newBuild() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build the programs, if they are not up to date",
		Long: `Build the programs of the control plane, if they are not up to date. From
nothing this takes about six minutes on two cores; it needs Go and its module
proxy. "up" and the tests do it by themselves.`,
		Example: `  cluster build
  cluster build --dir /var/cache/controlplane`,
		Args: usageArgs(cobra.NoArgs),
	}
	dir := cmd.Flags().String("dir", "", "where to (default .build/controlplane in the repository)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		set, err := binaries.Build(cmd.Context(), binaries.Options{Dir: *dir, Progress: cmd.ErrOrStderr()})
		if err == nil {
			fmt.Fprintln(cmd.OutOrStdout(), "The programs are up to date in", set.Path("."))
		}
		return err
	}
	return cmd
}
