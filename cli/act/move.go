package act

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rehome-dev/rehome/cli/cmdutil"
	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

func moveCommand() *cobra.Command {
	selector, everywhere := "", false
	c := &cobra.Command{
		Use:   "move (pod NAME... | pods -l SELECTOR | TYPE NAME)",
		Short: "Move pods, all pods of a workload, or all pods of a node",
		Long: "Move pods by the rules of the policy: protections, budgets, limits, and circuit breakers apply. A deferred pod is\n" +
			"tried again until the deadline. TYPE is deployment, statefulset, node, or the type of another workload. The\n" +
			"scheduler can still place new pods on a node whose pods move; see `rehome drain`.\n\n" +
			"The command prints a line for each verdict, and a table of all pods at the end. Ctrl-C leaves the request open. The\n" +
			"exit code is 0 if all pods were moved and their replacements are ready.",
		Example: "  rehome move pod api-1 api-2 -n shop --reason 'they hang'\n" +
			"  rehome move deployment api -n shop --reason 'new node pool'\n" +
			"  rehome move pods -A -l runtime=old --dry-run --reason 'what would move?'",
		Args:       cobra.MinimumNArgs(1),
		SuggestFor: []string{"request", "evict"},
	}
	f := bindRequest(c)
	f.DryRun()
	namespaceOf := f.Namespace()
	f.bindDeadline(c)
	flags := c.Flags()
	flags.StringVarP(&selector, "selector", "l", "", "label selector, such as app=api,tier!=test")
	flags.BoolVarP(&everywhere, "all-namespaces", "A", false, "with -l: all namespaces that the sender may use")
	flags.StringVar(&f.profile, "profile", "", "profile of the policy; the default is the first one")
	cmdutil.Choice(c, &f.method, "method", "", "auto (the method of the policy), evict, or restart", "auto", "evict", "restart")
	flags.StringSliceVar(&f.override, "override", nil, "protection rule to ignore; repeatable")
	cmdutil.CompleteValues(c, "override", policy.Overridable()...)
	c.ValidArgsFunction = cmdutil.CompleteResources(f.Flags, namespaceOf, cmdutil.KindNames()...)
	return f.send(c, func(r *schemas.Request, args []string) error {
		r.Action = schemas.ActionDeschedule
		kind, names, err := cmdutil.Resources(args)
		if err != nil {
			return err
		}
		namespace := ""
		if kind != "Node" && !everywhere {
			if namespace, err = namespaceOf(); err != nil {
				return err
			}
		}
		r.Target, err = target(kind, namespace, names, selector, everywhere)
		return err
	})
}

// target returns the target of the request.
func target(kind, namespace string, names []string, selector string, everywhere bool) (*schemas.Target, error) {
	switch {
	case selector != "" && (kind != "Pod" || len(names) > 0):
		return nil, errors.New("--selector: want it with pods and without names")
	case everywhere && selector == "":
		return nil, errors.New("--all-namespaces: want it with --selector")
	case selector != "":
		if _, err := labels.Parse(selector); err != nil {
			return nil, fmt.Errorf("--selector: want labels such as app=api,tier!=test, got %q: %w", selector, err)
		}
		return &schemas.Target{Selector: &schemas.SelectorTarget{Namespace: namespace, Labels: selector}}, nil
	case len(names) == 0 || kind != "Pod" && len(names) > 1:
		return nil, fmt.Errorf("want the name of a %s, got %q", strings.ToLower(kind), names)
	case kind == "Node":
		return &schemas.Target{Node: names[0]}, nil
	case kind != "Pod":
		return &schemas.Target{Workload: &schemas.WorkloadTarget{Kind: kind, Namespace: namespace, Name: names[0]}}, nil
	}
	t := &schemas.Target{}
	for _, name := range names {
		t.Pods = append(t.Pods, schemas.PodTarget{Namespace: namespace, Name: name})
	}
	return t, nil
}

func evaluateCommand() *cobra.Command {
	c := &cobra.Command{
		Use:       "evaluate [STRATEGY]",
		Short:     "Evaluate everything now, with one strategy or all",
		Example:   "  rehome evaluate PodLifeTime --reason 'the clock was wrong'",
		Args:      cobra.MaximumNArgs(1),
		ValidArgs: functions.Names(functions.Hosted()),
	}
	f := bindRequest(c)
	c.Flags().StringVar(&f.profile, "profile", "", "profile of the policy; the default is all profiles")
	return f.send(c, func(r *schemas.Request, args []string) error {
		r.Action, r.Strategy = schemas.ActionEvaluate, strings.Join(args, "")
		return nil
	})
}

func cancelCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "cancel REQUEST",
		Short:   "Cancel an open request of the same sender; moves that have begun continue",
		Example: "  rehome cancel drain-worker-9 --reason 'the fan is still good'",
		Args:    cobra.ExactArgs(1),
	}
	return bindRequest(c).send(c, func(r *schemas.Request, args []string) error {
		r.Action, r.Request = schemas.ActionCancel, strings.TrimPrefix(args[0], "request/")
		if !schemas.IsRequestWord(r.Request) {
			return fmt.Errorf("want the name of a request, got %q", args[0])
		}
		return nil
	})
}
