package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/policy"
)

// newRoot makes the command with all of its subcommands.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "rehome",
		Short: "Move pods that no longer belong where they run, as soon as the cluster changes",
		Long: "Rehome is an event-driven descheduler. A watcher turns changes of the cluster into events, functions decide\n" +
			"which pods should move, an actuator evicts them within limits; every step is a CloudEvent on NATS.\n\n" +
			"Settings come from the environment, as `rehome settings` lists them; flags override them.",
		Version:       version,
		SilenceErrors: true, SilenceUsage: true, SuggestionsMinimumDistance: 2,
		Args: knownCommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(
		runCommand(), watcherCommand(), functionsCommand(), dispatcherCommand(), serveCommand(), actuatorCommand(), setupCommand(),
		eventsCommand(), forwardCommand(), statusCommand(), explainCommand(), requestCommand(), loopsCommand(), deadCommand(),
		onceCommand(), simulateCommand(), policyCommand(), schemasCommand(), settingsCommand(), readyCommand(), versionCommand(),
	)
	return root
}

func runCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "run",
		Short: "Run all roles in one process, with the bus inside unless a NATS URL is given",
		Example: "  # Decide everything, change nothing, on the cluster that kubectl talks to:\n" +
			"  rehome run --dry-run --policy deploy/policy.yaml\n\n" +
			"  # See what it does, from another terminal:\n" +
			"  rehome events --follow",
		Args: noArguments,
	}
	return roleCommand(c, roles{watcher: true, actuator: true, functions: functions.Hosted(), dispatcher: true, embedded: true})
}

func watcherCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "watcher", Short: "Run the watcher: changes of the cluster become deltas and scopes", Args: noArguments,
		Example: "  REHOME_NATS_URL=nats://nats:4222 rehome watcher --policy policy.yaml",
	}
	return roleCommand(c, roles{watcher: true})
}

func actuatorCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "actuator", Short: "Run the actuator: intents become evictions and verdicts", Args: noArguments,
		Example: "  REHOME_NATS_URL=nats://nats:4222 rehome actuator --policy policy.yaml",
	}
	return roleCommand(c, roles{actuator: true})
}

func functionsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "functions [NAME...]", Short: "Run the strategies of these names, or all: scopes become intents",
		Example: "  REHOME_NATS_URL=nats://nats:4222 rehome functions RemovePodsViolatingNodeTaints",
	}
	s := bindFlags(c)
	c.RunE = func(c *cobra.Command, names []string) error {
		chosen, err := choose(functions.Hosted(), names)
		if err != nil {
			return err
		}
		return withSettings(c, s, func(s settings) error { return runProcess(c.Context(), s, roles{functions: chosen}) })
	}
	return c
}

// choose returns the functions of these names, or all for none.
func choose(all []functions.Function, names []string) ([]functions.Function, error) {
	if len(names) == 0 {
		return all, nil
	}
	var chosen []functions.Function
	for _, name := range names {
		i := slices.Index(known(all), name)
		if i < 0 {
			return nil, usageError{fmt.Errorf("no strategy %q; there are: %v", name, known(all))}
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// known are the names of the functions.
func known(all []functions.Function) []string {
	var names []string
	for _, f := range all {
		names = append(names, f.Strategy.Name)
	}
	return names
}

func roleCommand(c *cobra.Command, r roles) *cobra.Command {
	s := bindFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		return withSettings(c, s, func(s settings) error { return runProcess(c.Context(), s, r) })
	}
	return c
}

func setupCommand() *cobra.Command {
	timeout := 30 * time.Second
	c := &cobra.Command{
		Use: "setup", Short: "Make or update the streams and consumers of an external bus, once", Args: noArguments,
		Long: "Make or update the streams and consumers of an external bus, once. With a policy it also makes the consumers of the\n" +
			"strategies that the policy declares in functions; call it again after the policy declares others.\n\n" +
			"With --auth it writes what the servers and all participants need to be told apart, each with the least rights:\n" +
			"a key for each, a part of the servers' configuration, and a page that says what goes where. Keys that are there\n" +
			"are kept, so it can be run again to add somebody.\n\n" +
			"With --secrets it prints the same as Secrets of Kubernetes, one for the servers and one for each participant with its\n" +
			"own key and nobody else's. What it did is said on standard error. --prefix names them for one of several releases of the\n" +
			"chart, whose notes have the command with it.",
		Example: "  REHOME_NATS_URL=nats://nats:4222 REHOME_NATS_REPLICAS=3 rehome setup\n\n" +
			"  # For a policy that declares strategies of its own:\n" +
			"  REHOME_NATS_URL=nats://nats:4222 rehome setup --policy policy.yaml\n\n" +
			"  # Keys, rights and certificates, also for a function outside and a program that asks:\n" +
			"  rehome setup --auth auth --function KeepOffSpot=functions.keep-off-spot --sender batch --tls nats.nats.svc\n\n" +
			"  # The same for servers in the cluster:\n" +
			"  rehome setup --auth auth --secrets rehome --tls 'rehome-nats.rehome.svc,*.rehome-nats.rehome.svc' |\n" +
			"    kubectl apply --server-side -f -",
	}
	s := bindFlags(c)
	var auth authFlags
	auth.bind(c)
	c.Flags().DurationVar(&timeout, "timeout", timeout, "how long to try")
	c.RunE = func(c *cobra.Command, _ []string) error {
		auth.manifests = c.Flags().Changed("secrets")
		if err := auth.check(); err != nil {
			return err
		}
		if auth.dir != "" {
			return auth.write(c.OutOrStdout(), c.ErrOrStderr())
		}
		return withSettings(c, s, func(s settings) error { return setUpBus(c, s, timeout) })
	}
	return c
}

func setUpBus(c *cobra.Command, s settings, timeout time.Duration) error {
	if s.NATSURL == "" {
		return usageError{errors.New("no bus: set REHOME_NATS_URL or --nats-url; `rehome run` sets up its own")}
	}
	var p policy.Policy
	if s.Policy != "" {
		var err error
		if p, _, err = readPolicy(s.Policy); err != nil {
			return err
		}
	}
	b, err := connect(s, "rehome-setup")
	if err != nil {
		return err
	}
	defer b.Close()
	ctx, cancel := context.WithTimeout(c.Context(), timeout)
	defer cancel()
	for {
		if err = b.Setup(ctx, setupOf(s, p)); err == nil {
			fmt.Fprintln(c.OutOrStdout(), "bus is set up")
			return nil
		}
		select {
		case <-ctx.Done():
			return noBus(err)
		case <-time.After(time.Second):
			fmt.Fprintln(c.ErrOrStderr(), "trying again:", err)
		}
	}
}

// clientRole is as whom a command takes part on the bus: most only read.
func clientRole(command string) bus.Role {
	switch command {
	case "rehome-setup":
		return bus.RoleSetup
	case "rehome-dead", "rehome-loops-clear", "rehome-forward-remove":
		return bus.RoleOperator
	}
	return bus.RoleReader
}

// connect connects to the bus for a command that is not a role.
func connect(s settings, name string) (*bus.Bus, error) {
	return connectAs(s, string(clientRole(name)))
}

// connectAs connects as a participant.
func connectAs(s settings, who string) (*bus.Bus, error) {
	o, err := busOptions(s, who)
	if err != nil {
		return nil, err
	}
	s.LogLevel = max(s.LogLevel, slog.LevelWarn) // a person wants the answer, and what keeps it away
	o.Log = s.logger(os.Stderr)
	b, err := bus.Connect(o)
	if err != nil {
		return nil, usageError{err}
	}
	return b, nil
}

// noBus makes an error of who asks of one that says that there is no bus.
func noBus(err error) error {
	if errors.Is(err, bus.ErrNotConnected) {
		return usageError{err}
	}
	return err
}

// knownCommand refuses what is no command, and names those that were perhaps meant.
func knownCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("unknown command %q", args[0])
	if meant := c.SuggestionsFor(args[0]); len(meant) > 0 {
		err = fmt.Errorf("%w; did you mean %s?", err, strings.Join(meant, " or "))
	}
	return usageError{err}
}

// noArguments refuses arguments, as an error of usage.
func noArguments(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("%s takes no arguments, got %q", c.CommandPath(), args)}
	}
	return nil
}
