package look

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/rehome-dev/rehome/actuator"
	"github.com/rehome-dev/rehome/actuator/move/eviction"
	"github.com/rehome-dev/rehome/app"
	"github.com/rehome-dev/rehome/app/settings"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/cli/cmdutil"
	"github.com/rehome-dev/rehome/explain"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/simulate"
	"github.com/rehome-dev/rehome/status"
)

func explainCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "explain (pod | node) NAME",
		Short: "Explain what happened to a pod and what protects it, or which pods keep a node from being emptied",
		Long: "Explain a node: each pod that cannot move now, with the rule or the budget that holds it. It needs the policy.\n\n" +
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
			x, err := explainNode(c.Context(), s.Settings, name)
			if err != nil {
				return err
			}
			return cmdutil.Show(c.OutOrStdout(), *format, "NodeExplanation", x)
		case kind != "Pod":
			return fmt.Errorf("want pod NAME or node NAME, got %q", args)
		}
		from, err := since()
		if err != nil {
			return err
		}
		namespace, err := namespaceOf()
		if err != nil {
			return err
		}
		x, err := explainPod(c.Context(), s.Settings, types.NamespacedName{Namespace: namespace, Name: name}, from)
		if err != nil {
			return err
		}
		return cmdutil.Show(c.OutOrStdout(), *format, "PodExplanation", &x)
	}
	return c
}

// Explanation is what `rehome explain pod` shows, and its JSON.
type Explanation struct {
	Time time.Time `json:"time"`
	Pod  Subject   `json:"pod"`
	// History is that of every pod that had the name, oldest first. nil: it is not known.
	History []explain.Life `json:"history,omitempty"`
	// Since is when the history that was read begins. Zero: with what is kept.
	Since time.Time `json:"since,omitzero"`
	// Opinions are those of the strategies of the policy, in its order, and Guards what protects the pod by each profile.
	Opinions []simulate.Opinion `json:"opinions,omitempty"`
	Guards   []simulate.Guard   `json:"guards,omitempty"`
	// Replacement says where the replacement of the pod would run now.
	Replacement string       `json:"replacement,omitempty"`
	Budgets     []BudgetOver `json:"budgets,omitempty"`
	Held        Held         `json:"held"`
	// Unknown is what could not be found out.
	Unknown []Unknown `json:"unknown,omitempty"`
}

// Subject is the pod as it is.
type Subject struct {
	schemas.PodRef
	// There: it is in the cluster. Absent: that is not known.
	There    *bool              `json:"there,omitempty"`
	Node     string             `json:"node,omitempty"`
	Phase    string             `json:"phase,omitempty"`
	Created  time.Time          `json:"created,omitzero"`
	Deleted  bool               `json:"deleted,omitempty"` // it is on its way out
	Workload *schemas.ObjectRef `json:"workload,omitempty"`
}

// Held is what the actuator remembers, and what it has told, that keeps a pod where it is.
type Held struct {
	WorkloadBreakers []status.WorkloadBreaker  `json:"workloadBreakers,omitempty"` // of its workload on its node
	Storm            []actuator.StormCondition `json:"storm,omitempty"`
	Moves            []actuator.Move           `json:"moves,omitempty"` // in flight, of its workload or its own
	// Maintenances want it off its node and cannot move it.
	Maintenances []explain.Block `json:"maintenances,omitempty"`
}

// Unknown is a part of an explanation that is missing, and why.
type Unknown struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

func (x *Explanation) unknown(what string, err error) {
	x.Unknown = append(x.Unknown, Unknown{what, err.Error()})
}

// The parts of an explanation that can be missing.
const (
	PartHistory  = "what happened to it"
	partPod      = "whether it is there"
	PartOpinions = "what would move it, and what protects it"
	PartWorkload = "what it belongs to"
	partBudgets  = "which budgets are over it"
	PartHeld     = "what holds it"
)

// explainPod finds out about a pod what it can. It fails when neither the bus nor the cluster can be asked, or both know
// nothing of the pod.
func explainPod(ctx context.Context, s settings.Settings, pod types.NamespacedName, since time.Time) (Explanation, error) {
	now := time.Now()
	x := Explanation{Time: now.UTC(), Pod: Subject{PodRef: schemas.PodRef{Namespace: pod.Namespace, Name: pod.Name}}}
	if !since.IsZero() {
		x.Since = since.UTC()
	}
	var p *policy.Policy
	if s.Policy != "" {
		read, _, err := settings.ReadPolicy(s.Policy)
		if err != nil {
			return x, err
		}
		p = &read
	}
	noCluster := x.askCluster(ctx, s, p)
	var noHistory error
	if err := withReader(s, func(b *bus.Bus) error {
		noHistory = x.askBus(ctx, b)
		return nil
	}); err != nil {
		return x, err
	}
	switch {
	case noCluster != nil && noHistory != nil:
		return x, errors.Join(noHistory, noCluster)
	case len(x.History) == 0 && (x.Pod.There == nil || !*x.Pod.There):
		return x, fmt.Errorf("pod %s: nothing is known of it: %s", pod, x.nothing())
	}
	return x, nil
}

// nothing says where the pod was looked for.
func (x *Explanation) nothing() string {
	words := []string{}
	for _, u := range x.Unknown {
		if u.What == PartHistory || u.What == partPod {
			words = append(words, u.Why)
		}
	}
	if x.Pod.There != nil {
		words = append(words, "it is not in the cluster")
	}
	if x.History != nil {
		words = append(words, "the history has no event of it")
	}
	return strings.Join(words, "; ")
}

// askBus reads the history and the ledger. Its error says why there is no history.
func (x *Explanation) askBus(ctx context.Context, b *bus.Bus) error {
	read := func(ctx context.Context, channels []string, since time.Time, handle func(schemas.Event) error) error {
		return b.Events(ctx, bus.Query{Channels: channels, Since: since}, handle)
	}
	query := explain.Query{Namespace: x.Pod.Namespace, Name: x.Pod.Name, Since: x.Since, Node: x.Pod.Node}
	var err error
	if x.History, err = explain.Read(ctx, read, query); err != nil {
		x.unknown(PartHistory, err)
		return err
	}
	if x.Pod.Node != "" {
		query.Since = time.Time{} // what holds it may have been told before
		if x.Held.Maintenances, err = explain.Blocks(ctx, read, query); err != nil {
			x.unknown(PartHeld, err)
			return nil
		}
	}
	remembered, _, err := status.Ledger(ctx, b)
	if err != nil {
		x.unknown(PartHeld, err)
		return nil
	}
	x.hold(remembered)
	return nil
}

// hold picks the ledger records that concern the pod.
func (x *Explanation) hold(r actuator.Remembered) {
	if x.Pod.UID == "" {
		return // it is gone, or not known: nothing holds it
	}
	x.Held.Storm = r.Storm
	of := x.Pod.Workload
	for _, l := range status.WorkloadBreakers(r, x.Time) {
		if of != nil && l.Workload == of.UID && l.Node == x.Pod.Node && l.Holds {
			x.Held.WorkloadBreakers = append(x.Held.WorkloadBreakers, l)
		}
	}
	for _, m := range r.Moves {
		sibling := of != nil && m.Workload != nil && m.Workload.UID == of.UID
		if m.InFlight() && (m.Pod.UID == x.Pod.UID || sibling) {
			x.Held.Moves = append(x.Held.Moves, m)
		}
	}
}

// podWithin limits the wait for the cluster, since the history is useful without it.
const podWithin = 5 * time.Second

// askCluster looks at the pod in the cluster, and asks the strategies of the policy, if there is one, about it. The error
// says why the cluster could not be asked.
func (x *Explanation) askCluster(ctx context.Context, s settings.Settings, p *policy.Policy) error {
	client, err := settings.NewClient(s)
	if err != nil {
		x.unknown(partPod, err)
		return err
	}
	pod, err := podIn(ctx, client, x.Pod.Namespace, x.Pod.Name)
	if err != nil {
		err = fmt.Errorf("the cluster: %w", err)
		x.unknown(partPod, err)
		return err
	}
	x.Pod.There = new(pod != nil)
	if pod == nil {
		return nil
	}
	x.Pod.UID, x.Pod.Node, x.Pod.Phase = pod.UID, pod.Spec.NodeName, string(pod.Status.Phase)
	x.Pod.Created, x.Pod.Deleted = pod.CreationTimestamp.UTC(), pod.DeletionTimestamp != nil
	if x.Pod.Workload, err = workloadOf(ctx, client, pod); err != nil {
		x.unknown(PartWorkload, err)
	}
	budgets, err := client.PolicyV1().PodDisruptionBudgets(pod.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		x.unknown(partBudgets, fmt.Errorf("poddisruptionbudgets of %s: %w", pod.Namespace, err))
	} else {
		x.Budgets = budgetsOver(pod, budgets.Items)
	}
	if err := x.askStrategies(ctx, client, p); err != nil {
		x.unknown(PartOpinions, err)
	}
	return nil
}

func podIn(ctx context.Context, client kubernetes.Interface, namespace, name string) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, podWithin)
	defer cancel()
	pod, err := client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return pod, nil
}

// workloadOf returns the controller of the pod, or the Deployment behind its ReplicaSet.
func workloadOf(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) (*schemas.ObjectRef, error) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return nil, nil
	}
	if owner.Kind == "ReplicaSet" {
		set, err := client.AppsV1().ReplicaSets(pod.Namespace).Get(ctx, owner.Name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("replicaset %s/%s: %w", pod.Namespace, owner.Name, err)
		}
		if behind := metav1.GetControllerOf(set); err == nil && behind != nil {
			owner = behind
		}
	}
	return &schemas.ObjectRef{Kind: owner.Kind, Namespace: pod.Namespace, Name: owner.Name, UID: owner.UID}, nil
}

// BudgetOver is a PodDisruptionBudget that selects the pod.
type BudgetOver struct {
	Name string `json:"name"`
	// Allowed is how many disruptions it allows now, and Message why it allows none.
	Allowed int32  `json:"allowed"`
	Message string `json:"message,omitempty"`
}

func budgetsOver(pod *corev1.Pod, all []policyv1.PodDisruptionBudget) (over []BudgetOver) {
	for _, b := range eviction.Matching(pod, all) {
		o := BudgetOver{Name: b.Name, Allowed: b.Status.DisruptionsAllowed}
		if b.Status.ObservedGeneration < b.Generation {
			o.Allowed = 0
		}
		if o.Allowed <= 0 {
			_, o.Message = eviction.Blockers([]policyv1.PodDisruptionBudget{b}, "")
		}
		over = append(over, o)
	}
	return over
}

// severalBudgets is why the API server evicts no pod with more than one budget.
const severalBudgets = "more than one budget is over it: the API server evicts no such pod"

var errNoPolicy = errors.New("no policy: name a file with --policy or REHOME_POLICY")

// askStrategies evaluates every strategy of the policy for the pod as it is now.
func (x *Explanation) askStrategies(ctx context.Context, client kubernetes.Interface, p *policy.Policy) error {
	if p == nil {
		return errNoPolicy
	}
	round, objects, err := app.ReadRound(ctx, client, *p)
	if err != nil {
		return err
	}
	round.Now = func() time.Time { return x.Time }
	about, err := simulate.Opinions(round, objects, x.Pod.UID)
	x.Opinions, x.Guards, x.Replacement = about.Opinions, about.Guards, about.Replacement
	return err
}
