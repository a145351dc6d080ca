package run

import (
	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/app"
	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/cli/command"
	"github.com/rehome-dev/rehome/functions"
)

func RunCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "run",
		Short: "Run all roles in one process, with the bus inside unless a NATS URL is given",
		Example: "  # Decide everything, change nothing, on the cluster that kubectl talks to:\n" +
			"  rehome run --dry-run --policy deploy/policy.yaml\n\n" +
			"  # See what it does, from another terminal:\n" +
			"  rehome events --follow",
		Args: command.NoArguments,
	}
	return roleCommand(c, app.Roles{Watcher: true, Actuator: true, Maintenance: true, Functions: functions.Hosted(), Dispatcher: true, Embedded: true})
}

func WatcherCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "watcher", Short: "Run the watcher: changes of the cluster become deltas and scopes", Args: command.NoArguments,
		Example: "  REHOME_NATS_URL=nats://nats:4222 rehome watcher --policy policy.yaml",
	}
	return roleCommand(c, app.Roles{Watcher: true})
}

func ActuatorCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "actuator", Short: "Run the actuator: intents become evictions and verdicts", Args: command.NoArguments,
		Example: "  REHOME_NATS_URL=nats://nats:4222 rehome actuator --policy policy.yaml",
	}
	return roleCommand(c, app.Roles{Actuator: true})
}

func MaintenanceCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "maintenance", Short: "Run node maintenances: nodes are cordoned, drained, and given back", Args: command.NoArguments,
		Example: "  REHOME_NATS_URL=nats://nats:4222 rehome maintenance --policy policy.yaml",
	}
	return roleCommand(c, app.Roles{Maintenance: true})
}

func FunctionsCommand() *cobra.Command {
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

func roleCommand(c *cobra.Command, r app.Roles) *cobra.Command {
	s := command.BindFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		return command.WithSettings(c, s, func(s settings.Settings) error { return app.Run(c.Context(), s, r) })
	}
	return c
}

func DispatcherCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "dispatcher", Short: "Run the dispatcher: functions of the policy are asked over HTTP or NATS", Args: command.NoArguments,
		Long: "Run the dispatcher: the strategies that the policy lists under `functions` are asked where it says, over HTTP or\n" +
			"NATS. It needs the bus and the policy, and no access to the cluster.",
		Example: "  REHOME_NATS_URL=nats://nats:4222 rehome dispatcher --policy policy.yaml",
	}
	return roleCommand(c, app.Roles{Dispatcher: true})
}
