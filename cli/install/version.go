package install

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/cli/command"
)

func VersionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Say which version this is, of which commit, built with what for what", Args: command.NoArguments,
		Example: "  rehome version",
		RunE: func(c *cobra.Command, _ []string) error {
			fmt.Fprintf(c.OutOrStdout(), "rehome %s\n", settings.Version)
			if at := settings.Commit(); at != "" {
				fmt.Fprintf(c.OutOrStdout(), "commit %s\n", at)
			}
			fmt.Fprintf(c.OutOrStdout(), "%s %s/%s\n", runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return nil
		},
	}
}
