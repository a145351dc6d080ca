package act

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

type nodeFlags struct {
	cordon, drain, complete bool
	onDeadline              string
	force                   []string
}

// afterDrain is how much longer a request lasts than its drain may take, whose time begins later: with its turn. What becomes of
// the node then is seen.
const afterDrain = time.Minute

func requestNodeCommand() *cobra.Command {
	f := &nodeFlags{}
	c := &cobra.Command{
		Use:   "node NAME [--cordon | --drain | --complete]",
		Short: "Request that all pods of a node are moved, or that the node is cordoned, drained or given back",
		Long: "Request a move of all pods of a node, once. New pods may still come to the node.\n\n" +
			"With --cordon or --drain the request starts a maintenance: the node is cordoned, and with --drain also emptied,\n" +
			"until a request with --complete gives it back. Stages only go forward. The command waits until the node reaches the\n" +
			"stage; the maintenance continues without it. The deadline limits the drain, and --on-deadline chooses what happens\n" +
			"then, for which the command waits a minute longer. The exit code is 0 if the node reached the stage.",
		Example: "  rehome request node worker-9 --reason 'its pods hang'\n" +
			"  rehome request node worker-9 --drain --reason 'its fan is replaced' --deadline 4h\n" +
			"  rehome request node worker-9 --complete --reason 'the fan is new'",
	}
	f.bind(c)
	return requestThe(c, true, func(r *schemas.Request, arguments []string) error {
		if len(arguments) != 1 {
			return fmt.Errorf("want the name of one node, got %q", arguments)
		}
		deadline, err := c.Flags().GetDuration("deadline")
		if err != nil {
			return err
		}
		return f.fill(r, arguments[0], deadline)
	})
}

func (f *nodeFlags) bind(c *cobra.Command) {
	flags := c.Flags()
	flags.BoolVar(&f.cordon, "cordon", false, "no new pods on the node")
	flags.BoolVar(&f.drain, "drain", false, "no new pods on the node, and those that are there move away")
	flags.BoolVar(&f.complete, "complete", false, "give the node back as it was before")
	flags.StringVar(&f.onDeadline, "on-deadline", "", "with --drain and --deadline: Continue, which is the default, Hold or Release")
	flags.StringSliceVar(&f.force, "force", nil,
		"guard that is not to refuse it: AllNodes, ControlPlane or SingleNode; may be given again")
}

func (f *nodeFlags) fill(r *schemas.Request, node string, deadline time.Duration) error {
	stage, flag, err := f.stage()
	switch {
	case err != nil:
		return err
	case stage == "":
		r.Target = &schemas.Target{Node: node}
		return nil
	case r.Method != "" || len(r.Override) > 0 || r.Profile != "":
		return fmt.Errorf("--method, --override, --profile: want them without %s", flag)
	}
	r.Action = schemas.ActionMaintain
	if r.Maintenance, err = f.request(node, stage, deadline); err != nil {
		return err
	}
	if r.Maintenance.Deadline != nil {
		r.Deadline = r.Deadline.Add(min(afterDrain, longestRequest-deadline))
	}
	return nil
}

// stage returns the stage that the flags ask for, and its flag; nothing if they ask for none.
func (f *nodeFlags) stage() (stage v1alpha1.Stage, flag string, err error) {
	for _, s := range []struct {
		given bool
		flag  string
		stage v1alpha1.Stage
	}{{f.cordon, "--cordon", v1alpha1.Cordon}, {f.drain, "--drain", v1alpha1.Drain}, {f.complete, "--complete", v1alpha1.Complete}} {
		switch {
		case s.given && flag != "":
			return "", "", errors.New("want one of --cordon, --drain and --complete")
		case s.given:
			stage, flag = s.stage, s.flag
		}
	}
	if flag == "" && (f.onDeadline != "" || len(f.force) > 0) {
		err = errors.New("--force, --on-deadline: want them with --cordon or --drain")
	}
	return stage, flag, err
}

func (f *nodeFlags) request(node string, stage v1alpha1.Stage, deadline time.Duration) (*schemas.NodeRequest, error) {
	m := &schemas.NodeRequest{Node: node, Stage: stage, OnDeadline: v1alpha1.OnDeadline(f.onDeadline)}
	if _, is := schemas.InTable(schemas.RequestedMaintenance(node)); !is {
		return nil, fmt.Errorf("want the name of a node, got %q", node)
	}
	if deadline > 0 && stage == v1alpha1.Drain {
		m.Deadline = &metav1.Duration{Duration: deadline}
	}
	known := []v1alpha1.OnDeadline{v1alpha1.Continue, v1alpha1.Hold, v1alpha1.Release}
	switch {
	case f.onDeadline != "" && m.Deadline == nil:
		return nil, errors.New("--on-deadline: want it with --drain and --deadline")
	case f.onDeadline != "" && !slices.Contains(known, m.OnDeadline):
		return nil, fmt.Errorf("--on-deadline: want one of %v, got %q", known, f.onDeadline)
	case len(f.force) > 0 && stage == v1alpha1.Complete:
		return nil, errors.New("--force: want it with --cordon or --drain")
	}
	guards := []v1alpha1.Guard{v1alpha1.AllNodes, v1alpha1.ControlPlane, v1alpha1.SingleNode}
	for _, name := range f.force {
		guard := v1alpha1.Guard(name)
		if !slices.Contains(guards, guard) || slices.Contains(m.Force, guard) {
			return nil, fmt.Errorf("--force: want one of %v, each once, got %q", guards, name)
		}
		m.Force = append(m.Force, guard)
	}
	return m, nil
}
