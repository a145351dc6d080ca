package act

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/cli/cmdutil"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// afterDrain is added to the deadline of a request, because the time of its drain begins later, with its turn. So the command
// still sees the end of the drain.
const afterDrain = time.Minute

func drainCommand() *cobra.Command {
	onDeadline := ""
	c := &cobra.Command{
		Use:   "drain NODE",
		Short: "Cordon a node and move its pods away",
		Long: "Cordon a node and move its pods away by the rules of the policy. This is a maintenance: it continues without the\n" +
			"command until `rehome uncordon` releases the node. The command shows the number of remaining pods and what blocks\n" +
			"them, and ends when the node is empty. --deadline limits the drain, and --on-deadline chooses what happens then; the\n" +
			"command waits one more minute for it. The exit code is 0 if the node was drained.",
		Example: "  rehome drain worker-9 --reason 'its fan is replaced' --deadline 4h",
	}
	f, guards := bindNode(c)
	f.bindDeadline(c)
	cmdutil.Choice(c, &onDeadline, "on-deadline", "", "with --deadline: Continue, Hold, or Release",
		string(v1alpha1.Continue), string(v1alpha1.Hold), string(v1alpha1.Release))
	return f.send(c, func(r *schemas.Request, args []string) error {
		if err := maintain(r, args[0], v1alpha1.Drain, *guards); err != nil {
			return err
		}
		switch m := r.Maintenance; {
		case f.deadline > 0:
			m.Deadline = &metav1.Duration{Duration: f.deadline}
			r.Deadline = r.Deadline.Add(min(afterDrain, longestRequest-f.deadline))
			if c.Flags().Changed("on-deadline") {
				m.OnDeadline = v1alpha1.OnDeadline(onDeadline)
			}
		case c.Flags().Changed("on-deadline"):
			return errors.New("--on-deadline: want it with --deadline")
		}
		return nil
	})
}

func cordonCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "cordon NODE",
		Short:   "Keep new pods off a node until uncordon",
		Long:    "Keep new pods off a node. This is a maintenance, which guards can refuse; `rehome uncordon` ends it.",
		Example: "  rehome cordon worker-9 --reason 'its disk is slow'",
	}
	f, guards := bindNode(c)
	return f.send(c, func(r *schemas.Request, args []string) error { return maintain(r, args[0], v1alpha1.Cordon, *guards) })
}

func uncordonCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "uncordon NODE",
		Short:   "Release a node and restore its state before drain or cordon",
		Example: "  rehome uncordon worker-9 --reason 'the fan is new'",
		Args:    cobra.ExactArgs(1),
	}
	f := bindRequest(c)
	c.ValidArgsFunction = cmdutil.CompleteNodes(f.Cluster())
	return f.send(c, func(r *schemas.Request, args []string) error { return maintain(r, args[0], v1alpha1.Complete, nil) })
}

// bindNode adds the flags of a request about a node to c.
func bindNode(c *cobra.Command) (*requestFlags, *[]string) {
	f, guards := bindRequest(c), &[]string{}
	c.Args, c.ValidArgsFunction = cobra.ExactArgs(1), cmdutil.CompleteNodes(f.Cluster())
	all := []string{string(v1alpha1.AllNodes), string(v1alpha1.ControlPlane), string(v1alpha1.SingleNode)}
	c.Flags().StringSliceVar(guards, "force", nil, "guard to ignore: AllNodes, ControlPlane, or SingleNode; repeatable")
	cmdutil.CompleteValues(c, "force", all...)
	return f, guards
}

func (f *requestFlags) bindDeadline(c *cobra.Command) {
	c.Flags().DurationVar(&f.deadline, "deadline", 0, "time limit, at most 24h")
}

func maintain(r *schemas.Request, node string, stage v1alpha1.Stage, guards []string) error {
	if _, is := schemas.InTable(schemas.RequestedMaintenance(node)); !is {
		return fmt.Errorf("want the name of a node, got %q", node)
	}
	m := &schemas.NodeRequest{Node: node, Stage: stage}
	for _, g := range guards {
		m.Force = append(m.Force, v1alpha1.Guard(g))
	}
	r.Action, r.Maintenance = schemas.ActionMaintain, m
	return nil
}
