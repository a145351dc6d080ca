package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Say which version this is, of which commit, built with what for what", Args: noArguments,
		Example: "  rehome version",
		RunE: func(c *cobra.Command, _ []string) error {
			fmt.Fprintf(c.OutOrStdout(), "rehome %s\n", version)
			if at := commit(); at != "" {
				fmt.Fprintf(c.OutOrStdout(), "commit %s\n", at)
			}
			fmt.Fprintf(c.OutOrStdout(), "%s %s/%s\n", runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return nil
		},
	}
}
