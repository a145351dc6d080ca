package try

import (
	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/app"
	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/cli/command"
)

func OnceCommand() *cobra.Command {
	output := "table"
	c := &cobra.Command{
		Use:   "once",
		Short: "Evaluate everything once, evict what should move, print each verdict and exit",
		Long: "Evaluate everything once, evict what should move, print each verdict and exit: for a Job or a CronJob, without a\n" +
			"bus.\n\n" +
			"Every strategy of the policy is asked about everything, in the order of the file. What it wants moved is moved before\n" +
			"the next one is asked, by all rules of the actuator: the policy's rate, moves in flight, brakes, restarts. A pod that\n" +
			"a PodDisruptionBudget holds is deferred, and nothing comes back to it; one that would move if nothing protected it is\n" +
			"rejected. The output is that of rehome simulate.\n" +
			"With --dry-run the API server is asked with dryRun=All, and what would have been evicted counts against budgets.\n\n" +
			"It takes the lease of the actuator, so it does not run beside `rehome run`; a dry run takes none. The exit code is 0\n" +
			"when everything was decided and no call failed, 1 when one did, and 2 when the policy or a setting is wrong.",
		Example: "  # What would it evict, in the cluster that kubectl talks to?\n" +
			"  rehome once --dry-run --policy deploy/policy.yaml\n\n" +
			"  # Evict it, and keep what became of each pod:\n" +
			"  rehome once --policy deploy/policy.yaml -o json > verdicts.json",
		Args: command.NoArguments,
	}
	s := command.BindClusterFlags(c)
	c.Flags().StringVarP(&output, "output", "o", output, "table, or json: one pod a line")
	c.RunE = func(c *cobra.Command, _ []string) error {
		return command.WithSettings(c, s, func(s settings.Settings) error {
			title := "done"
			if s.DryRun {
				title = "dry run, nothing was changed"
			}
			to, err := OutputOf(output, c.OutOrStdout(), title)
			if err != nil {
				return err
			}
			return app.RunOnce(c.Context(), s, to, c.ErrOrStderr())
		})
	}
	return c
}
