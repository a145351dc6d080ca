package act

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/cli/cmdutil"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// progress follows a request through its events.
type progress struct {
	request  schemas.Request
	accepted *schemas.Receipt     // nil: not yet
	finished *schemas.Receipt     // the one that it was finished or rejected with; nil: not yet
	pods     []podProgress        // in the order of the receipt, and others as they came
	seen     map[string]bool      // IDs of events: one can come again
	node     *v1alpha1.NodeStatus // of the maintenance; nil: not known
}

type podProgress struct {
	pod       schemas.PodRef
	node      string
	protected []schemas.Protection
	last      *schemas.Verdict // nil: none yet
	moving    bool             // a move has begun and is not settled
}

func newProgress(r schemas.Request) *progress { return &progress{request: r, seen: map[string]bool{}} }

// take reports whether the event is new.
func (p *progress) take(e schemas.Event) bool {
	if p.seen[e.ID] {
		return false
	}
	p.seen[e.ID] = true
	switch e.Type {
	case schemas.ReceiptType:
		r, err := schemas.Decode[schemas.Receipt](e)
		if err != nil {
			return false
		}
		if p.finished != nil && p.finished.State == r.State { // it is published again for each repetition of the request
			return false
		}
		p.receipt(r)
	case schemas.VerdictType:
		v, err := schemas.Decode[schemas.Verdict](e)
		if err != nil {
			return false
		}
		at := p.of(v.Intent.Pod, v.Intent.Node)
		if at.moving && v.Reason == schemas.ReasonMoving { // about a second evaluation; the move goes on
			return true
		}
		at.last, at.moving = &v, v.Outcome.Moves() && !v.DryRun
	case schemas.MaintenanceType:
		m, err := schemas.Decode[schemas.Maintenance](e)
		if err != nil {
			return false
		}
		for _, n := range m.Nodes {
			if n.Name == p.request.Maintenance.Node {
				p.node = &n
				return true
			}
		}
		return false
	default:
		return false
	}
	return true
}

// describeNode returns the number of pods left on a node, and what blocks each of them.
func describeNode(n v1alpha1.NodeStatus) string {
	var text strings.Builder
	fmt.Fprintf(&text, "node %s: %s", n.Name, n.Stage)
	if n.Pods != nil {
		fmt.Fprintf(&text, ", %s left, %d moved", cmdutil.Count(int(n.Pods.Left), "pod"), n.Pods.Moved)
	}
	for _, b := range n.Blocked {
		fmt.Fprintf(&text, "\n  blocked: %s/%s: %s: %s", b.Namespace, b.Name, b.Reason, cmdutil.Printable(cmp.Or(b.Message, b.By)))
	}
	if n.More > 0 {
		fmt.Fprintf(&text, "\n  and %d more blocked", n.More)
	}
	return text.String()
}

// concerns reports whether an event follows from the request, whose events have these correlation IDs. The verdicts of a
// maintenance always do, because a maintenance continues without further requests.
func (p *progress) concerns(e schemas.Event, correlations []string) bool {
	if slices.Contains(correlations, e.CorrelationID) {
		return true
	}
	m := p.request.Maintenance
	if m == nil || e.Type != schemas.VerdictType {
		return m != nil && e.Type == schemas.MaintenanceType
	}
	v, err := schemas.Decode[schemas.Verdict](e)
	return err == nil && v.Strategy == schemas.MaintenanceStrategy && v.Scope.Key == schemas.RequestedMaintenance(m.Node)
}

// isReceipt reports whether an event is a receipt for the name of the request.
func (p *progress) isReceipt(e schemas.Event) bool {
	if e.Type != schemas.ReceiptType {
		return false
	}
	r, err := schemas.Decode[schemas.Receipt](e)
	return err == nil && r.Sender == p.request.Sender && r.Name == p.request.Name
}

func (p *progress) receipt(r schemas.Receipt) {
	if r.State != schemas.RequestAccepted {
		p.finished = &r
		return
	}
	p.accepted = &r
	for _, found := range r.Pods {
		p.of(found.Pod, found.Node).protected = found.Protected
	}
}

func (p *progress) of(pod schemas.PodRef, node string) *podProgress {
	for i := range p.pods {
		if p.pods[i].pod.UID == pod.UID {
			return &p.pods[i]
		}
	}
	p.pods = append(p.pods, podProgress{pod: pod, node: node})
	return &p.pods[len(p.pods)-1]
}

// over reports whether the request is finished and all its moves are settled.
func (p *progress) over() bool {
	if p.finished == nil || p.request.Maintenance != nil {
		return p.finished != nil
	}
	for _, pod := range p.pods {
		if pod.moving {
			return false
		}
	}
	return true
}

// unexplained reports whether a pod is gone without a verdict. It may still follow the receipt.
func (p *progress) unexplained() bool {
	if p.request.Maintenance != nil {
		return false
	}
	remaining := p.remaining()
	return slices.ContainsFunc(p.pods, func(pod podProgress) bool {
		_, stayed := remaining[pod.pod.UID]
		return !stayed && len(pod.protected) == 0 && (pod.last == nil || pod.last.Outcome == schemas.Deferred)
	})
}

// remaining returns the pods that were not moved.
func (p *progress) remaining() map[types.UID]schemas.RemainingPod {
	by := map[types.UID]schemas.RemainingPod{}
	if p.finished != nil {
		for _, r := range p.finished.Remaining {
			by[r.Pod.UID] = r
		}
	}
	return by
}

// end describes the result of a pod, and reports whether it is the requested one.
func (p *progress) end(pod podProgress) (text string, well bool) {
	left, stayed := p.remaining()[pod.pod.UID]
	v := pod.last
	switch {
	case v != nil && v.Settlement != nil:
		return settledAs(*v), v.Reason == schemas.ReasonReplaced
	case v != nil && v.DryRun && v.Outcome.Moves():
		return string(v.Outcome) + " (dry run)", true
	case len(pod.protected) > 0:
		words := make([]string, len(pod.protected))
		for i, r := range pod.protected {
			words[i] = r.Rule + ": " + r.Detail
		}
		return "protected: " + strings.Join(words, "; "), false
	case stayed && left.Outcome != "":
		return fmt.Sprintf("remains: %s: %s: %s", left.Outcome, left.Reason, left.Message), false
	case stayed:
		return "remains: it was not tried", false
	case v == nil, v.Reason == schemas.ReasonPodGone:
		return "gone by itself", true
	}
	return fmt.Sprintf("%s: %s: %s", v.Outcome, v.Reason, v.Message), false
}

func settledAs(v schemas.Verdict) string {
	text := fmt.Sprintf("%s after %.1fs", v.Reason, v.Settlement.Seconds)
	if v.Settlement.Replacement != nil {
		text += ": " + v.Settlement.Replacement.Name
	}
	if v.Settlement.Node != "" {
		text += " on " + v.Settlement.Node
	}
	return text
}

func (p *progress) write(w io.Writer) error {
	var text strings.Builder
	table := cmdutil.Table{Columns: []string{"Namespace", "Pod", "Was on", "Result"}}
	for _, pod := range p.pods {
		end, _ := p.end(pod)
		table.Rows = append(table.Rows, cmdutil.Row{Cells: []any{pod.pod.Namespace, pod.pod.Name, pod.node, end}})
	}
	if p.accepted != nil {
		for _, m := range p.accepted.Missing {
			table.Rows = append(table.Rows, cmdutil.Row{Cells: []any{m.Namespace, m.Name, "", "does not exist, or has no node"}})
		}
	}
	if len(table.Rows) > 0 {
		fmt.Fprintln(&text)
		if err := table.Print(&text, ""); err != nil {
			return err
		}
		fmt.Fprintln(&text)
	}
	f := p.finished
	fmt.Fprintf(&text, "request %s/%s %s: %s: %s\n",
		p.request.Sender, p.request.Name, f.State, f.Reason, cmdutil.Printable(f.Message))
	_, err := io.WriteString(w, text.String())
	return err
}

// err describes pods that did not end as requested. For a maintenance only the last receipt counts.
func (p *progress) err() error {
	f := p.finished
	name := p.request.Sender + "/" + p.request.Name
	switch {
	case f.State == schemas.RequestRejected:
		return fmt.Errorf("request %s was rejected: %s: %s", name, f.Reason, f.Message)
	case f.Reason == schemas.ReceiptCancelled && p.request.Action != schemas.ActionCancel:
		return fmt.Errorf("request %s was cancelled", name)
	case p.request.Maintenance != nil && f.Reason != schemas.ReceiptDone && f.Reason != schemas.ReceiptNothingToDo:
		return fmt.Errorf("request %s failed: %s: %s", name, f.Reason, f.Message)
	case p.request.Maintenance != nil:
		return nil
	}
	bad := 0
	for _, pod := range p.pods {
		if _, well := p.end(pod); !well {
			bad++
		}
	}
	var failed []error
	if bad > 0 {
		failed = append(failed, fmt.Errorf("%s of request %s did not move as requested", cmdutil.Count(bad, "pod"), name))
	}
	if p.accepted != nil && len(p.accepted.Missing) > 0 {
		failed = append(failed, fmt.Errorf("not found: %s of request %s", cmdutil.Count(len(p.accepted.Missing), "pod"), name))
	}
	return errors.Join(failed...)
}
