package maintenance

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"

	"github.com/rehome-dev/rehome/maintenance/apply"
	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

const (
	// blockedLong is how long a pod cannot move before there is an Event about it.
	blockedLong = 10 * time.Minute
	// repeatAfter is how often there is an Event about the same blocked node or failing step.
	repeatAfter = time.Hour
	// maxNote is the longest note in bytes that the API server takes.
	maxNote = 1024
)

// recorder writes Kubernetes Events about maintenances, in the background. Methods may be called from many goroutines.
type recorder struct {
	c      *Controller
	events events.EventRecorder // nil: none are written

	mu       sync.Mutex
	reported map[string]time.Time // the last Event about a blocked node or a failing step
}

// notice is a Kubernetes Event. An empty action is "Maintained".
type notice struct {
	regarding, related         *corev1.ObjectReference // related may be nil
	kind, reason, text, action string
}

func newRecorder(c *Controller) *recorder { return &recorder{c: c, reported: map[string]time.Time{}} }

// start begins to write. stop ends it.
func (r *recorder) start() (stop func()) {
	if r.c.cfg.DryRun || r.c.cfg.Client == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: r.c.cfg.Client.EventsV1()})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		r.c.log.Error("Kubernetes Events are not recorded", "error", err)
	}
	r.events = broadcaster.NewRecorder(scheme.Scheme, "rehome")
	return func() {
		broadcaster.Shutdown()
		cancel()
	}
}

func (r *recorder) write(n notice) {
	if r.events == nil {
		return
	}
	var related runtime.Object // no interface with a nil pointer
	if n.related != nil {
		related = n.related
	}
	if len(n.text) > maxNote {
		n.text = strings.ToValidUTF8(n.text[:maxNote-len("…")], "") + "…"
	}
	r.events.Eventf(n.regarding, related, n.kind, n.reason, cmp.Or(n.action, "Maintained"), "%s", n.text)
}

// due says whether an Event has to be repeated, and notes that it is.
func (r *recorder) due(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.c.now()
	for k, last := range r.reported {
		if now.Sub(last) >= repeatAfter {
			delete(r.reported, k)
		}
	}
	_, reported := r.reported[key]
	if !reported {
		r.reported[key] = now
	}
	return !reported
}

func (r *recorder) forget(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.reported, key)
}

// report logs, counts, and writes as Kubernetes Events how a decision was carried out.
func (s *session) report(d plan.Decision, r apply.Result, err error) {
	log := s.log.With("maintenance", d.Name, "dryRun", s.cfg.DryRun)
	s.metrics.observe(d, r, err)
	if r.Dropped != "" {
		log.Debug("maintenance has changed, deciding again", "why", r.Dropped)
		return
	}
	if r.Wrote {
		log.Info("maintenance", "summary", d.Status.Summary.Nodes, "message", d.Status.Summary.Message)
	}
	for _, n := range s.events.notices(log, d, r) {
		s.events.write(n)
	}
}

const normal, warning = corev1.EventTypeNormal, corev1.EventTypeWarning

// notices are the Kubernetes Events about a decision that was carried out.
func (r *recorder) notices(log *slog.Logger, d plan.Decision, result apply.Result) []notice {
	l := notices{d: d}
	for _, n := range result.Nodes {
		if n.Outcome != apply.Unchanged && n.Outcome != apply.Failed {
			log.Info("maintenance step", "node", n.Name, "action", n.Action, "outcome", n.Outcome, "message", n.Message)
		}
		key := fmt.Sprintf("%s/%s/%s", d.UID, n.Name, n.Action)
		if n.Err == nil {
			r.forget(key)
		} else if r.due(key) {
			log.Warn("step of a maintenance failed, trying again", "node", n.Name, "action", n.Action, "error", n.Err)
			l.addBoth(n.Name, n.UID, warning, "StepFailed", fmt.Sprintf("%s failed, and is tried again: %v", n.Action, n.Err))
		}
		l.addStep(n, result.Before)
	}
	if result.Wrote {
		l.addStatus(result.Before)
	}
	for _, n := range d.Status.Nodes { // with a pod that could not move for long, each at most once an hour
		i := slices.IndexFunc(n.Blocked, func(b v1alpha1.BlockedPod) bool {
			return b.Since != nil && r.c.now().Sub(b.Since.Time) >= blockedLong
		})
		if i >= 0 && r.due(string(d.UID)+"/"+n.Name) {
			b := n.Blocked[i]
			text := fmt.Sprintf("node %s: pod %s/%s cannot move since %s: %s",
				n.Name, b.Namespace, b.Name, b.Since.UTC().Format(time.RFC3339), b.Reason)
			l.add(nodeRef(n.Name, n.UID), warning, "Blocked", join(text, b.By, b.Message))
		}
	}
	return l.list
}

// notices collects Kubernetes Events about a maintenance.
type notices struct {
	d    plan.Decision
	list []notice
}

// maintenance is the maintenance, or the node of an entry of the table.
func (l *notices) maintenance() *corev1.ObjectReference {
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
func (l *notices) add(related *corev1.ObjectReference, kind, reason, text string) {
	l.list = append(l.list, notice{regarding: l.maintenance(), related: related, kind: kind, reason: reason, text: text})
}

// addBoth adds an Event on a node and, if that is an object, one on its maintenance.
func (l *notices) addBoth(name string, uid types.UID, kind, reason, text string) {
	l.list = append(l.list, notice{regarding: nodeRef(name, uid), related: l.maintenance(), kind: kind, reason: reason,
		text: text + " (maintenance " + l.d.Name + ")"})
	if _, inTable := schemas.InTable(l.d.Name); !inTable {
		l.add(nodeRef(name, uid), kind, reason, "node "+name+": "+text)
	}
}

// join joins the parts that are not empty.
func join(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), "; ")
}

// addStep is about a node that was changed, or that another maintenance holds.
func (l *notices) addStep(n apply.Done, before *v1alpha1.NodeMaintenance) {
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

// addStatus is about what is new in the status.
func (l *notices) addStatus(before *v1alpha1.NodeMaintenance) {
	was, is, why := before.Status, l.d.Status, before.Spec.Reason
	for _, stage := range is.Stages {
		if !slices.ContainsFunc(was.Stages, func(x v1alpha1.StageTime) bool { return x.Stage == stage.Stage }) {
			l.add(nil, normal, "StageBegun", fmt.Sprintf("%s begins: %s", stage.Stage, why))
			// Events that differ in nothing but their text become one: the action tells the stages apart.
			l.list[len(l.list)-1].action = string(stage.Stage)
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

// refusal is why a maintenance is not accepted. Empty: it is.
func refusal(s v1alpha1.NodeMaintenanceStatus) string {
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.Accepted); c != nil && c.Status == "False" {
		return c.Reason + ": " + c.Message
	}
	return ""
}
