// Package command holds what the commands share.
//
//	command.go  BindFlags, WithSettings, WithBus, Show   settings, output formats, and the connection to the bus
//	args.go     NoArguments, PodNamed, Choose, Files     arguments
//	text.go     Table, Printable, Count                  text for a terminal
package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/bus"
)

// Group makes c a command that only has subcommands.
func Group(c *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	c.Args, c.SuggestionsMinimumDistance = KnownCommand, 1
	c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	c.AddCommand(commands...)
	return c
}

// KnownCommand refuses an argument of a command that only has subcommands, and suggests similar ones.
func KnownCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("unknown command %q", args[0])
	if similar := c.SuggestionsFor(args[0]); len(similar) > 0 {
		err = fmt.Errorf("%w; did you mean %s?", err, strings.Join(similar, " or "))
	}
	return err
}

// BindFlags gives c the flags of the settings of a process that serves HTTP.
func BindFlags(c *cobra.Command) *settings.Settings {
	s := BindClientFlags(c)
	c.Flags().StringVar(&s.HTTPAddress, "http-address", "", "address of /metrics, /healthz and /readyz (REHOME_HTTP_ADDRESS)")
	return s
}

// BindClientFlags gives c the flags of the settings of a command that uses the bus.
func BindClientFlags(c *cobra.Command) *settings.Settings {
	s := BindClusterFlags(c)
	c.Flags().StringVar(&s.NATSURL, "nats-url", "", "NATS servers; none: the bus is in the process (REHOME_NATS_URL)")
	c.Flags().StringVar(&s.StoreDir, "store-dir", "", "directory of the bus in the process (REHOME_STORE_DIR)")
	return s
}

// BindClusterFlags gives c the flags of the settings of a command without a bus.
func BindClusterFlags(c *cobra.Command) *settings.Settings {
	s := &settings.Settings{}
	f := c.Flags()
	f.StringVar(&s.Policy, "policy", "", "policy file (REHOME_POLICY)")
	f.StringVar(&s.Kubeconfig, "kubeconfig", "", "kubeconfig file (REHOME_KUBECONFIG)")
	f.StringVar(&s.Context, "context", "", "context of the kubeconfig (REHOME_CONTEXT)")
	f.BoolVar(&s.DryRun, "dry-run", false, "decide everything, change nothing (REHOME_DRY_RUN)")
	return s
}

// WithSettings reads the environment, applies the flags that were given, and calls run.
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

// Reader is how a command that changes nothing connects to the bus.
var Reader = bus.Participant{Role: bus.RoleReader}

// WithBus connects to the bus as a participant and calls use.
func WithBus(s settings.Settings, p bus.Participant, use func(*bus.Bus) error) error {
	o, err := settings.BusOptions(s, p.String())
	if err != nil {
		return err
	}
	s.LogLevel = max(s.LogLevel, slog.LevelWarn)
	o.Log = s.Logger(os.Stderr)
	b, err := bus.Connect(o)
	if err != nil {
		return err
	}
	defer b.Close()
	if err = use(b); errors.Is(err, bus.ErrNotConnected) {
		return err
	}
	return err
}

// NotDryRun refuses a dry run of a command that changes something.
func NotDryRun(s settings.Settings, what, instead string) error {
	if s.DryRun {
		return fmt.Errorf("%s: want it without --dry-run and REHOME_DRY_RUN%s", what, instead)
	}
	return nil
}

// Since refuses a negative duration of --since.
func Since(d time.Duration) error {
	if d < 0 {
		return fmt.Errorf("--since: want a duration such as 1h, got %v", d)
	}
	return nil
}

// OutputFlag gives c the flag -o, whose value is the format for people, or json. The returned function tells whether it is json.
func OutputFlag(c *cobra.Command, human, help string) (asJSON func() (bool, error)) {
	output := c.Flags().StringP("output", "o", human, help)
	return func() (bool, error) {
		if *output != human && *output != "json" {
			return false, fmt.Errorf("--output: want %s or json, got %q", human, *output)
		}
		return *output == "json", nil
	}
}

// Shown is the answer of a command, which is also written as JSON.
type Shown interface{ Write(io.Writer) error }

// Lines are answers that are written as JSON on a line each.
type Lines interface {
	Shown
	Each(func(any) error) error
}

// Show lets c show something about the bus: a table, or with -o json the same as JSON.
func Show(c *cobra.Command, read func(c *cobra.Command, s settings.Settings) (Shown, error)) *cobra.Command {
	s := BindClientFlags(c)
	format := OutputFlag(c, "table", "table or json")
	c.RunE = func(c *cobra.Command, _ []string) error {
		asJSON, err := format()
		if err != nil {
			return err
		}
		return WithSettings(c, s, func(s settings.Settings) error {
			shown, err := read(c, s)
			switch lines, many := shown.(Lines); {
			case shown == nil:
				return err
			case !asJSON:
				return errors.Join(err, shown.Write(c.OutOrStdout()))
			case many:
				return errors.Join(err, lines.Each(json.NewEncoder(c.OutOrStdout()).Encode))
			default:
				return errors.Join(err, json.NewEncoder(c.OutOrStdout()).Encode(shown))
			}
		})
	}
	return c
}
