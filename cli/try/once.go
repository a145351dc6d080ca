package try

import (
	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/app"
	"github.com/rehome-dev/rehome/cli/cmdutil"
)

func onceCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "once",
		Short: "Evaluate everything once, evict pods, print each verdict, and exit",
		Long: "Evaluate everything once, evict pods, print each verdict, and exit: for a Job or a CronJob, without a bus.\n\n" +
			"Every strategy of the policy evaluates everything, in the order of the file. Its pods move before the next strategy\n" +
			"runs, by all rules of the actuator: rate, moves in flight, circuit breakers, and restarts. A pod that a\n" +
			"PodDisruptionBudget blocks is deferred and not tried again. A pod that would move without its protection is\n" +
			"rejected. The output has the format of rehome simulate. With --dry-run, calls to the API server have dryRun=All.\n\n" +
			"The command holds the lease of the actuator, so it does not run beside `rehome run`; a dry run needs no lease. The\n" +
			"exit code is 0 if everything was evaluated, no call failed, and no pod waited too long for its turn.",
		Example: "  # Print what it would evict, in the cluster of the current kubectl context:\n" +
			"  rehome once --dry-run --policy deploy/policy.yaml\n\n" +
			"  # Evict, and store the verdict on each pod:\n" +
			"  rehome once --policy deploy/policy.yaml -o json > verdicts.json",
		Args: cobra.NoArgs,
	}
	s := cmdutil.Settings(c).Policy().Cluster().DryRun()
	format := outputFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		title := "done"
		if s.Settings.DryRun {
			title = "dry run, nothing was changed"
		}
		return app.RunOnce(c.Context(), s.Settings, newOutput(c.OutOrStdout(), *format, title), c.ErrOrStderr())
	}
	return c
}
