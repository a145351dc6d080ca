// Package try has the commands that need no running Rehome.
//
//	simulate.go         simulate: a policy on objects from files
//	settlement.go       the rounds of simulate --until-settled as text
//	once.go             once: one round in a cluster
//	policy.go           policy check, explain, convert
//	schemas.go          schemas list, print, validate
package try

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/cli/cmdutil"
	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/simulate"
	"github.com/rehome-dev/rehome/simulate/objects"
)

// Commands are the commands that need no running Rehome.
func Commands() []*cobra.Command {
	return []*cobra.Command{simulateCommand(), onceCommand(), policyCommand(), schemasCommand()}
}

func simulateCommand() *cobra.Command { //nolint:funlen // the flat construction of one command
	var ask simulation
	c := &cobra.Command{
		Use:   "simulate --policy FILE --objects FILE...",
		Short: "Predict which pods a policy would move, from object files and without a cluster",
		Long: "Predict which pods a policy would move, from object files. The command needs no cluster and changes nothing.\n\n" +
			"The objects are YAML or JSON from kubectl, or written manually: nodes, pods, PodDisruptionBudgets, and the objects\n" +
			"that pods refer to, and NodeMetrics and PodMetrics for a policy that uses the load. Other kinds are ignored. Every\n" +
			"strategy of the policy evaluates everything once, in the order of the file. With fewer than two usable nodes, no pod\n" +
			"moves. The outcome of a pod is\n" +
			"  evicted   the pod would move\n" +
			"  deferred  the pod should move, but a PodDisruptionBudget allows no further disruption according to its status\n" +
			"  rejected  the pod would move if no rule protected it. A strategy that chooses pods of a group can name a pod here that\n" +
			"            it would not have chosen first.\n" +
			"The same input gives the same output. The rules of the scheduler follow the\n" +
			"Kubernetes version of the newest kubelet.\n\n" +
			"With --until-settled, the command applies the policy again and again until no pod moves, a state repeats, or\n" +
			"--rounds is reached. After each round the moved pods are gone, and their replacements run where the scheduler would\n" +
			"place them, as package fit/score predicts with scheduler.profile of the policy. Replacements without a node are\n" +
			"Pending. All rounds have the same time, replacements are new and ready, and each round counts limits from zero. The\n" +
			"output has the moves of each round and the numbers that they change: pods that a strategy wants to move, skew, and\n" +
			"requests on nodes.\n\n" +
			"With -o json, the output has one object per line and pod, with the fields pod, node, strategy, profile, outcome,\n" +
			"reason, and message. With --until-settled, it is one object with all rounds. The exit code is 0 if the simulation\n" +
			"succeeds, whether or not pods would move.",
		Example: "  # Check a policy before you apply it:\n" +
			"  kubectl get nodes,pods,pdb,ns,pvc,pv,sc,priorityclasses -A -o yaml |\n" +
			"    rehome simulate --policy deploy/policy.yaml --objects -\n\n" +
			"  # At another time, as JSON:\n" +
			"  rehome simulate --policy deploy/policy.yaml --objects docs/examples/objects.yaml --now 2030-01-02T00:00:00Z -o json\n\n" +
			"  # All further moves, and the final nodes of the pods:\n" +
			"  rehome simulate --until-settled --policy deploy/policy.yaml --objects docs/examples/objects.yaml\n\n" +
			"  # Several files:\n" +
			"  rehome simulate --policy deploy/policy.yaml --objects nodes.json --objects manifests/",
		Args: cobra.NoArgs,
	}
	s := cmdutil.Settings(c).Policy()
	f := c.Flags()
	f.StringArrayVar(&ask.objects, "objects", nil, "file or directory with objects, or - for standard input; repeatable")
	f.StringVar(&ask.now, "now", "", "time of the decisions, such as 2030-01-02T15:04:05Z; the default is now")
	f.BoolVar(&ask.noLimits, "no-limits", false, "ignore the policy's limits on the number of moves")
	f.BoolVar(&ask.settled, "until-settled", false, "repeat with the replacements on their predicted nodes until nothing moves")
	f.IntVar(&ask.rounds, "rounds", 10, "with --until-settled: the largest number of rounds")
	format := outputFlag(c)
	cmdutil.Must(c.MarkFlagRequired("objects"))
	c.RunE = func(c *cobra.Command, _ []string) error {
		ask.policy = s.Settings.Policy
		config, found, err := ask.read(c.InOrStdin(), c.ErrOrStderr())
		if err != nil {
			return err
		}
		if !ask.settled {
			output := newOutput(c.OutOrStdout(), *format, "would be")
			err := simulate.Run(c.Context(), config, found, output.Verdicts)
			return errors.Join(err, output.End())
		}
		settlement, err := simulate.Settle(c.Context(), config, found, ask.rounds)
		switch {
		case err != nil:
			return err
		case *format == "json":
			return cmdutil.PrintObject(c.OutOrStdout(), *format, "Settlement", settlement)
		}
		return printSettlement(c.OutOrStdout(), settlement)
	}
	return c
}

// outputFlag adds the flag -o for verdicts to c.
func outputFlag(c *cobra.Command) *string {
	format := ""
	cmdutil.Choice(c, &format, "output", "o", "json: one pod per line", "", "json")
	return &format
}

// newOutput prints verdicts in a format of [outputFlag], with the title before the counts.
func newOutput(w io.Writer, format, title string) simulate.Output {
	if format == "json" {
		return simulate.NewJSON(w)
	}
	return simulate.NewTable(w, title, cmdutil.Printable)
}

// simulation has the flags of the command.
type simulation struct {
	policy   string
	objects  []string
	now      string
	noLimits bool
	settled  bool
	rounds   int
}

// read reads the policy and the objects.
func (q simulation) read(stdin io.Reader, notes io.Writer) (simulate.Config, []metav1.Object, error) {
	now := time.Now()
	if q.now != "" {
		var err error
		if now, err = time.Parse(time.RFC3339, q.now); err != nil {
			return simulate.Config{}, nil, fmt.Errorf("--now: want a time such as 2030-01-02T15:04:05Z, got %q", q.now)
		}
	}
	p, _, err := settings.ReadPolicy(q.policy)
	if err != nil {
		return simulate.Config{}, nil, err
	}
	found, err := readObjects(q.objects, stdin, notes)
	if err != nil {
		return simulate.Config{}, nil, err
	}
	noteFewNodes(found, p, notes)
	found, loads := apartLoads(found)
	return simulate.Config{
		Policy: settings.WithoutOutside(p, notes), Functions: functions.All(), Now: func() time.Time { return now },
		NoLimits: q.noLimits, Loads: loads,
	}, found, nil
}

// readObjects reads the objects that decisions need, and warns about unexpected ones.
func readObjects(names []string, stdin io.Reader, notes io.Writer) ([]metav1.Object, error) {
	sources, err := objects.Open(names, stdin)
	if err != nil {
		return nil, err
	}
	found, err := objects.Read(sources, Deciding())
	if err != nil {
		return nil, err
	}
	for _, k := range idle() {
		delete(found.LeftOut, k.String())
	}
	var left []string
	for _, kind := range slices.Sorted(maps.Keys(found.LeftOut)) {
		left = append(left, fmt.Sprintf("%d %s", found.LeftOut[kind], kind))
	}
	if len(left) > 0 {
		fmt.Fprintln(notes, "ignored, because no decision depends on them:", cmdutil.Printable(strings.Join(left, ", ")))
	}
	noteLostPods(found.Objects, notes)
	return found.Objects, nil
}

// Deciding returns the kinds that decisions depend on.
func Deciding() []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	for version, names := range map[schema.GroupVersion][]string{
		{Version: "v1"}:                             {"Node", "Pod", "Namespace", "PersistentVolumeClaim", "PersistentVolume"},
		{Group: "policy", Version: "v1"}:            {"PodDisruptionBudget"},
		{Group: "scheduling.k8s.io", Version: "v1"}: {"PriorityClass"},
		{Group: "storage.k8s.io", Version: "v1"}: {
			"StorageClass", "CSINode", "CSIDriver", "CSIStorageCapacity", "VolumeAttachment",
		},
		objects.MetricsVersion(): {"NodeMetrics", "PodMetrics"},
	} {
		for _, name := range names {
			kinds = append(kinds, version.WithKind(name))
		}
	}
	return kinds
}

// idle returns kinds that are related to decisions but never read, because a pod has the necessary fields of its owner.
func idle() []schema.GroupKind {
	return []schema.GroupKind{
		{Group: "apps", Kind: "ReplicaSet"}, {Group: "apps", Kind: "Deployment"}, {Group: "apps", Kind: "StatefulSet"},
	}
}

const notedNodes = 5

// noteLostPods warns about pods on missing nodes, which the simulation ignores.
func noteLostPods(found []metav1.Object, notes io.Writer) {
	there := map[string]bool{}
	for _, o := range found {
		if n, ok := o.(*corev1.Node); ok {
			there[n.Name] = true
		}
	}
	lost := map[string][]string{}
	for _, o := range found {
		if p, ok := o.(*corev1.Pod); ok && p.Spec.NodeName != "" && !there[p.Spec.NodeName] {
			lost[p.Spec.NodeName] = append(lost[p.Spec.NodeName], p.Namespace+"/"+p.Name)
		}
	}
	for i, node := range slices.Sorted(maps.Keys(lost)) {
		if i == notedNodes {
			fmt.Fprintf(notes, "warning: the same applies to %s more\n", cmdutil.Count(len(lost)-notedNodes, "node"))
			return
		}
		fmt.Fprintf(notes, "warning: node %s is missing, so the simulation ignores %s on it, such as %s\n",
			cmdutil.Printable(node), cmdutil.Count(len(lost[node]), "pod"), cmdutil.Printable(lost[node][0]))
	}
}

// noteFewNodes warns about too few usable nodes, because no pod can move then.
func noteFewNodes(found []metav1.Object, p policy.Policy, notes io.Writer) {
	usable, selected := 0, p.Selector()
	for _, o := range found {
		if n, ok := o.(*corev1.Node); ok && cluster.Unusable(n, selected, p.Signals) == "" {
			usable++
		}
	}
	if usable < 2 {
		fmt.Fprintln(notes, "warning: fewer than two nodes are usable, so no pod moves")
	}
}

// apartLoads separates NodeMetrics and PodMetrics from the other objects.
func apartLoads(found []metav1.Object) ([]metav1.Object, simulate.Loads) {
	l := simulate.Loads{Nodes: map[string]corev1.ResourceList{}, Pods: map[types.NamespacedName]corev1.ResourceList{}}
	rest := found[:0:0]
	for _, o := range found {
		switch m := o.(type) {
		case *objects.NodeMetrics:
			l.Nodes[m.Name] = m.Usage
		case *objects.PodMetrics:
			l.Pods[types.NamespacedName{Namespace: m.Namespace, Name: m.Name}] = m.Used()
		default:
			rest = append(rest, o)
		}
	}
	return rest, l
}
