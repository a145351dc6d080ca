package try

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/app/usage"
	"github.com/rehome-dev/rehome/cli/command"
	"github.com/rehome-dev/rehome/policy/words"
)

func PolicyCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "policy", Short: "Check, explain or convert a policy file; no cluster is needed",
		Args: func(c *cobra.Command, names []string) error {
			if len(names) > 0 {
				return usage.Errorf("%s: no command %q", c.CommandPath(), names[0])
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() }, // cobra ignores arguments of what does not run
	}
	c.AddCommand(policyCheckCommand(), policyExplainCommand(), policyConvertCommand())
	return c
}

func policyExplainCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "explain FILE",
		Short: "Say in words what a policy does: what wakes each strategy, what it moves, what is protected",
		Long: "Say in words what a policy does: for each profile and strategy what it moves, which changes wake it, and which of\n" +
			"its arguments differ from the defaults; then what protects a pod of the profile, rule by rule. - reads standard input.",
		Example: "  rehome policy explain deploy/policy.yaml\n\n" +
			"  # The policy of kubernetes-sigs/descheduler, as it runs in a cluster:\n" +
			"  kubectl -n kube-system get configmap descheduler-policy-configmap -o jsonpath='{.data.policy\\.yaml}' |\n" +
			"    rehome policy explain -",
		Args: command.Files(1),
		RunE: func(c *cobra.Command, names []string) error {
			s, err := command.ReadSource(names[0], c.InOrStdin())
			if err != nil {
				return usage.Wrap(err)
			}
			p, err := s.Parse()
			if err != nil {
				return usage.Wrap(err)
			}
			_, err = io.WriteString(c.OutOrStdout(), words.Text(p))
			return err
		},
	}
}
