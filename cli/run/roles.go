// Package run holds the commands that start a process, and its health check.
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

// Commands are the commands that run all roles, one role, or a process beside them.
func Commands() []*cobra.Command {
	return []*cobra.Command{
		runCommand(),
		role(app.Roles{Watcher: true}, &cobra.Command{
			Use: "watcher", Short: "Run the watcher: changes of the cluster become deltas and scopes",
			Example: "  REHOME_NATS_URL=nats://nats:4222 rehome watcher --policy policy.yaml",
		}),
		functionsCommand(),
		dispatcherCommand(),
		role(app.Roles{Actuator: true}, &cobra.Command{
			Use: "actuator", Short: "Run the actuator: intents become evictions and verdicts",
			Example: "  REHOME_NATS_URL=nats://nats:4222 rehome actuator --policy policy.yaml",
		}),
		role(app.Roles{Maintenance: true}, &cobra.Command{
			Use: "maintenance", Short: "Run node maintenances: nodes are cordoned, drained, and given back",
			Example: "  REHOME_NATS_URL=nats://nats:4222 rehome maintenance --policy policy.yaml",
		}),
		role(app.Roles{API: true}, &cobra.Command{
			Use: "api", Short: "Run the API: state, events, explanations, requests, and the page",
			Long: "Run the API and its page. REHOME_API_LOCAL serves the operator of this machine or pod, REHOME_API_ADDRESS users of the\n" +
				"cluster with their tokens. `rehome run` includes it.",
			Example: "  REHOME_NATS_URL=nats://nats:4222 rehome api --policy policy.yaml",
		}),
		serveCommand(), forwardCommand(), readyCommand(),
	}
}

func runCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "run", Short: "Run all roles in one process, with the bus inside unless a NATS URL is given",
		Example: "  # Decide everything, change nothing, on the cluster that kubectl talks to:\n" +
			"  rehome run --dry-run --policy deploy/policy.yaml\n\n" +
			"  # See what it does, from another terminal:\n" +
			"  rehome events --follow",
	}
	return start(c, cmdutil.Settings(c).Policy().Cluster().Bus().HTTP().DryRun(), app.Roles{
		Watcher: true, Actuator: true, Maintenance: true, API: true, Functions: functions.Hosted(), Dispatcher: true, Embedded: true,
	})
}

// role is the command of a role that works on the cluster.
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
		Use: "dispatcher", Short: "Run the dispatcher: functions of the policy are asked over HTTP or NATS",
		Long: "Run the dispatcher: the strategies that the policy lists under `functions` are asked where it says, over HTTP or\n" +
			"NATS. It needs the bus and the policy, and no access to the cluster.",
		Example: "  REHOME_NATS_URL=nats://nats:4222 rehome dispatcher --policy policy.yaml",
	}
	return start(c, cmdutil.Settings(c).Policy().NATS().HTTP(), app.Roles{Dispatcher: true})
}

func functionsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "functions [STRATEGY...]", Short: "Run these strategies, or all: scopes become intents",
		Example:   "  REHOME_NATS_URL=nats://nats:4222 rehome functions RemovePodsViolatingNodeTaints",
		ValidArgs: cmdutil.Known(functions.Hosted()),
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
