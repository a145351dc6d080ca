package cli

import (
	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/app/usage"
	"github.com/rehome-dev/rehome/cli/act"
	"github.com/rehome-dev/rehome/cli/command"
	"github.com/rehome-dev/rehome/cli/dead"
	"github.com/rehome-dev/rehome/cli/install"
	"github.com/rehome-dev/rehome/cli/look"
	"github.com/rehome-dev/rehome/cli/run"
	"github.com/rehome-dev/rehome/cli/try"
)

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
