package main

import (
	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/app/usage"
	"github.com/rehome-dev/rehome/cli/act"
	"github.com/rehome-dev/rehome/cli/command"
	"github.com/rehome-dev/rehome/cli/install"
	"github.com/rehome-dev/rehome/cli/look"
	"github.com/rehome-dev/rehome/cli/run"
	"github.com/rehome-dev/rehome/cli/try"

	"github.com/rehome-dev/rehome/functions"
)

// newRoot makes the command with all of its subcommands.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "rehome",
		Short: "Move pods that no longer belong where they run, as soon as the cluster changes",
		Long: "Rehome is an event-driven descheduler. A watcher turns changes of the cluster into events, functions decide\n" +
			"which pods should move, an actuator evicts them within limits; every step is a CloudEvent on NATS.\n\n" +
			"Settings come from the environment, as `rehome settings` lists them; flags override them.",
		Version:       settings.Version,
		SilenceErrors: true, SilenceUsage: true, SuggestionsMinimumDistance: 2,
		Args: command.KnownCommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage.Wrap(err) })
	root.AddCommand(
		runCommand(), watcherCommand(), functionsCommand(), dispatcherCommand(), run.ServeCommand(), actuatorCommand(), install.SetupCommand(),
		look.EventsCommand(), forwardCommand(), look.StatusCommand(), look.ExplainCommand(), act.RequestCommand(), look.LoopsCommand(), deadCommand(),
		onceCommand(), try.SimulateCommand(), try.PolicyCommand(), try.SchemasCommand(), install.SettingsCommand(), run.ReadyCommand(), install.VersionCommand(),
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
		Args: command.NoArguments,
	}
	return roleCommand(c, roles{watcher: true, actuator: true, functions: functions.Hosted(), dispatcher: true, embedded: true})
}

func watcherCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "watcher", Short: "Run the watcher: changes of the cluster become deltas and scopes", Args: command.NoArguments,
		Example: "  REHOME_NATS_URL=nats://nats:4222 rehome watcher --policy policy.yaml",
	}
	return roleCommand(c, roles{watcher: true})
}

func actuatorCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "actuator", Short: "Run the actuator: intents become evictions and verdicts", Args: command.NoArguments,
		Example: "  REHOME_NATS_URL=nats://nats:4222 rehome actuator --policy policy.yaml",
	}
	return roleCommand(c, roles{actuator: true})
}

func functionsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "functions [NAME...]", Short: "Run the strategies of these names, or all: scopes become intents",
		Example: "  REHOME_NATS_URL=nats://nats:4222 rehome functions RemovePodsViolatingNodeTaints",
	}
	s := command.BindFlags(c)
	c.RunE = func(c *cobra.Command, names []string) error {
		chosen, err := command.Choose(functions.Hosted(), names)
		if err != nil {
			return err
		}
		return command.WithSettings(c, s, func(s settings.Settings) error { return runProcess(c.Context(), s, roles{functions: chosen}) })
	}
	return c
}

func roleCommand(c *cobra.Command, r roles) *cobra.Command {
	s := command.BindFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		return command.WithSettings(c, s, func(s settings.Settings) error { return runProcess(c.Context(), s, r) })
	}
	return c
}

func dispatcherCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "dispatcher", Short: "Run the dispatcher: functions of the policy are asked over HTTP or NATS", Args: command.NoArguments,
		Long: "Run the dispatcher: the strategies that the policy lists under `functions` are asked where it says, over HTTP or\n" +
			"NATS. It needs the bus and the policy, and no access to the cluster.",
		Example: "  REHOME_NATS_URL=nats://nats:4222 rehome dispatcher --policy policy.yaml",
	}
	return roleCommand(c, roles{dispatcher: true})
}
