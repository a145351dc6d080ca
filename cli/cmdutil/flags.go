// Package cmdutil has the common code of the commands.
//
//	flags.go         settings as flags
//	installation.go  Open: the running Rehome, on its bus (onbus.go) and in the cluster (cluster.go), or at its API (onapi.go)
//	args.go          names of pods, workloads, and strategies; files
//	print.go         -o: tables, JSON, YAML, and names
//	complete.go      completion of names
package cmdutil

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/bus"
)

// Group makes c a command that only has subcommands.
func Group(c *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	c.Args = cobra.NoArgs
	c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	c.AddCommand(commands...)
	return c
}

// Flags are settings that c has as flags. Their defaults come from the environment.
type Flags struct {
	settings.Settings
	c *cobra.Command
}

// Settings reads the environment. An invalid variable is an error when c runs.
func Settings(c *cobra.Command) *Flags {
	s, err := settings.Read()
	c.PreRunE = func(*cobra.Command, []string) error { return err }
	return &Flags{s, c}
}

// Policy adds the flag of the policy file.
func (f *Flags) Policy() *Flags {
	f.c.Flags().StringVar(&f.Settings.Policy, "policy", f.Settings.Policy, "policy file (REHOME_POLICY)")
	return f
}

// Cluster adds the flags of the kubeconfig.
func (f *Flags) Cluster() *Flags {
	if f.c.Flags().Lookup("kubeconfig") != nil { // several functions add them
		return f
	}
	f.c.Flags().StringVar(&f.Kubeconfig, "kubeconfig", f.Kubeconfig, "kubeconfig file (REHOME_KUBECONFIG)")
	f.c.Flags().StringVar(&f.Context, "context", f.Context, "context of the kubeconfig (REHOME_CONTEXT)")
	complete(f.c, "context", func() []string { return settings.Contexts(f.Settings) })
	return f
}

// Bus adds the flags for the location of the bus.
func (f *Flags) Bus() *Flags {
	f.c.Flags().StringVar(&f.StoreDir, "store-dir", f.StoreDir, "directory of the embedded bus (REHOME_STORE_DIR)")
	return f.NATS()
}

// NATS adds the flag for an external bus.
func (f *Flags) NATS() *Flags {
	f.c.Flags().StringVar(&f.NATSURL, "nats-url", f.NATSURL, "NATS servers; the default is the embedded bus (REHOME_NATS_URL)")
	return f
}

// Reach adds the flags for the location of the running Rehome, for [Flags.Open].
func (f *Flags) Reach() *Flags { return f.Server().Bus().Cluster() }

// Server adds the flag of the API.
func (f *Flags) Server() *Flags {
	f.c.Flags().StringVar(&f.Settings.Server, "server", f.Settings.Server,
		"URL of the API; the default is the bus, or the API in its pod (REHOME_SERVER)")
	return f
}

// HTTP adds the flag of a process that serves metrics.
func (f *Flags) HTTP() *Flags {
	f.c.Flags().StringVar(&f.HTTPAddress, "http-address", f.HTTPAddress,
		"address of /metrics, /healthz, and /readyz (REHOME_HTTP_ADDRESS)")
	return f
}

// DryRun adds the flag of a dry run.
func (f *Flags) DryRun() *Flags {
	f.c.Flags().BoolVar(&f.Settings.DryRun, "dry-run", f.Settings.DryRun, "decide everything and change nothing (REHOME_DRY_RUN)")
	return f
}

// RefuseDryRun returns an error in a dry run, for commands that have none.
func (f *Flags) RefuseDryRun() error {
	if f.Settings.DryRun {
		return fmt.Errorf("%s has no dry run: unset REHOME_DRY_RUN", f.c.CommandPath())
	}
	return nil
}

// Namespace adds -n, which defaults to the namespace of the context, and the flags of the kubeconfig. The returned function
// returns the namespace.
func (f *Flags) Namespace() func() (string, error) {
	f.Cluster()
	namespace := f.c.Flags().StringP("namespace", "n", "", "namespace; the default is the namespace of the context")
	CompleteNamespaces(f.c, f)
	return func() (string, error) {
		if *namespace != "" {
			return *namespace, nil
		}
		return settings.ContextNamespace(f.Settings)
	}
}

// Roles of the commands on the bus. Nothing changes them.
//
//nolint:gochecknoglobals // Go has no constants of struct types
var (
	Reader   = bus.Participant{Role: bus.RoleReader}
	Operator = bus.Participant{Role: bus.RoleOperator}
	Setup    = bus.Participant{Role: bus.RoleSetup}
)

// Choice adds a flag with a fixed set of values to c. The first value is the default.
func Choice(c *cobra.Command, target *string, name, short, usage string, values ...string) {
	*target = values[0]
	c.Flags().VarP(&choice{target, values}, name, short, usage)
	complete(c, name, func() []string { return values })
}

// choice implements [pflag.Value].
type choice struct {
	value  *string
	values []string
}

func (c *choice) String() string { return *c.value }
func (c *choice) Type() string   { return "string" }
func (c *choice) Set(text string) error {
	if !slices.Contains(c.values, text) {
		return fmt.Errorf("want %s", strings.TrimPrefix(strings.Join(c.values, ", "), ", "))
	}
	*c.value = text
	return nil
}

// Since adds a flag with a duration before now to c. The returned function returns the time, or the zero time, which means
// everything.
func Since(c *cobra.Command, usage string) func() (time.Time, error) {
	since := c.Flags().Duration("since", 0, usage)
	return func() (at time.Time, err error) {
		if *since < 0 {
			return at, fmt.Errorf("--since: want a duration such as 1h, got %v", *since)
		}
		if *since > 0 {
			at = time.Now().Add(-*since)
		}
		return at, nil
	}
}
