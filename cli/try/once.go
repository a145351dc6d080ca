package try

import (
	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/app"
	"github.com/rehome-dev/rehome/cli/cmdutil"
)

func onceCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "once",
		Short: "Evaluate everything once, evict what should move, print each verdict and exit",
		Long: "Evaluate everything once, evict what should move, print each verdict and exit: for a Job or a CronJob, without a\n" +
			"bus.\n\n" +
			"Every strategy of the policy evaluates everything, in the order of the file. Its pods are moved before the next\n" +
			"strategy runs, by all rules of the actuator: rate, moves in flight, circuit breakers, restarts. A pod that a\n" +
			"PodDisruptionBudget holds is deferred and not tried again; a pod that would move without its protection is rejected.\n" +
			"The output is that of rehome simulate. With --dry-run the API server is called with dryRun=All.\n\n" +
			"It takes the lease of the actuator, so it does not run beside `rehome run`; a dry run takes none. The exit code is 0\n" +
			"if everything was decided and no call failed.",
		Example: "  # What would it evict, in the cluster that kubectl talks to?\n" +
			"  rehome once --dry-run --policy deploy/policy.yaml\n\n" +
			"  # Evict it, and keep what became of each pod:\n" +
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
