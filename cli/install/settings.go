package install

import (
	"fmt"
	"runtime"
	"text/tabwriter"

	"github.com/kelseyhightower/envconfig"
	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/app/settings"
)

const settingsFormat = `VARIABLE	DEFAULT	MEANING
{{range .}}{{usage_key .}}	{{usage_default .}}	{{usage_description .}}
{{end}}`

func settingsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "settings", Short: "List the environment variables of Rehome", Args: cobra.NoArgs,
		Long: "List the environment variables of Rehome. Rehome also reads the variables of OpenTelemetry:\n" +
			"OTEL_EXPORTER_OTLP_ENDPOINT, the URL of a collector, enables traces.",
		RunE: func(c *cobra.Command, _ []string) error {
			table := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
			defer table.Flush()
			return envconfig.Usagef("", &settings.Settings{}, table, settingsFormat)
		},
	}
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version, the commit, the Go version, and the platform", Args: cobra.NoArgs,
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
