package look

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rehome-dev/rehome/bus/filter"
	"github.com/rehome-dev/rehome/cli/cmdutil"
	"github.com/rehome-dev/rehome/functions"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/cloudevent"
)

func eventsCommand() *cobra.Command {
	var query eventsQuery
	c := &cobra.Command{
		Use:   "events",
		Short: "Show past events, and with --follow new ones",
		Long: "Show past deltas, intents, verdicts, receipts, and maintenances, and with --follow new ones.\n\n" +
			"Flags filter the events. A flag can be repeated or have several values separated by commas, and matches if one of\n" +
			"its values matches. All flags must match. An event without the property does not match: only verdicts have an\n" +
			"outcome, deltas have no strategy, and events about a whole node have no namespace.",
		Example: "  rehome events --follow                    # all new events\n" +
			"  rehome events --since 1h -o json          # the last hour, one CloudEvent per line\n" +
			"  rehome events --type verdict --since 72h  # all moves and all deferred or rejected ones\n" +
			"  rehome events --type scope --follow       # new scopes for functions\n\n" +
			"  # Progress of node maintenances:\n" +
			"  rehome events --type maintenance --since 24h --follow\n" +
			"  rehome events --maintenance kernel --since 24h    # and all events about one of them\n\n" +
			"  # Why did the pods of a namespace not move?\n" +
			"  rehome events -n shop --outcome deferred,rejected,failed\n\n" +
			"  # One node, one pod, and all consequences of one change:\n" +
			"  rehome events --node worker-7 --since 1h\n" +
			"  rehome events --pod shop/cart-0\n" +
			"  rehome events --correlation p4xq2m6tkw3zv7hbn5cjd2rlye",
		Args: cobra.NoArgs,
	}
	s := cmdutil.Settings(c).Reach()
	format := ""
	c.Flags().BoolVarP(&query.follow, "follow", "f", false, "continue with new events")
	query.since = cmdutil.Since(c, "start this long ago; without --follow the default is everything")
	query.flags.Bind(c,
		"delta, intents, verdict, receipt, maintenance, or with --follow scope and request;\nthe default is the first five")
	cmdutil.Choice(c, &format, "output", "o", "json: one CloudEvent per line", "", "json")
	c.RunE = func(c *cobra.Command, _ []string) error {
		ask, err := query.read()
		if err != nil {
			return err
		}
		to, err := s.Open(c.Context(), cmdutil.Reader)
		if err != nil {
			return err
		}
		defer to.Close()
		show := ShowText
		if format == "json" {
			show = ShowJSON
		}
		return to.Events(c.Context(), ask, func(e schemas.Event) error { return show(c.OutOrStdout(), e) })
	}
	return c
}

type eventsQuery struct {
	follow bool
	since  func() (time.Time, error)
	flags  FilterFlags
}

// read returns the query. Without --since and --follow it selects everything.
func (q eventsQuery) read() (ask cmdutil.EventQuery, err error) {
	if ask.Filter, err = q.flags.Read(); err != nil {
		return ask, err
	}
	for _, noun := range []string{filter.Scope, filter.Request} {
		if ask.Wants(noun) && !q.follow {
			return ask, fmt.Errorf("--type: %ss have no history: use --follow", noun)
		}
	}
	ask.Follow = q.follow
	if ask.Since, err = q.since(); ask.Since.IsZero() && !q.follow {
		ask.Since = time.Unix(0, 0)
	}
	return ask, err
}

// ShowJSON writes the event as one CloudEvent in structured mode, on one line.
func ShowJSON(w io.Writer, e schemas.Event) error {
	line, err := cloudevent.WriteStructured(e)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", line)
	return err
}

// ShowText writes the event as one line of text.
func ShowText(w io.Writer, e schemas.Event) error {
	noun, about, text := Describe(e)
	what := fmt.Sprintf("%-8s %s", noun, about)
	_, err := fmt.Fprintf(w, "%s  %-41s %s\n", e.Time.Local().Format("15:04:05.000"), what, text)
	return err
}

// Describe describes an event in words. It describes an unreadable event by its type.
func Describe(e schemas.Event) (noun, about, text string) {
	switch e.Type {
	case schemas.DeltaType:
		if d, err := schemas.Decode[schemas.Delta](e); err == nil {
			return "delta", d.Object.String(), describeDelta(d)
		}
	case schemas.ScopeType:
		if h, err := schemas.Decode[schemas.ScopeHead](e); err == nil {
			return "scope", h.About(), describeScope(h)
		}
	case schemas.IntentsType:
		if i, err := schemas.Decode[schemas.Intents](e); err == nil {
			return "intents", i.About(), describeIntents(i)
		}
	case schemas.VerdictType:
		if v, err := schemas.Decode[schemas.Verdict](e); err == nil {
			return "verdict", "pod/" + v.Intent.Pod.String(), describeVerdict(v)
		}
	case schemas.RequestType:
		if r, err := schemas.Decode[schemas.Request](e); err == nil {
			return "request", r.Sender + "/" + r.Name, DescribeRequest(r)
		}
	case schemas.ReceiptType:
		if r, err := schemas.Decode[schemas.Receipt](e); err == nil {
			return "receipt", r.Sender + "/" + r.Name, string(r.State) + ": " + string(r.Reason) + ": " + r.Message
		}
	case schemas.MaintenanceType:
		if m, err := schemas.Decode[schemas.Maintenance](e); err == nil {
			return "maintenance", m.Name, describeMaintenance(m)
		}
	}
	return "event", e.Subject, e.Type
}

// DescribeRequest describes a request, its reason, and its requester.
func DescribeRequest(r schemas.Request) string {
	text := string(r.Action)
	switch t := r.Target; {
	case r.Action == schemas.ActionCancel:
		text += " " + r.Sender + "/" + r.Request
	case r.Maintenance != nil:
		text = describeNodeRequest(text, *r.Maintenance)
	case r.Action == schemas.ActionEvaluate && r.Strategy != "":
		text += " " + r.Strategy
	case t == nil:
	case t.Workload != nil:
		text += fmt.Sprintf(" %s %s/%s", t.Workload.Kind, t.Workload.Namespace, t.Workload.Name)
	case t.Selector != nil:
		text += " " + strings.TrimPrefix(t.Selector.Namespace+"/", "/") + t.Selector.Labels
	case t.Node != "":
		text += " node " + t.Node
	default:
		text += fmt.Sprintf(" %d pods", len(t.Pods))
	}
	if r.DryRun {
		text += " (dry run)"
	}
	text += ": " + r.Reason
	if r.Requester != "" {
		text += ", by " + r.Requester
	}
	return text
}

func describeNodeRequest(action string, m schemas.NodeRequest) string {
	node := m.Node
	if node == "" {
		node = "with provider ID " + m.ProviderID
	}
	text := fmt.Sprintf("%s node %s: %s", action, node, m.Stage)
	if m.Deadline != nil {
		text += " within " + m.Deadline.Duration.String()
	}
	return text
}

func describeDelta(d schemas.Delta) string {
	_, aspect, _ := strings.Cut(string(d.Kind), ".")
	if d.Before == nil && d.After == nil {
		return aspect
	}
	return aspect + ": " + describeState(d.Before) + " → " + describeState(d.After)
}

func describeState(s *schemas.State) string {
	if s == nil {
		return "none"
	}
	if len(s.Taints) > 0 {
		var list []string
		for _, t := range s.Taints {
			list = append(list, t.ToString())
		}
		return strings.Join(list, ", ")
	}
	line, err := json.Marshal(s)
	if err != nil {
		return err.Error()
	}
	return strings.Trim(string(line), "{}")
}

func describeScope(h schemas.ScopeHead) string {
	var kinds []string
	for _, c := range h.Causes {
		if kind := string(c.Kind); !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return h.Strategy + ": because of " + strings.Join(kinds, ", ")
}

func describeIntents(i schemas.Intents) string {
	if len(i.Intents) == 0 {
		return i.Strategy + ": nothing should move any more"
	}
	var names []string
	for _, in := range i.Intents {
		names = append(names, in.Pod.String())
	}
	const shown = 3
	more := ""
	if len(names) > shown {
		more = fmt.Sprintf(" and %d more", len(names)-shown)
		names = names[:shown]
	}
	return fmt.Sprintf("%s: move %d: %s%s", i.Strategy, len(i.Intents), strings.Join(names, ", "), more)
}

func describeVerdict(v schemas.Verdict) string {
	text := string(v.Outcome)
	if v.DryRun {
		text += " (dry run)"
	}
	switch {
	case v.Outcome.Moves():
		return fmt.Sprintf("%s from %s%s: %s", text, v.Intent.Node, describeMethod(v), v.Intent.Reason)
	case v.Outcome == schemas.Settled && v.Settlement != nil:
		return text + " " + describeSettlement(v)
	}
	return fmt.Sprintf("%s: %s: %s", text, v.Reason, v.Message)
}

// describeMethod returns the method of a move, or "" for a plain eviction.
func describeMethod(v schemas.Verdict) string {
	var text string
	if v.Method != "" && v.Method != schemas.MethodEviction {
		text = " by " + string(v.Method)
	}
	if v.Instead != nil {
		text += fmt.Sprintf(" instead of %s (%s)", v.Instead.Method, v.Instead.Reason)
	}
	return text
}

// describeSettlement describes the node of the replacement and the duration.
func describeSettlement(v schemas.Verdict) string {
	s := v.Settlement
	where := ""
	if s.Node != "" {
		where = " on " + s.Node
	}
	text := fmt.Sprintf("%s %s%s after %.1fs", v.Reason, v.Intent.Pod, where, s.Seconds)
	if s.Replacement == nil {
		return text + ": " + v.Message
	}
	return text + ": replacement " + s.Replacement.Name
}

// FilterFlags are the flags that filter events.
type FilterFlags struct {
	filter.Filter
	pods []string
}

// Bind adds the flags to c. types describes the values of --type.
func (f *FilterFlags) Bind(c *cobra.Command, types string) {
	flags := c.Flags()
	flags.StringSliceVar(&f.Types, "type", nil, types)
	flags.StringSliceVar(&f.Outcomes, "outcome", nil, "verdicts with these outcomes, such as evicted,deferred")
	flags.StringSliceVar(&f.Strategies, "strategy", nil, "scopes, intents, and verdicts of these strategies")
	flags.StringSliceVarP(&f.Namespaces, "namespace", "n", nil, "events about pods in these namespaces")
	flags.StringSliceVar(&f.pods, "pod", nil, "events about these pods, each NAMESPACE/NAME")
	flags.StringSliceVar(&f.Nodes, "node", nil, "events about these nodes or pods on them")
	flags.StringSliceVar(&f.Maintenances, "maintenance", nil,
		"events about these maintenances")
	cmdutil.CompleteValues(c, "type", filter.Nouns()...)
	cmdutil.CompleteValues(c, "outcome", words(schemas.Outcomes())...)
	cmdutil.CompleteValues(c, "strategy", functions.Names(functions.Hosted())...)
	cmdutil.CompleteNamespaces(c, cmdutil.Settings(c))
	flags.StringSliceVar(&f.Correlations, "correlation", nil, "all consequences of one change, by its correlationid")
}

// Read returns the filter, or an error about a flag.
func (f *FilterFlags) Read() (filter.Filter, error) {
	chosen := f.Filter
	for _, text := range f.pods {
		p, err := filter.ParsePod(text)
		if err != nil {
			return filter.Filter{}, fmt.Errorf("--pod: %w", err)
		}
		chosen.Pods = append(chosen.Pods, p)
	}
	if err := chosen.Check(); errors.Is(err, filter.ErrNothing) {
		return filter.Filter{}, err
	} else if err != nil {
		return filter.Filter{}, fmt.Errorf("--%w", err)
	}
	return chosen, nil
}

func words[S ~string](list []S) (all []string) {
	for _, s := range list {
		all = append(all, string(s))
	}
	return all
}

const nodesShown = 3

// describeMaintenance lists some nodes with their stages, and sums up the rest.
func describeMaintenance(m schemas.Maintenance) string {
	var about []string
	for _, n := range m.Nodes {
		about = append(about, "node "+n.Name+" "+string(n.Stage))
	}
	if n := len(about) + m.More - nodesShown; n > 0 {
		about = append(about[:min(len(about), nodesShown)], fmt.Sprintf("%d more", n))
	}
	for _, c := range m.Changes {
		about = append(about, "node "+c.Name+": "+c.Message)
	}
	text := strings.Join(about, ", ")
	if m.DryRun {
		text = strings.TrimSuffix("(dry run) "+text, " ")
	}
	if text != "" {
		text += "  "
	}
	text += fmt.Sprintf("%s nodes, %s left", m.Summary.Nodes, cmdutil.Count(int(m.Summary.PodsLeft), "pod"))
	if m.Summary.PodsBlocked > 0 {
		text += fmt.Sprintf(", %d blocked", m.Summary.PodsBlocked)
	}
	switch {
	case m.Refusal != nil:
		text += ": refused: " + m.Refusal.Reason + ": " + m.Refusal.Message
	case m.Summary.Message != "":
		text += ": " + m.Summary.Message
	}
	return text
}
