package command

import (
	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/app/settings"
)

// BindFlags gives c the flags of the settings that a person would type. What they hold is known when c runs.
func BindFlags(c *cobra.Command) *settings.Settings {
	s := BindClusterFlags(c)
	f := c.Flags()
	f.StringVar(&s.NATSURL, "nats-url", "", "NATS servers; none: the bus is in the process (REHOME_NATS_URL)")
	f.StringVar(&s.StoreDir, "store-dir", "", "directory of the bus in the process (REHOME_STORE_DIR)")
	f.StringVar(&s.HTTPAddress, "http-address", "", "address of /metrics, /healthz and /readyz (REHOME_HTTP_ADDRESS)")
	return s
}

// BindClusterFlags gives c those of them that a command without a bus needs.
func BindClusterFlags(c *cobra.Command) *settings.Settings {
	s := &settings.Settings{}
	f := c.Flags()
	f.StringVar(&s.Policy, "policy", "", "policy file (REHOME_POLICY)")
	f.StringVar(&s.Kubeconfig, "kubeconfig", "", "kubeconfig file (REHOME_KUBECONFIG)")
	f.StringVar(&s.Context, "context", "", "context of the kubeconfig (REHOME_CONTEXT)")
	f.BoolVar(&s.DryRun, "dry-run", false, "decide everything, change nothing (REHOME_DRY_RUN)")
	return s
}

// WithSettings reads the environment, lays the flags that were given over it, and calls run.
func WithSettings(c *cobra.Command, flags *settings.Settings, run func(settings.Settings) error) error {
	s, err := settings.Read()
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
