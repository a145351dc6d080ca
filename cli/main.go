// Package cli is the command line: what a person types and sees. It parses, calls app or asks the bus, and prints.
//
//	main.go: Main ──▶ newRoot
//	             ├─ look/     status, loops, events, explain
//	             ├─ act/      request
//	             ├─ dead/     dead letters
//	             ├─ try/      simulate, once, policy, schemas
//	             ├─ run/      run, watcher, functions, dispatcher, actuator, serve, forward, ready
//	             └─ install/  setup, settings, version
//
// command/ holds what they share: flags, arguments, output, and the connection to the bus.
package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // windows of maintenances are written in time zones, and an image need not have them

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/cli/act"
	"github.com/rehome-dev/rehome/cli/command"
	"github.com/rehome-dev/rehome/cli/dead"
	"github.com/rehome-dev/rehome/cli/install"
	"github.com/rehome-dev/rehome/cli/look"
	"github.com/rehome-dev/rehome/cli/run"
	"github.com/rehome-dev/rehome/cli/try"
)

// Main runs the command line until it is done or the process is told to end, and returns the exit code.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	root := newRoot()
	spokenAs(root, typedAs(os.Args[0]))
	err := root.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

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
	root.AddCommand(run.RoleCommands()...)
	root.AddCommand(
		run.ServeCommand(), run.ForwardCommand(), run.ReadyCommand(),
		look.EventsCommand(), look.StatusCommand(), look.ExplainCommand(), look.LoopsCommand(),
		act.RequestCommand(), dead.Command(),
		try.OnceCommand(), try.SimulateCommand(), try.PolicyCommand(), try.SchemasCommand(),
		install.SetupCommand(), install.SettingsCommand(), install.VersionCommand(),
	)
	return root
}
