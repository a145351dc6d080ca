// Package run holds the commands that start a process, and its health check.
//
//	roles.go      run, watcher, functions, dispatcher, actuator, maintenance
//	serve.go      serve: one strategy over HTTP
//	forward.go    forward: flags; forwarder.go posts events to a sink
//	ready.go      ready
package run

import (
	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/app"
	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/cli/command"
	"github.com/rehome-dev/rehome/functions"
)

// RoleCommands are the commands that run all roles, or one.
func RoleCommands() []*cobra.Command {
	all := app.Roles{Watcher: true, Actuator: true, Maintenance: true, Functions: functions.Hosted(), Dispatcher: true, Embedded: true}
	return []*cobra.Command{
		roleCommand(all, &cobra.Command{
			Use:   "run",
			Short: "Run all roles in one process, with the bus inside unless a NATS URL is given",
			Example: "  # Decide everything, change nothing, on the cluster that kubectl talks to:\n" +
				"  rehome run --dry-run --policy deploy/policy.yaml\n\n" +
				"  # See what it does, from another terminal:\n" +
				"  rehome events --follow",
		}),
		roleCommand(app.Roles{Watcher: true}, &cobra.Command{
			Use: "watcher", Short: "Run the watcher: changes of the cluster become deltas and scopes",
			Example: "  REHOME_NATS_URL=nats://nats:4222 rehome watcher --policy policy.yaml",
		}),
		functionsCommand(),
		roleCommand(app.Roles{Dispatcher: true}, &cobra.Command{
			Use: "dispatcher", Short: "Run the dispatcher: functions of the policy are asked over HTTP or NATS",
			Long: "Run the dispatcher: the strategies that the policy lists under `functions` are asked where it says, over HTTP or\n" +
				"NATS. It needs the bus and the policy, and no access to the cluster.",
			Example: "  REHOME_NATS_URL=nats://nats:4222 rehome dispatcher --policy policy.yaml",
		}),
		roleCommand(app.Roles{Actuator: true}, &cobra.Command{
			Use: "actuator", Short: "Run the actuator: intents become evictions and verdicts",
			Example: "  REHOME_NATS_URL=nats://nats:4222 rehome actuator --policy policy.yaml",
		}),
		roleCommand(app.Roles{Maintenance: true}, &cobra.Command{
			Use: "maintenance", Short: "Run node maintenances: nodes are cordoned, drained, and given back",
			Example: "  REHOME_NATS_URL=nats://nats:4222 rehome maintenance --policy policy.yaml",
		}),
	}
}

func roleCommand(r app.Roles, c *cobra.Command) *cobra.Command {
	c.Args = command.NoArguments
	s := command.BindFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		return command.WithSettings(c, s, func(s settings.Settings) error { return app.Run(c.Context(), s, r) })
	}
	return c
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
		return command.WithSettings(c, s, func(s settings.Settings) error {
			return app.Run(c.Context(), s, app.Roles{Functions: chosen})
		})
	}
	return c
}
