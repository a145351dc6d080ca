// Package run has the commands that start a process, and its health check.
//
//	roles.go      run, watcher, functions, dispatcher, actuator, maintenance, api
//	serve.go      serve: one strategy over HTTP
//	forward.go    forward: flags; forwarder.go posts events to a sink
//	ready.go      ready
package run

import (
	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/app"
	"github.com/rehome-dev/rehome/cli/cmdutil"
	"github.com/rehome-dev/rehome/functions"
)

// Commands returns the commands that run all roles, one role, or an additional process.
func Commands() []*cobra.Command {
	return []*cobra.Command{
		runCommand(),
		role(app.Roles{Watcher: true}, &cobra.Command{
			Use: "watcher", Short: "Run the watcher, which turns changes of the cluster into deltas and scopes",
			Example: "  REHOME_NATS_URL=nats://nats:4222 rehome watcher --policy policy.yaml",
		}),
		functionsCommand(),
		dispatcherCommand(),
		role(app.Roles{Actuator: true}, &cobra.Command{
			Use: "actuator", Short: "Run the actuator, which executes intents and publishes verdicts",
			Example: "  REHOME_NATS_URL=nats://nats:4222 rehome actuator --policy policy.yaml",
		}),
		role(app.Roles{Maintenance: true}, &cobra.Command{
			Use: "maintenance", Short: "Run the maintenance role, which cordons, drains, and releases nodes",
			Example: "  REHOME_NATS_URL=nats://nats:4222 rehome maintenance --policy policy.yaml",
		}),
		role(app.Roles{API: true}, &cobra.Command{
			Use: "api", Short: "Run the API: state, events, explanations, requests, and the page",
			Long: "Run the API and its page. REHOME_API_LOCAL is the address for the operator of this machine or pod, and\n" +
				"REHOME_API_ADDRESS the address for users of the cluster with their tokens. `rehome run` includes the API.",
			Example: "  REHOME_NATS_URL=nats://nats:4222 rehome api --policy policy.yaml",
		}),
		serveCommand(), forwardCommand(), readyCommand(),
	}
}

func runCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "run", Short: "Run all roles in one process, with an embedded bus unless a NATS URL is set",
		Example: "  # Decide everything and change nothing, in the cluster of the current kubectl context:\n" +
			"  rehome run --dry-run --policy deploy/policy.yaml\n\n" +
			"  # Follow its events in another terminal:\n" +
			"  rehome events --follow",
	}
	return start(c, cmdutil.Settings(c).Policy().Cluster().Bus().HTTP().DryRun(), app.Roles{
		Watcher: true, Actuator: true, Maintenance: true, API: true, Functions: functions.Hosted(), Dispatcher: true, Embedded: true,
	})
}

// role returns the command of a role that uses the cluster.
func role(r app.Roles, c *cobra.Command) *cobra.Command {
	return start(c, cmdutil.Settings(c).Policy().Cluster().NATS().HTTP().DryRun(), r)
}

func start(c *cobra.Command, f *cmdutil.Flags, r app.Roles) *cobra.Command {
	c.Args = cobra.NoArgs
	c.RunE = func(c *cobra.Command, _ []string) error { return app.Run(c.Context(), f.Settings, r) }
	return c
}

func dispatcherCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "dispatcher", Short: "Run the dispatcher, which calls the functions of the policy over HTTP or NATS",
		Long: "Run the dispatcher, which calls the strategies under `functions` in the policy over HTTP or NATS. It needs the bus\n" +
			"and the policy, and no access to the cluster.",
		Example: "  REHOME_NATS_URL=nats://nats:4222 rehome dispatcher --policy policy.yaml",
	}
	return start(c, cmdutil.Settings(c).Policy().NATS().HTTP(), app.Roles{Dispatcher: true})
}

func functionsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "functions [STRATEGY...]", Short: "Run some strategies, or all, which turn scopes into intents",
		Example:   "  REHOME_NATS_URL=nats://nats:4222 rehome functions RemovePodsViolatingNodeTaints",
		ValidArgs: functions.Names(functions.Hosted()),
	}
	f := cmdutil.Settings(c).NATS().HTTP()
	c.RunE = func(c *cobra.Command, names []string) error {
		chosen, err := cmdutil.Choose(functions.Hosted(), names)
		if err != nil {
			return err
		}
		return app.Run(c.Context(), f.Settings, app.Roles{Functions: chosen})
	}
	return c
}
