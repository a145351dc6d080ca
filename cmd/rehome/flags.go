package main

import (
	"text/tabwriter"

	"github.com/kelseyhightower/envconfig"
	"github.com/spf13/cobra"
)

// bindFlags gives c the flags of the settings that a person would type. What they hold is known when c runs.
func bindFlags(c *cobra.Command) *settings {
	s := bindClusterFlags(c)
	f := c.Flags()
	f.StringVar(&s.NATSURL, "nats-url", "", "NATS servers; none: the bus is in the process (REHOME_NATS_URL)")
	f.StringVar(&s.StoreDir, "store-dir", "", "directory of the bus in the process (REHOME_STORE_DIR)")
	f.StringVar(&s.HTTPAddress, "http-address", "", "address of /metrics, /healthz and /readyz (REHOME_HTTP_ADDRESS)")
	return s
}

// bindClusterFlags gives c those of them that a command without a bus needs.
func bindClusterFlags(c *cobra.Command) *settings {
	s := &settings{}
	f := c.Flags()
	f.StringVar(&s.Policy, "policy", "", "policy file (REHOME_POLICY)")
	f.StringVar(&s.Kubeconfig, "kubeconfig", "", "kubeconfig file (REHOME_KUBECONFIG)")
	f.StringVar(&s.Context, "context", "", "context of the kubeconfig (REHOME_CONTEXT)")
	f.BoolVar(&s.DryRun, "dry-run", false, "decide everything, change nothing (REHOME_DRY_RUN)")
	return s
}

// withSettings reads the environment, lays the flags that were given over it, and calls run.
func withSettings(c *cobra.Command, flags *settings, run func(settings) error) error {
	s, err := readSettings()
	if err != nil {
		return err
	}
	for name, set := range map[string]func(){
		"policy":       func() { s.Policy = flags.Policy },
		"kubeconfig":   func() { s.Kubeconfig = flags.Kubeconfig },
		"context":      func() { s.Context = flags.Context },
		"nats-url":     func() { s.NATSURL = flags.NATSURL },
		"store-dir":    func() { s.StoreDir = flags.StoreDir },
		"http-address": func() { s.HTTPAddress = flags.HTTPAddress },
		"dry-run":      func() { s.DryRun = flags.DryRun },
	} {
		if c.Flags().Changed(name) {
			set()
		}
	}
	return run(s)
}

// settingsFormat is a table of variable, default and meaning.
const settingsFormat = `VARIABLE	DEFAULT	MEANING
{{range .}}{{usage_key .}}	{{usage_default .}}	{{usage_description .}}
{{end}}`

func settingsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "settings", Short: "List the environment variables that are read", Args: noArguments,
		Long: "List the environment variables that are read. Those of OpenTelemetry are read besides:\n" +
			"OTEL_EXPORTER_OTLP_ENDPOINT, the URL of a collector, switches traces on.",
		RunE: func(c *cobra.Command, _ []string) error {
			table := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
			defer table.Flush()
			return envconfig.Usagef("rehome", &settings{}, table, settingsFormat)
		},
	}
}
