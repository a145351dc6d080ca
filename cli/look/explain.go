package look

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/cli/cmdutil"
)

func explainCommand() *cobra.Command { //nolint:funlen // the flat construction of one command
	c := &cobra.Command{
		Use:   "explain (pod NAME | node NAME | workload KIND/NAME)",
		Short: "Explain the history and the protections of a pod, the pods that block a drain, or a workload",
		Long: "Explain a node: each pod that cannot move now, with the rule or the budget that holds it.\n\n" +
			"Explain a workload, such as a Deployment: the nodes of its pods, the nodes for their replacements, the protections, and\n" +
			"the limits that their moves count against.\n\n" +
			"Explain a pod, in three parts:\n" +
			"  history       each change, the intents of strategies, the verdicts of the actuator, and the node of the replacement.\n" +
			"                Times with a + are since the change.\n" +
			"  strategies    every strategy of the policy evaluates the current pod, and the scheduler's choice for its\n" +
			"                replacement is predicted\n" +
			"  protections   protections by profile, PodDisruptionBudgets, moves and circuit breakers that hold it, and why a\n" +
			"                maintenance of its node cannot move it\n\n" +
			"The history of a deleted pod remains available. The API evaluates the policy of the installation. With a bus, name the\n" +
			"policy with --policy. The output lists the parts that are unknown, for example without a policy or a cluster.",
		Example: "  rehome explain pod api-1 -n shop\n" +
			"  rehome explain pod api-1 -n shop --since 1h       # what happened in the last hour\n" +
			"  rehome explain pod api-1 -n shop -o json | jq .opinions\n" +
			"  rehome explain workload deployment/api -n shop\n" +
			"  rehome explain node worker-9\n" +
			"  rehome explain node worker-9 --policy policy.yaml    # with a bus",
		Args: cobra.MinimumNArgs(1),
	}
	s := cmdutil.Settings(c).Policy().Reach()
	namespaceOf := s.Namespace()
	c.ValidArgsFunction = cmdutil.CompleteResources(s, namespaceOf, "pod", "node", "workload")
	since := cmdutil.Since(c, "start the history this long ago, such as 1h; the default is the whole stored history")
	format := cmdutil.OutputFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		kind, name, err := subject(args)
		if err != nil {
			return err
		}
		begin, err := since()
		if err != nil {
			return err
		}
		of := types.NamespacedName{Name: name}
		if kind != "Node" {
			if of.Namespace, err = namespaceOf(); err != nil {
				return err
			}
		}
		to, err := s.Open(c.Context(), cmdutil.Reader)
		if err != nil {
			return err
		}
		defer to.Close()
		switch kind {
		case "Pod":
			x, err := to.ExplainPod(c.Context(), of, begin)
			if err != nil {
				return err
			}
			return cmdutil.Show(c.OutOrStdout(), *format, "PodExplanation", &PodPage{x})
		case "Node":
			x, err := to.ExplainNode(c.Context(), name)
			if err != nil {
				return err
			}
			return cmdutil.Show(c.OutOrStdout(), *format, "NodeExplanation", NodePage{x})
		}
		x, err := to.ExplainWorkload(c.Context(), kind, of)
		if err != nil {
			return err
		}
		return cmdutil.Show(c.OutOrStdout(), *format, "WorkloadExplanation", WorkloadPage{x})
	}
	return c
}

// subject reads TYPE NAME or TYPE/NAME, after the word workload if it is one.
func subject(args []string) (kind, name string, err error) {
	if args[0] != "workload" {
		return cmdutil.Resource(args)
	}
	if args = args[1:]; len(args) > 0 {
		kind, name, err = cmdutil.Resource(args)
	}
	if err != nil || kind == "" || kind == "Pod" || kind == "Node" {
		return "", "", fmt.Errorf("want workload KIND/NAME, such as workload deployment/api, got %q", strings.Join(args, " "))
	}
	return kind, name, nil
}
