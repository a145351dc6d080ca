package look

import (
	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/cli/cmdutil"
	"github.com/rehome-dev/rehome/explain"
)

func explainCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "explain (pod | node | WORKLOAD) NAME",
		Short: "Explain what happened to a pod and what protects it, what keeps a node from being emptied, or a workload",
		Long: "Explain a node: each pod that cannot move now, with the rule or the budget that holds it. It needs the policy.\n\n" +
			"Explain a workload, such as a deployment: where its pods are and their replacements would run, what protects them, and\n" +
			"the limits that their moves count against.\n\n" +
			"Explain a pod, in three parts:\n" +
			"  what happened to it   from the bus: each change, the intents of strategies, the verdicts of the actuator, and the\n" +
			"                        node of the replacement. Times with a + are since the change.\n" +
			"  what would move it    from the cluster: every strategy of the policy evaluates the pod as it is now, and where the\n" +
			"                        scheduler would place its replacement\n" +
			"  what protects it      protections by profile, PodDisruptionBudgets, the actuator's records that hold it, and why a\n" +
			"                        maintenance of its node cannot move it\n\n" +
			"A pod that is gone still has its history. Without a bus there is no history, and without a cluster or a policy there\n" +
			"is nothing about now; the output says so.",
		Example: "  rehome explain pod api-1 -n shop --policy policy.yaml\n" +
			"  rehome explain pod api-1 -n shop --since 1h       # what happened in the last hour\n" +
			"  rehome explain pod api-1 -n shop -o json | jq .opinions\n" +
			"  rehome explain deployment api -n shop --policy policy.yaml\n" +
			"  rehome explain node worker-9 --policy policy.yaml",
		Args: cobra.MinimumNArgs(1),
	}
	s := cmdutil.Settings(c).Policy().Bus()
	namespaceOf := s.Namespace()
	c.ValidArgsFunction = cmdutil.CompleteResources(s, namespaceOf, "pod", "node")
	since := cmdutil.Since(c, "begin the history this long ago, such as 1h; the default is everything that is kept")
	format := cmdutil.OutputFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		kind, name, err := cmdutil.Resource(args)
		switch {
		case err != nil:
			return err
		case kind == "Node":
			from, err := sources(s.Settings)
			if err != nil {
				return err
			}
			x, err := explain.Node(c.Context(), from, name)
			if err != nil {
				return err
			}
			return cmdutil.Show(c.OutOrStdout(), *format, "NodeExplanation", NodePage{x})
		}
		begin, err := since()
		if err != nil {
			return err
		}
		namespace, err := namespaceOf()
		if err != nil {
			return err
		}
		from, err := sources(s.Settings)
		if err != nil {
			return err
		}
		return withReader(s.Settings, func(b *bus.Bus) error {
			from.Bus = b
			if kind != "Pod" {
				x, err := explain.Workload(c.Context(), from, kind, namespace, name)
				if err != nil {
					return err
				}
				return cmdutil.Show(c.OutOrStdout(), *format, "WorkloadExplanation", WorkloadPage{x})
			}
			x, err := explain.Pod(c.Context(), from, namespace, name, begin)
			if err != nil {
				return err
			}
			return cmdutil.Show(c.OutOrStdout(), *format, "PodExplanation", &PodPage{x})
		})
	}
	return c
}
