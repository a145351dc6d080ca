package maintenance

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/kubeevents"
	"github.com/rehome-dev/rehome/maintenance/apply"
	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// blockedLong is how long a pod is blocked before there is an Event about it.
const blockedLong = 10 * time.Minute

// report logs and counts the execution of a decision, and records it as Kubernetes Events.
func (s *session) report(d plan.Decision, r apply.Result, err error) {
	log := s.log.With("maintenance", d.Name, "dryRun", s.cfg.DryRun)
	s.metrics.observe(r, err)
	if r.Dropped != "" {
		log.Debug("the maintenance has changed; deciding again", "why", r.Dropped)
		return
	}
	if r.Wrote {
		log.Info("maintenance status changed", "summary", d.Status.Summary.Nodes, "message", d.Status.Summary.Message)
	}
	for _, n := range r.Nodes {
		if n.Outcome != apply.Unchanged && n.Outcome != apply.Failed {
			log.Info("maintenance step", "node", n.Name, "action", n.Action, "outcome", n.Outcome, "message", n.Message)
		}
	}
	for _, e := range notices(d, r, s.now()) {
		s.events.Write(e)
	}
}

const normal, warning = corev1.EventTypeNormal, corev1.EventTypeWarning

// notices returns the Kubernetes Events about an executed decision. Repeated ones become a series.
func notices(d plan.Decision, r apply.Result, now time.Time) []kubeevents.Event {
	l := list{d: d}
	for _, n := range r.Nodes {
		if n.Err != nil {
			l.addBoth(n.Name, n.UID, warning, "StepFailed", fmt.Sprintf("%s failed; retrying: %v", n.Action, n.Err))
		}
		l.addStep(n, r.Before)
	}
	if r.Wrote {
		l.addStatus(r.Before)
	}
	for _, n := range d.Status.Nodes {
		i := slices.IndexFunc(n.Blocked, func(b v1alpha1.BlockedPod) bool {
			return b.Since != nil && now.Sub(b.Since.Time) >= blockedLong
		})
		if i >= 0 {
			b := n.Blocked[i]
			text := fmt.Sprintf("node %s: pod %s/%s has been blocked since %s: %s",
				n.Name, b.Namespace, b.Name, b.Since.UTC().Format(time.RFC3339), b.Reason)
			l.add(nodeRef(n.Name, n.UID), warning, "Blocked", join(text, b.By, b.Message))
		}
	}
	return l.events
}

// list collects Kubernetes Events about a maintenance.
type list struct {
	d      plan.Decision
	events []kubeevents.Event
}

// maintenance returns the maintenance, or the node of a table entry.
func (l *list) maintenance() *corev1.ObjectReference {
	name, inTable := schemas.InTable(l.d.Name)
	if !inTable {
		return &corev1.ObjectReference{
			APIVersion: v1alpha1.GroupVersion().String(), Kind: "NodeMaintenance", Name: l.d.Name, UID: l.d.UID,
		}
	}
	ref := nodeRef(name, "")
	for _, n := range l.d.Status.Nodes {
		if n.Name == name {
			ref.UID = n.UID
		}
	}
	return ref
}

func nodeRef(name string, uid types.UID) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name, UID: uid}
}

// add adds an Event on the maintenance.
func (l *list) add(related *corev1.ObjectReference, kind, reason, text string) {
	l.write(l.maintenance(), related, kind, reason, text)
}

func (l *list) write(regarding, related *corev1.ObjectReference, kind, reason, text string) {
	l.events = append(l.events, kubeevents.Event{
		Regarding: regarding, Related: related, Type: kind, Reason: reason, Action: "Maintained", Note: text,
	})
}

// addBoth adds an Event on a node and, if that is an object, one on its maintenance.
func (l *list) addBoth(name string, uid types.UID, kind, reason, text string) {
	l.write(nodeRef(name, uid), l.maintenance(), kind, reason, text+" (maintenance "+l.d.Name+")")
	if _, inTable := schemas.InTable(l.d.Name); !inTable {
		l.add(nodeRef(name, uid), kind, reason, "node "+name+": "+text)
	}
}

// join joins the nonempty parts.
func join(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), "; ")
}

// addStep adds Events about a changed node, or about one that another maintenance holds.
func (l *list) addStep(n apply.Done, before *v1alpha1.NodeMaintenance) {
	switch {
	case n.Outcome == apply.Taken:
		l.add(nodeRef(n.Name, n.UID), warning, "NodeTaken", "node "+n.Name+" is not cordoned: "+n.Message)
	case n.Outcome != apply.Changed:
	case n.Again:
		l.addBoth(n.Name, n.UID, warning, "CordonedAgain",
			"the node was uncordoned during its maintenance, and is cordoned again: "+before.Spec.Reason)
	case n.Action == schemas.NodeCordon:
		l.addBoth(n.Name, n.UID, normal, "NodeCordoned", join("cordoned: "+before.Spec.Reason, n.Message))
	case n.Action == schemas.NodeReturn:
		l.addBoth(n.Name, n.UID, normal, "NodeReturned", join("given back", n.Message))
	}
}

// addStatus adds Events about the changes of the status.
func (l *list) addStatus(before *v1alpha1.NodeMaintenance) {
	was, is, why := before.Status, l.d.Status, before.Spec.Reason
	for _, stage := range is.Stages {
		if !slices.ContainsFunc(was.Stages, func(x v1alpha1.StageTime) bool { return x.Stage == stage.Stage }) {
			l.add(nil, normal, "StageBegun", fmt.Sprintf("%s begins: %s", stage.Stage, why))
			// Events that differ only in their text become one, so the action must contain the stage.
			l.events[len(l.events)-1].Action = string(stage.Stage)
		}
	}
	if text := refusal(is); text != "" && text != refusal(was) {
		l.add(nil, warning, "Refused", text)
	}
	stages := plan.Stages(was)
	for _, n := range is.Nodes {
		switch {
		case stages[n.Name] == n.Stage:
		case n.Stage == v1alpha1.IsDrained:
			l.addBoth(n.Name, n.UID, normal, "NodeDrained", "drained: "+why)
		case n.Stage == v1alpha1.Held:
			l.addBoth(n.Name, n.UID, warning, "NodeDeadline", join("its deadline has passed", n.Message))
		}
	}
}

// refusal returns the reason why a maintenance is not accepted, or "".
func refusal(s v1alpha1.NodeMaintenanceStatus) string {
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.Accepted); c != nil && c.Status == "False" {
		return c.Reason + ": " + c.Message
	}
	return ""
}
